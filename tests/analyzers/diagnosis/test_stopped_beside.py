"""A stopped process beside the ranks, while one of them waits for work from outside: it is named, and no rank is."""

from __future__ import annotations

import msgspec
import pytest

from analyzers.model.verdict import Verdict
from collectors.records import BESIDE, Frame, ProcessState, Record, StackDump, Thread
from tests.analyzers.diagnosis.test_thread_waits import BUSY, GETS, SERVES
from tests.support.live_hangs import TRAIN, Hang, named, verdict

ASKS = (Frame("until_answered", "/srv/train.py", 44), *TRAIN)


def waiting(
    main: tuple[Frame, ...], *others: tuple[Frame, ...], active: bool | None = None, state: str = "S"
) -> list[Record]:
    """Return the records of a job whose rank 2 stands so, with these other threads."""
    more = tuple(Thread(frames=frames, name=f"Thread-{number}") for number, frames in enumerate(others))
    records = list[Record]()
    for one in Hang(stands=(main, main), state=state).records():
        if isinstance(one, StackDump) and one.rank == 2:
            first, *rest = one.threads
            threads = (msgspec.structs.replace(first, active=active), *rest, *more)
            records.append(msgspec.structs.replace(one, threads=threads))
        else:
            records.append(one)
    return records


def beside(records: list[Record], *pids: int, earlier: float = 0.0, source: str = BESIDE) -> Verdict:
    """Return the verdict where agents report these stopped processes too, so much before the newest stacks."""
    last = max((one for one in records if isinstance(one, StackDump)), key=lambda one: one.at or 0.0)
    at = (last.at or 0.0) - earlier
    rows = [
        ProcessState(source=source, node=last.node, pid=pid, state="T", command="python", at=at, boot_id="b")
        for pid in pids
    ]  # fmt: skip
    return verdict([*records, *rows])


@pytest.mark.parametrize(
    "records", [waiting(GETS, SERVES), waiting(ASKS, SERVES, active=False)], ids=["its thread waits", "it polls"]
)
def test_the_stopped_process_is_named_and_the_waiting_rank_is_not(records: list[Record]) -> None:
    """Nothing is done to a machine: the process has to run again."""
    found = beside(records, 4242)
    (culprit,) = found.culprits
    assert (culprit.kind, culprit.ranks, found.cause) == ("service", (), "platform")
    assert "process 4242 (python)" in culprit.why
    assert (found.action.kind, found.action.nodes) == ("none", ())


@pytest.mark.parametrize(
    ("records", "expected"),
    [(waiting(GETS, SERVES), []), (waiting(ASKS, SERVES, active=False), [2])],
    ids=["its thread waits", "it polls"],
)
@pytest.mark.parametrize("how", ["none", "of a round before", "of a table of processes", "many"])
def test_what_shows_no_stopped_process_names_none(records: list[Record], expected: list[int], how: str) -> None:
    """An older round, a table that a person took, and a node on which very much is stopped accuse no process."""
    pids = {"none": (), "many": tuple(range(100, 130))}.get(how, (4242,))
    earlier, source = 60.0 if how == "of a round before" else 0.0, "ps" if how == "of a table of processes" else BESIDE
    found = beside(records, *pids, earlier=earlier, source=source)
    assert named(found) == expected
    assert all(one.kind != "service" for one in found.culprits)


def test_a_rank_that_works_or_is_stopped_itself_is_no_waiter() -> None:
    """What else is stopped beside it excuses it of nothing."""
    assert named(beside(waiting(GETS, SERVES, BUSY), 4242)) == [2]
    assert named(beside(waiting(ASKS, SERVES, active=True), 4242)) == [2]
    assert named(beside(waiting(ASKS, SERVES, active=False, state="T"), 4242)) == [2]
