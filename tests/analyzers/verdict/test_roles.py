"""Roles that count their ranks from 0 each: six processes stay six, and the stopped one alone is named."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from analyzers.knowledge import Knowledge
from analyzers.model.topology import infer
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.verdict import roles
from analyzers.verdict.judge import judge
from collectors.records import (
    DIRECTORY,
    Frame,
    KernelEvent,
    LogEvent,
    ProcessState,
    Record,
    RoleState,
    StackDump,
    Thread,
)
from collectors.records.identity import with_role
from service.packaged_knowledge import load
from tests.support.role_scenes import JOB, SEATS, START, looks, node_of, pid_of, placements


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    """The packaged tables."""
    return load(None)


def judged(records: list[Record], knowledge: Knowledge) -> Verdict:
    """Judge as the engine does, after two rounds."""
    window = Window.build(records, live=True)
    return judge(window, infer(window), knowledge, rounds=2)


def test_each_role_has_its_own_window_and_topology() -> None:
    """Two trainers and four rollouts are six processes, in two numberings."""
    window = Window.build([*placements(), *looks()], live=True)
    shape = infer(window)

    assert {role: shape.parts[role].ranks for role in shape.parts} == {"trainer": (0, 1), "rollout": (0, 1, 2, 3)}
    assert {role: shape.parts[role].world_size for role in shape.parts} == {"trainer": 2, "rollout": 4}


def test_roles_with_numbers_of_their_own_are_one_window() -> None:
    """Where no number is shared the job has one numbering, whatever roles there are."""
    seats = [("trainer", 0), ("trainer", 1), ("rollout", 2), ("rollout", 3)]
    window = Window.build(placements(seats=seats), live=True)

    assert not window.parts
    assert infer(window).ranks == (0, 1, 2, 3)
    assert infer(window).roles == {0: "trainer", 1: "trainer", 2: "rollout", 3: "rollout"}


@pytest.mark.parametrize("nodes", [1, 6])
@pytest.mark.parametrize("stopped", SEATS)
def test_the_stopped_process_alone_is_named(stopped: tuple[str, int], nodes: int, knowledge: Knowledge) -> None:
    """A stopped process of each role is named by role and number, and no other process is."""
    verdict = judged([*placements(nodes), *looks(stopped, nodes)], knowledge)

    assert [(one.role, one.ranks) for one in verdict.culprits] == [(stopped[0], (stopped[1],))]
    assert verdict.culprits[0].id == node_of(*stopped, nodes)
    assert verdict.action.nodes == (node_of(*stopped, nodes),)
    assert verdict.coverage.roles == {"trainer": 2, "rollout": 4}
    assert f"{stopped[0]} rank {stopped[1]}" in " ".join(item.text for item in verdict.evidence)


def test_the_surest_culprit_of_two_roles_leads(knowledge: Knowledge) -> None:
    """A trainer is stopped, and ten seconds later a rollout fails: the action is the trainer's, whatever the roles are called."""
    failed = LogEvent(
        **JOB, role="rollout", rank=2, node=node_of("rollout", 2, 6), at=START + 70.0, received_at=START + 71.0,
        source="log", event="traceback", exception="RuntimeError", message="weight sync failed",
    )  # fmt: skip
    verdict = judged([*placements(6), *looks(("trainer", 0), 6), failed], knowledge)

    assert (verdict.symptom, verdict.culprits[0].role, verdict.culprits[0].ranks) == ("hang", "trainer", (0,))
    assert verdict.action.nodes == (node_of("trainer", 0, 6),)


def test_a_running_job_names_nobody(knowledge: Knowledge) -> None:
    """Rollouts that wait in a queue while trainers train are no fault."""
    verdict = judged([*placements(), *looks()], knowledge)

    assert not verdict.culprits


