"""Stacks of a job that a person stopped and continued: the rank that was continued last held nobody up by itself."""

from __future__ import annotations

from array import array

import pytest

from analyzers.diagnosis.stacks.stacks import analyze
from analyzers.model.finding import Finding
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import STEP_COLUMNS, ProcessState, Record, Steps
from tests.support.live_hangs import START, Hang, named, verdict
from tests.support.stack_claims import KNOWLEDGE, live, suspects

CONTINUED_AT = 400.0
RANKS = ("gradient", "compute", "gradient")
CODES = {"<i1": "b", "<i4": "i", "<i8": "q", "<f8": "d"}


def states(rank: int, spans: str, begin: float = CONTINUED_AT - 50.0, **more: object) -> list[Record]:
    """A rank's states as an agent reads them, each ten seconds from ``begin`` on."""
    known = {"source": "process", "node": "n", "boot_id": "b", "rank": rank, "pid": 100 + rank, **more}
    return [ProcessState(**known, state=state, at=begin + 10.0 * turn) for turn, state in enumerate(spans)]  # type: ignore[arg-type]


def step(*ends: float) -> Steps:
    """Steps that an agent read from a log, with when each ended."""
    columns = {
        name: array(CODES[kind], list(ends) if name == "at" else [0] * len(ends)).tobytes()
        for name, kind in STEP_COLUMNS.items()
    }
    return Steps(
        at=ends[-1] + 5.0, step=9, received_at=ends[-1] + 9.0, node="n", source="train.log", count=len(ends), columns=columns
    )  # fmt: skip


def found(after: float, *more: Record, ranks: tuple[str, ...] = RANKS) -> list[Finding]:
    """Analyze a round of stacks so many seconds after the continuation; each rank is looked at twice."""
    looks = [
        live(rank, stack, CONTINUED_AT + after + again + rank / 10, node="n")
        for rank, stack in enumerate(ranks)
        for again in (0.0, 3.0)
    ]
    return list(analyze(Window(records=(*looks, *more)), Topology(tuple(range(len(ranks)))), KNOWLEDGE))


PAUSED = [row for rank in range(3) for row in states(rank, "STTTTSSSSSSS")]


@pytest.mark.parametrize("after", [-1.0, 2.0, 6.0])
def test_a_stack_soon_after_a_continuation_names_no_rank(after: float) -> None:
    """Two seconds after it the last rank is still in the step that the stop has cut."""
    assert suspects(found(after)) == [1]
    assert found(after, *PAUSED) == []
    assert found(after, *states(1, "STTTTSSSSSSS")) == []


def test_before_the_next_step_no_rank_is_named_however_late_the_stack_is() -> None:
    """Where its log gives steps, the first one shows that all ranks take part again."""
    assert found(40.0, *PAUSED, step(340.0, 341.0)) == []
    assert found(40.0, *PAUSED, step(340.0, 341.0), step(444.0)) == []


def test_a_job_without_a_step_for_minutes_after_it_was_continued_stands_for_another_reason() -> None:
    """Where its steps take longer than that, twice the longest."""
    assert found(290.0, *PAUSED, step(340.0, 341.0)) == []
    assert suspects(found(310.0, *PAUSED, step(340.0, 341.0))) == [1]
    assert found(310.0, *PAUSED, step(100.0, 341.0)) == []
    assert suspects(found(500.0, *PAUSED, step(100.0, 341.0))) == [1]


def test_a_rank_that_hangs_after_the_next_step_is_named() -> None:
    """The job went on, and then one rank held the others up; a stack from a little later shows it."""
    assert suspects(found(40.0, *PAUSED, step(340.0, 341.0), step(402.0, 403.0))) == [1]


def test_without_steps_the_stack_counts_after_ten_seconds() -> None:
    """A job that prints none has nothing else that shows it."""
    assert suspects(found(12.0, *PAUSED)) == [1]


@pytest.mark.parametrize(
    "rows",
    [
        states(1, "SSSSSSSSSS"),
        states(1, "SttSSSSSSS"),
        states(1, "STTTTTTTTTTT"),
        states(1, "STTTX"),
        states(1, "STTTSSSS", parent_pid=7),
        states(1, "STTTSSSS", boot_id=None),
    ],
    ids=["never stopped", "traced", "still stopped", "ended", "a child", "of a file"],
)
def test_what_is_no_continuation_takes_nothing_away(rows: list[Record]) -> None:
    """Only a rank that an agent read stopped, and then going on, was continued."""
    assert suspects(found(2.0, *rows, step(340.0))) == [1]


def test_a_rank_in_its_exception_is_named_all_the_same() -> None:
    """What it raised is in its stack, whoever was stopped before."""
    assert suspects(found(2.0, *PAUSED, ranks=("gradient", "exception", "gradient"))) == [1]


def test_a_verdict_names_no_machine_by_the_rank_that_was_continued_last() -> None:
    """Four ranks on four nodes, dumps left out: the same records without the pause name the rank."""
    plain = [record for record in Hang().records() if type(record).__name__ != "FlightRecorderDump"]
    paused: list[Record] = [
        ProcessState(
            source="process", at=START + at, boot_id="b", node=f"gpu-{rank}", job="llama", attempt=1, rank=rank,
            pid=100 + rank, state="T", cpu_seconds=at,
        )
        for rank in range(4)
        for at in (30.0, 36.0, 49.0)
    ]  # fmt: skip
    early = [record for record in plain if not (isinstance(record, ProcessState) and (record.at or 0.0) < START + 50.0)]
    looks = [record for record in early if not ((record.at or 0.0) >= START + 60.0)]

    assert named(verdict(plain)) == [2]
    assert named(verdict([*looks, *paused])) == []
