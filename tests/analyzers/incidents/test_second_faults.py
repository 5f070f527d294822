"""Instances of roles that are killed and stopped, live: a lost instance is one fault, and a second is judged when it shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from analyzers.incidents.messages import Merge, Publish, Received
from analyzers.incidents.replay import rerun_engine
from analyzers.model.verdict import Verdict
from collectors.records import DIRECTORY, Members, Placement, ProcessState, Record, RoleState, directory_sender
from service.packaged_knowledge import load
from tests.support.watched_jobs import START, step_record

Seat = tuple[str, int]
INSTANCES: list[Seat] = [
    ("trainer", 0),
    ("trainer", 1),
    *(("rollout", number) for number in range(4)),
    ("controller", 0),
]
FIRST, SECOND, SECONDS = 303.0, 343.0, 420.0
KILLED, STOPPED, REPLACED = "killed", "stopped", "replaced"
Faults = Mapping[Seat, tuple[float, str]]
"""Instance → when, and what becomes of it."""


def rank_of(seat: Seat, *, apart: bool) -> int:
    """Return an instance's rank: its number within its role, or one of its own in the job."""
    return INSTANCES.index(seat) if apart else seat[1]


def process(seat: Seat, at: float, faults: Faults, *, apart: bool) -> Iterator[ProcessState]:
    """Yield what its agent reads of an instance's process at an instant."""
    index = INSTANCES.index(seat)
    whose: dict[str, Any] = {"job": "rl", "attempt": 0, "role": seat[0], "rank": rank_of(seat, apart=apart), "boot_id": "b",
             "oom_kills_total": 0}  # fmt: skip
    since, how = faults.get(seat, (1e9, ""))
    if at <= since:
        yield ProcessState(**whose, pid=100 + index, at=START + at, started_at=START, state="S")
    elif how == STOPPED:
        yield ProcessState(**whose, pid=100 + index, at=START + at, started_at=START, state="T")
    else:
        if at <= since + 10.0:
            yield ProcessState(**whose, pid=100 + index, at=START + since, started_at=START, state="X", signal=9)
        if how == REPLACED and at > SECOND + 20.0:
            begun = START + SECOND + 15.0
            yield ProcessState(**whose, pid=200 + index, at=START + at, started_at=begun, state="S")


