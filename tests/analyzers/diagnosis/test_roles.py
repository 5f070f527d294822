"""Readings of roles become a verdict: the role and its instance are named, on its node, and no machine is evicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from analyzers.model.topology import infer
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.records import KernelEvent, LogEvent, Members, Placement, ProcessState, Record
from service.packaged_knowledge import load
from tests.support.role_readings import END, GENERATES, HEALTHY, JOB, readings, scene
from tests.support.stack_claims import live

DEAD = {**GENERATES, "still_from": 400.0, "answers": True}
ROLLOUT_3 = ("rollout", "3")


def judged(records: Sequence[Record]) -> Verdict:
    """The verdict on a live window."""
    window = Window.build(records, live=True)
    return judge(window, infer(window), load(), rounds=2)


def placed(node: str = "r{}") -> list[Record]:
    """Where the rollouts and the trainer run, each a rank of its role."""
    seats = [("rollout", number, node.format(number)) for number in range(4)] + [("trainer", 0, "t0")]
    return [
        Placement(
            **JOB, source="placement", at=END - 60, received_at=END, node=where, ranks=Members.of([number]), roles=(role,),
            nodes=(where,), pids=(100 + number,),
        )
        for role, number, where in seats
    ]  # fmt: skip


def process(number: int, state: str, at: float, **more: Any) -> ProcessState:
    """A rollout's process."""
    whose = {**JOB, "role": "rollout", "rank": number, "node": f"r{number}", "boot_id": "b", "source": "process"}
    return ProcessState(**whose, pid=100 + number, state=state, at=END + at, received_at=END + at, **more)


@pytest.mark.parametrize("where", [[], placed()], ids=["readings alone", "with placements"])
def test_a_dead_engine_is_named_by_role_instance_and_node(where: list[Record]) -> None:
    """The engine whose endpoint answers is restarted; its node is named and stays."""
    verdict = judged([*scene({ROLLOUT_3: DEAD}), *where])
    (culprit,) = verdict.culprits
    assert (culprit.kind, culprit.id, culprit.role, culprit.instances) == ("node", "r3", "rollout", ("3",))
    assert culprit.ranks == ((3,) if where else ())
    assert (verdict.symptom, verdict.cause, verdict.roots[0].fault_class) == ("hang", "machine", "engine_still")
    assert (verdict.action.kind, verdict.action.role, verdict.action.instance) == ("restart_role", "rollout", "3")
    assert verdict.action.nodes == ()


def test_a_trainer_that_sends_no_weights_is_named_though_it_waits_for_experience() -> None:
    """All rollouts wait for trainer 0's weights, and both trainers for the rollouts: that they wait too is no excuse."""
    trained = {"phase": "wait", "waiting_for": "queue:experience", "weights": 8}
    fetches = {**GENERATES, "phase": "weight sync", "running": 1, "still_from": 300.0, "phase_since": 300.0}
    changes: dict[tuple[str, str], Any] = {
        ("rollout", str(number)): {**fetches, "waiting_for": "trainer 0"} for number in range(4)
    }
    changes |= {("trainer", "0"): trained, ("trainer", "1"): {**trained, "node": "t1"}}
    verdict = judged([*scene(changes), *placed()])
    (culprit,) = verdict.culprits
    assert (culprit.id, culprit.role, culprit.ranks) == ("t0", "trainer", (0,))
    assert (verdict.symptom, verdict.roots[0].fault_class) == ("hang", "weight_sync_still")
    assert (verdict.action.kind, verdict.action.role, verdict.action.nodes) == ("restart_role", "trainer", ())


def test_a_healthy_job_of_roles_names_nothing() -> None:
    """Roles that wait for one another are no symptom."""
    verdict = judged([*scene(), *placed()])
    assert (verdict.culprits, verdict.action.kind) == ((), "none")


def test_a_killed_rollout_is_restarted_and_its_node_is_kept() -> None:
    """Its process and its heartbeat are gone: two kinds of evidence for one instance evict no machine yet."""
    rows = [process(3, "S", -200.0), process(3, "X", -90.0, signal=9), process(2, "S", -10.0)]
    dead = {**GENERATES, "still_from": 500.0, "silent_from": 500.0}
    verdict = judged([*scene({ROLLOUT_3: dead}), *placed(), *rows])
    assert [(one.role, one.instances, one.id) for one in verdict.culprits] == [("rollout", ("3",), "r3")]
    assert verdict.action.kind == "restart_role"


def test_a_killed_rollout_whose_process_nothing_ties_to_its_instance_is_restarted_all_the_same() -> None:
    """Ranks have numbers of the job's, and containers hide process ids: its restart outweighs a doubt about the node."""
    where = [
        structs.replace(one, ranks=Members.of([number + 1]), roles=("rollout",))
        for number, one in enumerate(placed()[:4])
    ]
    rows = [structs.replace(one, rank=4) for one in (process(3, "S", -200.0), process(3, "X", -90.0, signal=9))]
    alive = structs.replace(process(2, "S", -10.0), rank=3)
    dead = {**GENERATES, "still_from": 400.0, "silent_from": 400.0, "answers": False, "node": None}
    verdict = judged([*scene({ROLLOUT_3: dead}), *where, *rows, alive])

    assert {root.fault_class for root in verdict.roots} == {"process_killed", "role_lost"}
    assert (verdict.action.kind, verdict.action.role, verdict.action.instance) == ("restart_role", "rollout", "3")


