"""Judgements and reports read what agents send by patterns, too: each takes linear time, and fails on no number."""

from __future__ import annotations

import pytest

from analyzers.diagnosis.crash.lost_peers import missing_in_barrier
from analyzers.diagnosis.hardware.faults import recovery
from analyzers.model.frames import normal
from analyzers.model.verdict import Coverage, Verdict
from collectors.records import Frame, KernelEvent, LogEvent
from service.reports import unread
from tests.support.adversarial import Case, growth, is_quadratic

SIZE = 1 << 14  # four times that is the longest text of a record


def _lines(text: str) -> list[str]:
    coverage = Coverage(unread=(f"recorder: {text}",))
    return unread.lines(
        Verdict(symptom="unknown", cause="unknown", abstained=True, version="1", knowledge="k", coverage=coverage)
    )


READ = {
    "sources that were not read": _lines,
    "Xid 154": lambda text: recovery(KernelEvent(source="k", event="xid", code=154, text=text + "\nx")),
    "ranks that a barrier missed": lambda text: missing_in_barrier(
        [LogEvent(event="watchdog_timeout", text=text + " failed to pass monitoredBarrie")]
    ),
    "a function's name": lambda text: normal(Frame(function=text + "\nx", file="a.c")),
}
UNITS = ("Ranks " + "12345678, " * 8, "Ranks 1", "#1:", " of rank 1", "to 0x0 (", ": 154,", "@", ".part", "(", "<")


@pytest.mark.parametrize("what", READ)
def test_a_long_text_takes_linear_time(what: str) -> None:
    """A page is made in the service itself, where nothing else is done meanwhile; judgements wait for one another."""
    found = [growth(lambda data: READ[what](data.decode()), Case(unit, "", unit), SIZE) for unit in UNITS]

    assert [one for one in found if is_quadratic(one)] == []


def test_a_number_of_thousands_of_digits_is_no_rank() -> None:
    """Python refuses to read it: the page and the report of the incident would fail."""
    assert _lines(f"recorder of rank {'9' * 5_000}: refused") == [f"recorder: recorder of rank {'9' * 5_000}: refused"]
