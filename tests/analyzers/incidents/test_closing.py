"""What an incident states when its job moves again before a verdict, and what becomes of a slowdown meanwhile."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from analyzers.incidents.messages import Ask, Close, EngineInstruction, Judge, Open
from analyzers.model.verdict import Verdict
from collectors.records import Frame, Record, StackDump, Thread
from tests.analyzers.incidents.test_moving_again import JudgedByTime
from tests.analyzers.incidents.test_repeated_stops import FAULT, NOTHING, PAUSE, Engine, stopped
from tests.analyzers.incidents.test_slow import instructions, slower
from tests.support.watched_jobs import START, Law, WatchedJob

STOP, SECONDS = 200.0, 24.0
SOUND = "no machine is at fault"
VALIDATION = ("run_validation", "main")
CHECKPOINT = ("save_checkpoint", "main")
TRAINING = ("forward", "main")
BARRIER = ("barrier", "save_checkpoint", "main")


def stack(rank: int, at: float, functions: Sequence[str]) -> tuple[float, str, Record]:
    """One rank's stack, innermost first, as the agent of its node sends it; ``at``: since the start."""
    files = {"barrier": "torch/distributed/distributed_c10d.py"}
    frames = tuple(Frame(function=one, file=files.get(one, "train.py"), line=7) for one in functions)
    dump = StackDump(
        at=START + at, node=f"n{rank // 4}", job="run", attempt=0, rank=rank, pid=100 + rank, boot_id="b",
        threads=(Thread(name="MainThread", main=True, frames=frames),),
    )  # fmt: skip
    return at, f"n{rank // 4}", dump


def because(stacks: Sequence[tuple[float, str, Record]], seconds: float = SECONDS, verdict: Verdict = NOTHING) -> str:
    """Return why the incident of one stop closes whose ranks were read so."""
    engine = Engine(verdict).run(
        WatchedJob(law=stopped([(STOP, seconds)]), extra=list(stacks)), 0.0, STOP + seconds + 60.0
    )
    ((_, said),) = engine.closed
    return said


def everywhere(functions: Sequence[str], at: float = STOP + 15.0) -> list[tuple[float, str, Record]]:
    """All eight ranks in one place."""
    return [stack(rank, at, functions) for rank in range(8)]


def test_a_pause_that_is_over_before_a_verdict_is_stated() -> None:
    """Every rank was in its evaluation, and is in a step again when the agents' next stacks come."""
    said = because([*everywhere(VALIDATION), *everywhere(TRAINING, STOP + SECONDS - 2.0)])

    assert "stood still for 25 s" in said
    assert "every rank that was read was in an evaluation, run_validation (train.py)" in said
    assert said.endswith(SOUND)


def test_a_rank_that_writes_for_all_is_stated() -> None:
    """Rank 0 writes a checkpoint, and the others wait for it in the barrier after that."""
    others = [stack(rank, STOP + 15.0, BARRIER) for rank in range(1, 8)]

    said = because([stack(0, STOP + 15.0, CHECKPOINT), *others])

    assert "rank 0 was in a checkpoint, save_checkpoint (train.py), and the others that were read waited" in said
    assert said.endswith(SOUND)


@pytest.mark.parametrize(
    "stacks",
    [
        pytest.param([], id="none was read"),
        pytest.param([*everywhere(VALIDATION)[:7], stack(5, STOP + 15.0, TRAINING)], id="one is elsewhere"),
        pytest.param([*everywhere(VALIDATION), stack(5, STOP + 18.0, TRAINING)], id="one goes elsewhere"),
        pytest.param(everywhere(VALIDATION)[:3], id="few were read"),
        pytest.param(everywhere(VALIDATION, STOP - 5.0), id="before the stop"),
        pytest.param(everywhere(TRAINING), id="in a step"),
        pytest.param(everywhere(BARRIER), id="all wait"),
    ],
)
def test_what_the_stacks_do_not_show_is_not_stated(stacks: list[tuple[float, str, Record]]) -> None:
    """No machine is cleared without evidence: it was over before it was judged, and that is all."""
    said = because(stacks)

    assert SOUND not in said
    assert "stood still for 25 s" in said
    assert said.endswith("moved before it was judged: nothing is proposed")


def test_a_fault_that_was_named_is_not_taken_back() -> None:
    """What a verdict has named stands, whatever the stacks show beside."""
    said = because(everywhere(VALIDATION), 60.0, FAULT)

    assert SOUND not in said
    assert "nothing is proposed" not in said