@pytest.mark.parametrize("first", [True, False])
def test_a_process_that_was_replaced_is_no_end_of_its_instance(first: bool) -> None:
    """Rollout 2 was killed and started again before rollout 3 stopped, in whatever order agents tell of its processes."""
    killed = [process(2, "S", -200.0, started_at=END - 900), process(2, "X", -150.0, signal=9, started_at=END - 900)]
    again = [
        structs.replace(process(2, "S", at), pid=202, started_at=END - 145, cpu_seconds=200.0 + at)
        for at in (-100.0, -10.0)
    ]
    stopped = [process(3, "T", at, started_at=END - 900) for at in (-80.0, -40.0, -10.0)]
    old, new = (killed, again) if first else (again, killed)
    still = {**GENERATES, "still_from": 500.0, "silent_from": 500.0}
    where = [structs.replace(one, pids=(202,)) if one.node == "r2" else one for one in placed()]
    verdict = judged([*scene({ROLLOUT_3: still}), *where, *old, *new, *stopped])

    assert [(one.role, one.instances) for one in verdict.culprits] == [("rollout", ("3",))]


@pytest.mark.parametrize(
    ("exception", "fault_class"),
    [("KeyError", "program_error"), ("OSError", "exception_one_rank"), ("MemoryError", "host_oom")],
)
def test_a_rollout_that_raised_is_restarted_whatever_it_raised(exception: str, fault_class: str) -> None:
    """Its next requests are others: the instance's restart comes before the mending of the code."""
    raised = LogEvent(
        job="rl", role="rollout", rank=3, node="r3", event="traceback", exception=exception, message="17", at=END - 100,
        text=f"{exception}: 17", source="rollout-3.log:9",
    )  # fmt: skip
    dead = {**GENERATES, "still_from": 500.0, "silent_from": 500.0}
    verdict = judged([*scene({ROLLOUT_3: dead}), *placed(), process(3, "X", -100.0, exit_code=1), raised])

    assert [root.fault_class for root in verdict.roots] == [fault_class]
    assert (verdict.action.kind, verdict.action.role, verdict.action.instance) == ("restart_role", "rollout", "3")


def test_a_dead_engine_on_a_broken_device_is_the_machine_s() -> None:
    """Its GPU left the bus: the hardware's own event decides what is done with the node."""
    event = KernelEvent(
        node="r3", event="xid", code=79, pci="0000:9b:00", at=END - 210, source="kern.log:1", text="Xid 79"
    )
    verdict = judged([*scene({ROLLOUT_3: DEAD}), *placed(), event])
    assert verdict.culprits[0].id == "r3"
    assert verdict.action.kind in ("evict", "probe", "reboot_node")
    assert verdict.action.nodes == ("r3",)


def test_a_rollout_on_a_trainer_s_node_restarts_the_trainer() -> None:
    """A hybrid machine is a trainer's: what fails there is restarted with the trainer."""
    verdict = judged(scene({ROLLOUT_3: {**DEAD, "node": "t0"}}))
    assert (verdict.action.kind, verdict.action.role, verdict.action.instance) == ("restart_role", "trainer", None)
    assert verdict.culprits[0].role == "rollout"


def test_a_rollout_with_a_process_of_its_own_is_restarted_alone_beside_a_trainer() -> None:
    """Its process starts again while the trainer's goes on, though both run on one machine."""
    changes = {ROLLOUT_3: {**DEAD, "node": "t0", "pid": 103}, ("trainer", "0"): {**HEALTHY["trainer", "0"], "pid": 100}}
    verdict = judged(scene(changes))
    assert (verdict.action.kind, verdict.action.role, verdict.action.instance) == ("restart_role", "rollout", "3")


def test_a_lost_request_restarts_the_job_and_blames_no_machine() -> None:
    """The controller waits for a rollout that has nothing to do."""
    idle = {"phase": "wait", "running": 0, "waiting_for": "controller", "weights": 7}
    changes: dict[tuple[str, str], Any] = {("rollout", str(number)): idle for number in range(4)}
    changes[("controller", "0")] = {"phase": "wait", "waiting_for": "rollout 2", "phase_since": 100.0}
    changes |= {(role, "0"): {"phase": "idle", "running": 0} for role in ("reward", "environment")}
    verdict = judged(scene(changes))
    assert [(one.role, one.instances) for one in verdict.culprits] == [("controller", ("0",))]
    assert (verdict.cause, verdict.action.kind) == ("code", "restart_job")
    assert (verdict.culprits[0].kind, verdict.culprits[0].id) == ("role", "controller 0")


