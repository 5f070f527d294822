"""Who joins a job that runs: what is expected takes part, and what comes late without a word of the job's own does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from analyzers.incidents.hosting import Hosting
from analyzers.incidents.memory import observe_batch
from analyzers.incidents.messages import Received
from analyzers.incidents.rank_maps import LONGEST_SECONDS, PLAIN_SECONDS, ROLES_SECONDS
from analyzers.incidents.state import EngineState
from collectors.records import Members, Placement, RoleState, Steps, directory_sender
from collectors.records.identity import placed_rank
from tests.analyzers.incidents.test_hosting import DECLARED, NODES, keep, running
from tests.support.simulated_fleet import knowledge

LATE = PLAIN_SECONDS + 1.0


def placed(node: str, role: str = "", rank: int | None = None, attempt: int = 1, size: int | None = None) -> Placement:
    """Return a process without a number, unless ``rank`` gives it one."""
    number = placed_rank(node, 0) if rank is None else rank
    return Placement(
        job="run", attempt=attempt, ranks=Members.of([number]), nodes=(node,), roles=(role,) if role else (), pids=(7,),
        world_sizes=(size or 0,),
    )  # fmt: skip


def steps(attempt: int = 1) -> Steps:
    """Return a reading of steps of rank 0."""
    return Steps(job="run", attempt=attempt, rank=0, step=1, count=0, columns={})


LATECOMERS = [placed("late"), placed("late", "rollout"), placed("late", "rollout", 7), placed("late", "", 7, size=None)]


@pytest.mark.parametrize("said", LATECOMERS)
def test_who_comes_late_beside_a_plain_job_says_nothing_of_it(said: Placement) -> None:
    """However long it claims: all six ranks were there in the first seconds, and nothing confirms a seventh."""
    hosting = running()
    for at in (LATE, LATE + 100.0, LATE + 2_000.0):
        keep(hosting, at, *NODES)
        hosting.take("late", [said], at)

    assert not hosting.is_host("late", 1)
    assert hosting.refused("late", 1)


def test_a_late_node_of_a_missing_rank_takes_part() -> None:
    """The hosts say that there are six ranks: one that no other hosts is expected, with roles and without."""
    hosting = Hosting()
    for node in ("n0", "n1"):
        keep(hosting, 0.0, node)
    hosting.take("n2", [Placement(job="run", attempt=1, ranks=Members.of([4, 5]), pids=(1, 2), world_size=6)], 500.0)
    assert hosting.is_host("n2", 1)

    hosting = Hosting()
    hosting.take("t", [placed("t", "rollout", 0, size=2)], 0.0)
    hosting.take("t", [steps()], 10.0)
    hosting.take("t", [steps()], 40.0)
    hosting.take("r", [placed("r", "rollout", 1, size=2)], 500.0)
    assert hosting.is_host("r", 1)


def test_roles_that_start_one_after_another_take_part() -> None:
    """Rollouts load for minutes after the trainers, and the job does its first step then; after that none is expected."""
    hosting = Hosting()
    hosting.take("t0", [placed("t0", "trainer")], 0.0)
    for number, at in enumerate((100.0, 400.0, LONGEST_SECONDS - 1.0)):
        hosting.take(f"r{number}", [placed(f"r{number}", "rollout")], at)
    hosting.take("late", [placed("late", "rollout")], LONGEST_SECONDS + 1.0)

    assert {node for node, held in hosting.maps[1].on.items() if held} == {"t0", "r0", "r1", "r2"}
    assert hosting.unconfirmed(1) == ["late"]


def test_steps_end_the_start_of_a_job_of_roles() -> None:
    """What a step needs has started before it; a single reading is no step yet, and agents have a minute and a half."""
    hosting = Hosting()
    hosting.take("t0", [placed("t0", "trainer"), steps()], 0.0)
    hosting.take("r0", [placed("r0", "rollout")], ROLES_SECONDS + 10.0)
    hosting.take("t0", [steps()], ROLES_SECONDS + 20.0)
    hosting.take("r1", [placed("r1", "rollout")], ROLES_SECONDS + 30.0)

    assert hosting.is_host("r0", 1)
    assert not hosting.is_host("r1", 1)


def test_a_stranger_s_steps_end_nothing() -> None:
    """Only who hosts a rank speaks of the job's steps."""
    hosting = Hosting()
    hosting.take("t0", [placed("t0", "trainer")], 0.0)
    for at in (100.0, 140.0):
        hosting.note_step("stranger", 1, at)
    hosting.take("r0", [placed("r0", "rollout")], 150.0)

    assert hosting.is_host("r0", 1)


def by_declaration(hosting: Hosting, at: float) -> None:
    """Declare the late node beside the others."""
    hosting.declare(1, (*DECLARED, "late.cluster"), at)


def by_directory(hosting: Hosting, at: float) -> None:
    """Let a process there join the job's directory of roles."""
    hosting.vouch(["late"], at)


def by_a_new_run(hosting: Hosting, at: float) -> None:
    """Start every process of the job anew."""
    keep(hosting, at, *NODES, pid=900)