def test_a_rollout_that_generates_on_is_no_culprit(knowledge: Knowledge) -> None:
    """Three rollouts wait for work, the fourth generates a long sequence: a long tail, and no hang of a rank."""
    busy = (Frame("forward", "model.py"), Frame("decode", "engine.py"), Frame("generate", "rollout.py"))
    records = [
        msgspec.structs.replace(one, threads=(Thread(frames=busy, main=True, active=True),))
        if isinstance(one, StackDump) and (one.role, one.rank) == ("rollout", 2)
        else one
        for one in looks()
    ]

    assert not judged([*placements(), *records], knowledge).culprits


def test_a_record_without_a_role_is_told_by_its_process(knowledge: Knowledge) -> None:
    """A line that states pid or rank only belongs to the process that has it."""
    pid = pid_of("rollout", 3)
    lines: list[Record] = [
        LogEvent(**JOB, event="traceback", node="n0", pid=pid, exception="ValueError", message="bad", at=START + 41),
        LogEvent(**JOB, event="traceback", node="n0", rank=2, exception="KeyError", message="worse", at=START + 40),
    ]
    window = Window.build([*placements(), *looks(), *lines], live=True)

    of = {role: [one.exception for one in part.records_of(LogEvent)] for role, part in window.parts.items()}
    assert of == {"trainer": [], "rollout": ["KeyError", "ValueError"]}


def test_an_event_of_a_node_is_every_role_s_there(knowledge: Knowledge) -> None:
    """A node that two roles name for one thing is one root and one node to evict."""
    event = KernelEvent(
        event="xid", code=79, node="n0", pci="0000:9b:00", text="GPU has fallen off the bus", at=START + 35
    )
    verdict = judged([*placements(), *looks(), event], knowledge)

    assert {one.id for one in verdict.culprits} == {"n0"}
    assert len({one.root for one in verdict.culprits}) == 1
    assert verdict.action.nodes == ("n0",)


def test_who_leads_is_named_as_of_its_own_role_in_a_sentence_of_another() -> None:
    """A reason that another role's suspect is rejected for names a trainer, and no rank of the rollouts."""
    lead = SimpleNamespace(ranks={2})
    named = roles._named("trainer", lead)  # type: ignore[arg-type]
    assert with_role(f"{named} is shown by better evidence", "rollout") == "trainer 2 is shown by better evidence"
    assert with_role(roles._named("", lead), "rollout") == "a process without a role"  # type: ignore[arg-type]


def of_directory(pids: dict[str, int]) -> list[Record]:
    """Return what a directory says of rollouts: whose process each is."""
    return [
        RoleState(
            **JOB, source=DIRECTORY, role="rollout", instance=name, pid=pid, node="n0", epoch=1, state="serving",
            at=START + 30.0 + 10.0 * tick, renewed_at=START + 30.0, phase="generate", requests_running=1,
        )
        for name, pid in pids.items()
        for tick in range(3)
    ]  # fmt: skip


def test_a_stopped_process_of_an_instance_is_restarted_and_its_node_is_not_evicted(knowledge: Knowledge) -> None:
    """Instance b of the directory is rank 2; without a directory the node is evicted, as of any rank."""
    records = [*placements(), *looks(("rollout", 2))]
    known = of_directory({name: pid_of("rollout", rank) for rank, name in enumerate("dcba")})

    action = judged([*records, *known], knowledge).action
    assert (action.kind, action.role, action.instance, action.nodes) == ("restart_role", "rollout", "b", ())
    assert judged(records, knowledge).action.kind == "evict"


def test_a_killed_rollout_has_no_victims_among_the_others(knowledge: Knowledge) -> None:
    """They work each by themselves, and what they wait for is no question of its end."""
    end = ProcessState(
        **JOB, role="rollout", rank=2, node="n0", pid=pid_of("rollout", 2), at=START + 55.0, received_at=START + 56.0,
        boot_id="b", state="X", signal=9, source="process", started_at=START,
    )  # fmt: skip
    known = of_directory({str(rank): pid_of("rollout", rank) for rank in range(4)})
    verdict = judged([*placements(), *looks(), end, *known], knowledge)

    assert [one.instances for one in verdict.culprits] == [("2",)]
    assert verdict.victims.count == 0
    assert not [one for one in verdict.missing if "waiting" in one.what]
