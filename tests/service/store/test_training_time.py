"""ETTR against an oracle that looks at every second, and on the cases that a person works out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.store.training_time import Span, measure

NOW = 300

instants = st.integers(0, NOW)


@st.composite
def spans(draw: st.DrawFn) -> list[Span]:
    """Spans of whole seconds, some of which go on."""
    begins = draw(st.lists(instants, max_size=6))
    return [Span(begin, draw(st.none() | st.integers(begin, NOW + 20))) for begin in begins]


def covers(span: Span, second: int) -> bool:
    """Return whether a span holds a second."""
    return span.since <= second < (NOW if span.until is None else span.until)


def counted(attempts: list[Span], downtimes: list[Span], since: int) -> tuple[int, int]:
    """Return (seconds of the job's life, seconds of training), each second looked at by itself."""
    if not attempts:
        return 0, 0
    begin = min(attempt.since for attempt in attempts)
    end = max(NOW if span.until is None else span.until for span in attempts + downtimes)
    life = [second for second in range(NOW) if max(begin, since) <= second < end]
    trained = [
        second
        for second in life
        if any(covers(one, second) for one in attempts) and not any(covers(one, second) for one in downtimes)
    ]
    return len(life), len(trained)


@pytest.mark.system
@given(spans(), spans(), instants)
def test_the_arithmetic_is_that_of_seconds(attempts: list[Span], downtimes: list[Span], since: int) -> None:
    """For any attempts and downtimes, overlapping, nested, open or empty, it is what counting the seconds gives."""
    ledger = measure(attempts, downtimes, since, NOW)

    assert (ledger.wall_seconds, ledger.training_seconds) == counted(attempts, downtimes, since)


@pytest.mark.system
@given(spans(), spans(), instants)
def test_a_ratio_is_a_ratio(attempts: list[Span], downtimes: list[Span], since: int) -> None:
    """ETTR lies in 0 to 1, and there is none exactly where the job has no time in the window."""
    ledger = measure(attempts, downtimes, since, NOW)

    assert (ledger.ettr is None) == (ledger.wall_seconds == 0)
    assert ledger.ettr is None or 0 <= ledger.ettr <= 1


@pytest.mark.system
@given(
    spans(),
    spans(),
    st.lists(st.tuples(instants, instants, st.sampled_from([0.0, 0.25, 0.5, 1.0])), max_size=4),
    instants,
)
def test_restarts_of_a_role_give_back_the_machines_at_work(
    attempts: list[Span], downtimes: list[Span], drawn: list[tuple[int, int, float]], since: int
) -> None:
    """For any restarts, overlapping or not, it is what the seconds give; it never exceeds what the downtimes took."""
    partial = [(Span(min(a, b), max(a, b)), share) for a, b, share in drawn]
    ledger = measure(attempts, downtimes, since, NOW, partial)

    expected = 0.0
    for second in range(since, NOW):
        shares = [share for span, share in partial if covers(span, second)]
        stood = any(covers(one, second) for one in downtimes) and any(covers(one, second) for one in attempts)
        expected += min(shares) if shares and stood else 0.0
    assert ledger.partial_seconds == pytest.approx(expected)
    assert ledger.training_seconds == measure(attempts, downtimes, since, NOW).training_seconds
    assert ledger.partial_ettr is None or 0 <= (ledger.ettr or 0) <= ledger.partial_ettr <= 1


@pytest.mark.parametrize(
    ("attempts", "downtimes", "since", "expected"),
    [
        ([Span(0)], [], 0, 1.0),
        ([Span(0)], [Span(270)], 0, 0.9),  # open: it counts until now
        ([Span(0)], [Span(100, 130), Span(110, 120), Span(120, 160)], 0, 0.8),  # overlapping: counted once
        ([Span(0, 100), Span(150)], [], 0, 250 / 300),  # the restart between two attempts is the job's time too
        ([Span(0, 100)], [Span(100)], 0, 1 / 3),  # it died and has not come back
        ([Span(0, 100)], [Span(90, 100)], 0, 0.9),  # it has ended: what came after is nobody's time
        ([Span(0)], [Span(270)], 240, 0.5),  # of the window only
        ([Span(0, 100)], [], 200, None),
        ([], [Span(0)], 0, None),
    ],
)
def test_cases_worked_out_by_hand(
    attempts: list[Span], downtimes: list[Span], since: float, expected: float | None
) -> None:
    """What a person would say of simple histories."""
    assert measure(attempts, downtimes, since, NOW).ettr == (None if expected is None else pytest.approx(expected))