def test_a_process_that_is_stopped_for_long_is_lost_without_a_heartbeat() -> None:
    """No client reports it: its own state, read for two minutes, is enough."""
    rows = [process(3, "S", -200.0), process(3, "T", -150.0), process(3, "T", -20.0), process(2, "S", -10.0)]
    records = [one for one in scene() if (one.role, one.instance) != ROLLOUT_3]
    records += readings("rollout", "3", until=440.0, tokens=200, running=8)
    verdict = judged([*records, *placed(), *rows])
    assert [(one.role, one.instances) for one in verdict.culprits] == [("rollout", ("3",))]
    assert verdict.action.kind == "restart_role"


def test_a_leak_of_one_role_that_killed_another() -> None:
    """The kernel killed a rollout for memory, and the reward beside it had grown by most of it."""
    reward = {**JOB, "role": "reward", "rank": 0, "node": "r3", "boot_id": "b", "source": "process"}
    rows: list[Record] = [
        process(3, "S", -300.0, resident_bytes=8 << 30, oom_kills_total=0),
        process(3, "X", -90.0, signal=9, resident_bytes=8 << 30, oom_kills_total=1),
        *(
            ProcessState(**reward, pid=7, state="S", at=END + at, received_at=END + at, resident_bytes=held << 30)
            for at, held in ((-300.0, 4), (-100.0, 40))
        ),
    ]
    dead = {**GENERATES, "still_from": 500.0, "silent_from": 500.0}
    verdict = judged(
        [*scene({ROLLOUT_3: dead, ("reward", "0"): {"phase": "score", "running": 1, "node": "r3"}}), *rows]
    )
    assert ("reward", ("0",)) in [(one.role, one.instances) for one in verdict.culprits]
    assert verdict.action.kind in ("restart_role", "none")


def test_a_trainer_that_waits_for_another_role_is_not_accused_by_its_peers() -> None:
    """Rank 1 waits in a collective for rank 0, which waits for the queue: that is no hang of rank 0."""
    from analyzers.model.finding import Finding, Suspect
    from analyzers.verdict.judge import decide, findings

    records = [*scene(), *placed()]
    window = Window.build(records, live=True)
    shape, knowledge = infer(window), load()
    claim = Finding(
        analyzer="hang", family="waits", symptom="hang", cause="machine", fault_class="never_entered", role="trainer",
        suspects=(Suspect(kind="rank", strength=0.95, why="it never entered", ranks=(0,)),), together=True,
    )  # fmt: skip
    verdict = decide([*findings(window, shape, knowledge), claim], window, shape, knowledge)
    assert verdict.culprits == ()


STEPPED = {"phase": "update_actor", "steps": 0.1, "still_from": 200.0}


def spinning(*spins: int, rounds: int = 3, stepped: float = 200.0, place: str = "compute") -> Verdict:
    """The verdict on three trainers of which the last step came long ago: some are in a place of their code, the others wait."""
    seats = [(number, f"t{number}") for number in range(3)]
    where = [
        Placement(
            **JOB, source="placement", at=END - 60, received_at=END, node=node, ranks=Members.of([number]),
            roles=("trainer",), nodes=(node,), pids=(200 + number,),
        )
        for number, node in seats
    ]  # fmt: skip
    stacks = [
        live(number, place if number in spins else "all_reduce", END - 90.0 + 30.0 * turn, node=node, pid=200 + number,
             job="rl-math", role="trainer", attempt=1)
        for turn in range(rounds)
        for number, node in seats
    ]  # fmt: skip
    rows = [
        ProcessState(**JOB, role="trainer", rank=number, node=node, boot_id="b", source="process", pid=200 + number,
                     state="R", at=END + at, received_at=END + at, cpu_seconds=END + at)
        for at in (-590.0, -10.0)
        for number, node in seats
    ]  # fmt: skip
    changes = {("trainer", str(number)): {**STEPPED, "node": node, "still_from": stepped} for number, node in seats}
    return judged([*scene(changes), *placed(), *where, *stacks, *rows])


def test_the_trainer_that_spins_is_named_and_its_role_is_restarted() -> None:
    """By its rule the role stands; the stacks show who waits for whom. Why it spins is not known, and no machine is touched."""
    verdict = spinning(1)
    (culprit,) = verdict.culprits
    assert (culprit.kind, culprit.id, culprit.role, culprit.ranks) == ("node", "t1", "trainer", (1,))
    assert (verdict.symptom, verdict.cause) == ("hang", "unknown")
    assert (verdict.action.kind, verdict.action.role, verdict.action.instance, verdict.action.nodes) == (
        "restart_role", "trainer", None, (),
    )  # fmt: skip


@pytest.mark.parametrize("less", [{"rounds": 1}, {"rounds": 0}, {"stepped": 400.0}, {"place": "loader"}])
def test_with_less_against_a_trainer_its_role_is_only_looked_at(less: dict[str, Any]) -> None:
    """One round of stacks or none, a step that is not late yet, or one that reads its data."""
    assert spinning(1, **less).action.kind in ("probe", "none")


def test_trainers_that_all_spin_are_looked_at() -> None:
    """Nobody waits for another: the same code holds all of them."""
    assert spinning(0, 1, 2).action.kind in ("probe", "rollback", "none")