def pausing(at: float, seconds: float, over: float = math.inf) -> Law:
    """Steps of a job that is slow since ``BEGAN`` until ``over`` and pauses once."""
    pace, now = slower(1.3, until=over), 0.0
    paused = False

    def law(step: int, noise: random.Random) -> float:
        nonlocal now, paused
        length = pace(step, noise)
        if not paused and now >= at:
            paused, length = True, length + seconds
        now += length
        return length

    return law


def reported(law: Law, until: float) -> list[tuple[float, str, str]]:
    """Return when what kind of incident opens, and why it closes."""
    kinds: dict[str, str] = {}
    found: list[tuple[float, str, str]] = []
    for at, one in instructions(WatchedJob(law=law), until):
        if isinstance(one, Open):
            kinds[one.incident.id] = one.incident.kind
            found.append((at, one.incident.kind, ""))
        elif isinstance(one, Close):
            found.append((at, kinds[one.incident], one.because))
    return found


def test_a_slowdown_goes_on_after_a_pause() -> None:
    """A pause of a slow job has an incident of its own, and the slowdown stays the one that it was."""
    found = reported(pausing(1_700.0, 41.0), 2_600.0)

    assert [(kind, bool(why)) for _, kind, why in found] == [("slow", False), ("hang", False), ("hang", True)]


def test_a_slowdown_that_ends_after_a_pause_is_over() -> None:
    """It closes for its own reason, once."""
    found = reported(pausing(1_700.0, 41.0, over=2_000.0), 2_600.0)

    assert [kind for _, kind, why in found if not why] == ["slow", "hang"]
    assert [kind for _, kind, why in found if why] == ["hang", "slow"]
    assert found[-1][2].startswith("a step takes as long as before again")


def test_a_slow_job_that_ends_well_after_a_pause_has_ended() -> None:
    """Its last evaluation ends with it: the slowdown is over with the job, and was nothing more."""
    ended: dict[int, tuple[float, int | None, int | None]] = dict.fromkeys(range(8), (2_060.0, 0, None))
    engine = Engine(PAUSE).run(WatchedJob(law=slower(1.3), stopped_at=2_000.0, ended=ended), 0.0, 2_200.0)

    assert len(engine.opened) == 2
    assert [why for _, why in engine.closed] == [
        "all 8 processes that were seen of the job have ended: 8 with exit code 0"
    ] * 2


def test_a_hang_takes_over_once_a_fault_is_named() -> None:
    """A slow job stands still for good: the hang is opened as soon as without the slowdown, which its verdict ends."""
    job = WatchedJob(law=slower(1.3), stopped_at=2_000.0)
    engine = JudgedByTime(lambda at: FAULT if at > 2_000.0 else NOTHING)
    engine.run(job, 0.0, 2_100.0)

    slow, hang = engine.opened
    ((closed_at, why),) = engine.closed
    assert slow < 2_000.0 < hang <= 2_060.0
    assert hang <= closed_at <= hang + 30.0
    assert why.startswith("it is more than a slowdown: no step for")


class Reading(JudgedByTime):
    """The engine without answers of agents; notes when it asks, and at each judgement which stacks that sees."""

    def __init__(self) -> None:
        super().__init__(lambda _at: NOTHING)
        self.asked: list[tuple[str, float]] = []
        self.read: list[tuple[str, float, list[float]]] = []

    def _note(self, one: EngineInstruction, at: float) -> None:
        if isinstance(one, Judge):
            stacks = [record.at - START for record in one.records if isinstance(record, StackDump) and record.at]
            self.read.append((one.incident, at - START, sorted(stacks)))
        if isinstance(one, Ask):
            self.asked.append((one.incident, at - START))
        super()._note(one, at)


def test_a_slow_job_is_not_looked_at_while_it_stands_still() -> None:
    """Its rounds go on after the pause, and no stack that was taken in it is of a slow step."""
    stacks = [*everywhere(TRAINING, 1_390.0), *everywhere(CHECKPOINT, 1_440.0), *everywhere(TRAINING, 1_500.0)]
    engine = Reading()
    engine.run(WatchedJob(law=pausing(1_400.0, 70.0), extra=stacks), 0.0, 1_600.0)

    slow = engine.read[0][0]
    asked = [at for id, at in engine.asked if id == slow]
    read = [(at, found) for id, at, found in engine.read if id == slow]
    assert not [at for at in asked + [at for at, _ in read] if 1_430.0 < at < 1_470.0]
    assert max(asked) > 1_480.0
    assert {at for at, found in read if 1_440.0 in found} == set()
    assert set(read[-1][1]) == {1_390.0, 1_500.0}