@pytest.mark.parametrize("confirm", [by_declaration, by_directory, by_a_new_run])
def test_what_confirms_a_late_node(confirm: Callable[[Hosting, float], None]) -> None:
    """The scheduler's word, that of the job's own processes, or a start of the whole job."""
    hosting = running()
    hosting.take("late", [placed("late", "rollout")], LATE)
    assert (hosting.is_host("late", 1), hosting.unconfirmed(1)) == (False, ["late"])

    confirm(hosting, LATE + 10.0)
    hosting.take("late", [placed("late", "rollout")], LATE + 11.0)

    assert (hosting.is_host("late", 1), hosting.unconfirmed(1)) == (True, [])


def test_a_declaration_confirms_a_role_that_counts_from_nought() -> None:
    """The trainer has a rank 0 and a rank 1 as well: the declared list of nodes says nothing of whose number that is."""
    hosting = Hosting()
    trainer = Placement(job="run", attempt=1, ranks=Members.of([0, 1]), roles=("trainer",) * 2, pids=(1, 2))
    hosting.take("t0", [trainer], 0.0)
    hosting.declare(1, ["t0", "t0", "late"], 1.0)
    late = Placement(job="run", attempt=1, ranks=Members.of([0]), roles=("rollout",), pids=(1,))
    for at in (LATE, LATE + 10.0):
        hosting.take("t0", [trainer], at)
        hosting.take("late", [late], at)

    assert (hosting.is_host("late", 1), hosting.unconfirmed(1)) == (True, [])
    assert hosting.maps[1].on["t0"] == {(0, "trainer"), (1, "trainer")}


def test_a_name_in_another_domain_is_not_confirmed() -> None:
    """The declared node is there itself: who bears its name elsewhere is another."""
    hosting = running()
    hosting.declare(1, DECLARED, 1.0)
    hosting.take("n0.elsewhere", [placed("n0.elsewhere", "rollout")], LATE)

    assert not hosting.is_host("n0.elsewhere", 1)


def test_members_may_start_more_processes() -> None:
    """A node that hosts a rank, or hosted one of the attempt before, is no stranger."""
    hosting = running()
    hosting.take("n1", [placed("n1", "reward")], LATE)
    assert (placed_rank("n1", 0), "reward") in hosting.maps[1].on["n1"]

    keep(hosting, LATE + 1.0, "n0", "n2", attempt=2)
    hosting.take("n1", [placed("n1", "reward", attempt=2)], LATE + 500.0)
    assert hosting.is_host("n1", 2)


def test_a_rank_that_was_given_up_is_no_strangers() -> None:
    """A killed rank leaves its node's placement: while the job goes on nobody else takes it, nor when its node falls silent."""
    hosting = running()
    hosting.take(
        "n2", [Placement(job="run", attempt=1, ranks=Members.of([4]), nodes=("n2",), pids=(104,), world_size=6)], 50.0
    )
    for at in range(60, 400, 20):
        keep(hosting, at, "n0", "n1")
        stranger = Placement(job="run", attempt=1, ranks=Members.of([5]), nodes=("s",), pids=(9,), world_size=6)
        hosting.take("s", [stranger], at)

    assert hosting.refused("s", 1) == {(5, "")}
    keep(hosting, 401.0, "n2")
    assert hosting.maps[1].by_rank[5] == (("", "n2"),)


def test_the_next_engine_knows_who_hosted() -> None:
    """It reads the log from the middle of the job's life: who was no host then is none by being read first."""
    hosting = Hosting()
    hosting.know(1, [*NODES, "r0"], 5_000.0)
    hosting.take("n0", [placed("n0", "trainer")], 4_000.0)
    hosting.take("late", [placed("late", "rollout")], 4_001.0)
    hosting.take("r0", [placed("r0", "rollout")], 4_002.0)

    assert (hosting.is_host("late", 1), hosting.is_host("r0", 1)) == (False, True)


def test_the_directory_confirms_in_the_engine() -> None:
    """A late rollout is in no view of the job until the job's directory names its node."""
    state = EngineState(knowledge=knowledge())
    places = [
        (node, Placement(job="run", attempt=1, ranks=Members.of(ranks), pids=ranks, world_size=6))
        for node, ranks in NODES.items()
    ]
    reported = [(1.0, node, placement) for node, placement in places]
    reported += [
        (at, node, placement)
        for at in (100.0, 130.0)
        for node, placement in [*places, ("late", placed("late", "rollout"))]
    ]
    said = RoleState(job="run", attempt=1, role="rollout", instance="0", node="late", at=110.0)
    reported.append((120.0, directory_sender("run"), said))  # type: ignore[arg-type]
    inside = []
    for sequence, (at, node, record) in enumerate(sorted(reported, key=lambda one: one[0]), 1):
        observe_batch(
            state, Received(sequence=sequence, received_at=1e9 + at, sent_at=1e9 + at, node=node, records=(record,))
        )
        inside.append("late" in state.jobs["run", 1].nodes)

    assert not any(inside[:7])
    assert inside[-1]