def said(seat: Seat, at: float, faults: Faults) -> RoleState:
    """Return what the directory reports of an instance at an instant."""
    since, how = faults.get(seat, (1e9, ""))
    back = how == REPLACED and at > SECOND + 20.0
    moved = at if back else min(at, since)
    does: dict[str, Any] = {"phase": "wait", "waiting_for": "queue:questions", "waiting_since": START + moved}
    if seat[0] == "rollout":
        does = {"phase": "generate", "requests_running": 1, "tokens_total": int(100 * moved)}
    elif seat[0] == "trainer":
        does = {"phase": "train", "steps_total": int(moved // 2)}
    return RoleState(
        source=DIRECTORY, job="rl", role=seat[0], instance=str(seat[1]), at=START + at, epoch=2 if back else 1,
        state="serving", node="elsewhere", pid=(200 if back else 100) + INSTANCES.index(seat), lease_seconds=30.0,
        renewed_at=START + moved, phase_since=START + moved, **does,
    )  # fmt: skip


def log(faults: Faults, *, apart: bool) -> Iterator[Received]:
    """Yield what two agents and the directory send, each ten seconds; the trainers do a step every two seconds."""
    for tick in range(1, int(SECONDS // 10.0) + 1):
        at = 10.0 * tick
        for number, node in enumerate(("n0", "n1")):
            here = [seat for index, seat in enumerate(INSTANCES) if index % 2 == number]
            rows = [row for seat in here for row in process(seat, at - 1.0, faults, apart=apart)]
            records: list[Record] = [*rows]
            if tick % 6 == 1:
                alive = [row for row in rows if row.state != "X"]
                records.append(
                    Placement(
                        job="rl", attempt=0, at=START + at - 1.0, ranks=Members.of(row.rank or 0 for row in alive),
                        roles=tuple(row.role or "" for row in alive), nodes=(node,) * len(alive),
                        pids=tuple(row.pid for row in alive),
                    )
                )  # fmt: skip
            if node == "n0":
                steps = [(step, START + 2.0 * step) for step in range(5 * tick - 5, 5 * tick) if step]
                records.append(step_record(steps, 0, at=START + at - 2.0, job="rl", role="trainer"))
            yield Received(
                sequence=3 * tick + number,
                received_at=START + at,
                sent_at=START + at,
                node=node,
                records=tuple(records),
            )
        readings = tuple(said(seat, at, faults) for seat in INSTANCES)
        yield Received(sequence=3 * tick + 2, received_at=START + at, node=directory_sender("rl"), records=readings)


def played(faults: Faults, *, apart: bool = False) -> tuple[list[tuple[float, Verdict]], list[tuple[float, str]]]:
    """Return the verdicts and the later symptoms, each with its instant."""
    decided = [(at - START, one) for at, one in rerun_engine(log(faults, apart=apart), load())]
    published = [(at, one.verdict) for at, one in decided if isinstance(one, Publish)]
    return published, [(at, one.symptom.text) for at, one in decided if isinstance(one, Merge)]


def named(verdict: Verdict) -> list[tuple[str | None, tuple[str, ...]]]:
    """Return role and instances of each culprit."""
    return [(one.role, one.instances) for one in verdict.culprits]


@pytest.mark.parametrize("apart", [False, True], ids=["ranks of each role", "ranks of the job"])
@pytest.mark.parametrize("number", range(4))
def test_a_killed_rollout_is_one_fault_and_stays_one(number: int, *, apart: bool) -> None:
    """The end of its process and its silence in the directory name it alone, whatever number its process has in the job."""
    verdicts, _ = played({("rollout", number): (FIRST, KILLED)}, apart=apart)

    assert verdicts
    for _, verdict in verdicts:
        assert [root.fault_class for root in verdict.roots] == ["process_killed"]
        assert named(verdict) == [("rollout", (str(number),))]
        assert (verdict.action.kind, verdict.action.role, verdict.action.instance) == (
            "restart_role",
            "rollout",
            str(number),
        )


@pytest.mark.parametrize("apart", [False, True], ids=["ranks of each role", "ranks of the job"])
@pytest.mark.parametrize(("how", "within"), [(KILLED, 15.0), (STOPPED, 35.0)])
def test_a_second_rollout_is_judged_when_its_fault_shows(how: str, within: float, *, apart: bool) -> None:
    """Forty seconds after the first: a death shows at the next reading, and a stop after twenty seconds of it."""
    verdicts, later = played({("rollout", 1): (FIRST, KILLED), ("rollout", 2): (SECOND, how)}, apart=apart)

    both = [at for at, verdict in verdicts if named(verdict) == [("rollout", ("1",)), ("rollout", ("2",))]]
    assert both
    assert both[0] <= SECOND + within
    assert (verdicts[-1][1].action.kind, verdicts[-1][1].action.instance) == ("restart_role", "1")
    assert not any("again" in text for _, text in later)
    assert len(verdicts) <= 3  # each version says more than the one before
    assert named(verdicts[-1][1])[1:] == [("rollout", ("2",))]


def test_a_trainer_that_stops_beside_a_dead_rollout_is_judged_when_it_shows() -> None:
    """Whom most wait for leads."""
    verdicts, _ = played({("rollout", 1): (FIRST, KILLED), ("trainer", 1): (SECOND, STOPPED)})

    both = [at for at, verdict in verdicts if {role for role, _ in named(verdict)} == {"rollout", "trainer"}]
    assert both
    assert both[0] <= SECOND + 35.0


def test_what_is_left_is_judged_when_the_first_is_replaced() -> None:
    """Rollout 1 runs anew since then: the next restart is rollout 2's."""
    verdicts, _ = played({("rollout", 1): (FIRST, REPLACED), ("rollout", 2): (SECOND, KILLED)})

    at, last = verdicts[-1]
    assert named(last) == [("rollout", ("2",))]
    assert (last.action.kind, last.action.instance) == ("restart_role", "2")
    assert at <= SECOND + 45.0


def test_a_trainer_s_ranks_are_one_fault() -> None:
    """The second one ends because it has lost the first."""
    verdicts, later = played({("trainer", 1): (FIRST, KILLED), ("trainer", 0): (SECOND, KILLED)})

    assert {role for _, verdict in verdicts for role, _ in named(verdict)} == {"trainer"}
    assert not any(text.startswith("trainer 0") for _, text in later)
