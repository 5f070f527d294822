"""Stacks of several evidence rounds, and of ranks without any."""

from __future__ import annotations

from analyzers.diagnosis.stacks.stacks import analyze
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import ProcessState
from tests.support.stack_claims import KNOWLEDGE, analyzed, dump, live, suspects


def test_a_missing_stack_picks_only_from_ranks_that_hold_the_others_up() -> None:
    """Three of four wait and the fourth gave no stack: a narrowing at little more than even odds, nothing by itself."""
    world = Topology(ranks=(0, 1, 2, 3))
    window = Window.build(dump(rank, "gradient") for rank in range(3))

    (finding,) = [f for f in analyze(window, world, KNOWLEDGE) if f.fault_class == "no_stack"]

    assert [suspect.ranks for suspect in finding.suspects] == [(3,)]
    assert finding.narrows
    assert finding.suspects[0].strength < 0.85


def test_of_many_looks_each_ranks_newest_two_count() -> None:
    """Minutes of looks at a running job, then two of the hang, in any order: the rank outside communication."""
    earlier = [live(rank, "compute", 60.0 * minute + rank) for minute in range(5) for rank in range(4)]
    hang = [
        live(rank, "compute" if rank == 2 else "gradient", at + rank / 100) for at in (400, 403) for rank in range(4)
    ]
    assert suspects(analyzed(*earlier, *hang)) == [2]
    assert suspects(analyzed(*reversed([*earlier, *hang]))) == [2]


def test_a_running_job_that_is_looked_at_now_and_then_accuses_nobody() -> None:
    """One look a minute, staggered: those that wait have moved since their last."""
    looks = [
        live(rank, "compute" if (rank + minute) % 4 == 0 else "gradient" if minute % 2 else "all_reduce", 60.0 * minute + rank)
        for minute in range(4)
        for rank in range(4)
    ]  # fmt: skip
    assert analyzed(*looks) == []


def test_a_look_from_before_the_answer_does_not_count_with_it() -> None:
    """Three ranks answered when asked and one did not: its look of a minute before is not of the hang."""
    asked = [live(rank, "gradient", at) for at in (400.0, 403.0) for rank in range(3)]
    before = live(3, "compute", 350.0)
    found = analyzed(*asked, before)
    assert {one.fault_class for one in found} <= {"no_stack"}
    assert suspects(analyzed(*asked, live(3, "compute", 400.0), live(3, "compute", 403.0))) == [3]


def test_looks_that_are_long_older_than_the_ranks_last_sign_do_not_count() -> None:
    """Nobody could be looked at any more, for minutes: what was seen before is not where the job hangs."""
    looks = [live(rank, "compute" if rank == 2 else "gradient", 400.0) for rank in range(4)]
    alive = ProcessState(pid=100, rank=0, state="S", at=900.0, boot_id="b")
    world = Topology((0, 1, 2, 3))
    assert suspects(list(analyze(Window(records=tuple(looks)), world, KNOWLEDGE))) == [2]
    assert list(analyze(Window(records=(*looks, alive)), world, KNOWLEDGE)) == []


def test_a_childs_old_look_is_not_of_the_hang() -> None:
    """A worker that was seen minutes before the trainer's newest looks, or the trainer before it, is not named as its child."""
    hang = [live(rank, "compute" if rank == 2 else "gradient", at) for at in (400, 403) for rank in range(4)]

    def reported(at: float, parent: int | None = 102) -> bool:
        child = live(2, "compute", at, pid=900, parent_pid=parent, source="stacks/900")
        (finding,) = analyzed(*hang, child)
        return "child processes" in finding.suspects[0].why

    assert (reported(390.0), reported(100.0), reported(390.0, None)) == (True, False, False)


def test_after_a_restart_the_new_process_stands_for_its_rank() -> None:
    """The same rank has a new process, with a higher or a lower number: the old one's looks are of the past."""
    old = [
        live(rank, "compute" if rank == 1 else "gradient", at, pid=500 + rank) for at in (100, 103) for rank in range(4)
    ]
    new = [
        live(rank, "compute" if rank == 3 else "gradient", at, pid=700 + rank) for at in (200, 203) for rank in range(4)
    ]
    lower = [
        live(rank, "compute" if rank == 0 else "gradient", at, pid=30 + rank) for at in (300, 303) for rank in range(4)
    ]
    assert suspects(analyzed(*old, *new)) == [3]
    assert suspects(analyzed(*old, *new, *lower)) == [0]
