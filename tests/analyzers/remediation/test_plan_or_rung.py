"""Plan or rung: evidence comes first, and what was done in vain is the ladder's; what checks find is weighed and priced."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from analyzers.knowledge.convictions import weights
from analyzers.model.verdict import Action, Culprit, Root, Verdict
from analyzers.remediation import checks
from analyzers.remediation.dual_phase import plan_replay as replay_of
from analyzers.remediation.ladder import (
    JobAttempt,
    JobHistory,
    Rung,
    TriedRung,
    choose_side,
    explain_refusal,
    next_rung,
    price_rung,
)
from analyzers.remediation.ladder.trouble import Trouble
from analyzers.remediation.plan import Costs, Plan, Situation
from service.packaged_knowledge import load
from tests.support.remediation_fleet import plan

WEIGHTS = weights(load())
COSTS = Costs.from_knowledge(load())
AT = 1_000_000.0
NODES = tuple(f"n{number}" for number in range(8))
HANG = JobAttempt(number=2, symptom="hang", cause="machine", fault_class="never_entered")
EVICTED = TriedRung(kind="evict", attempt=1, nodes=("n1",))
BEFORE = replace(HANG, number=1, proven=("n1",))
VERDICT = Verdict(
    symptom="hang", cause="machine", abstained=False, action=Action(kind="probe", nodes=("n2",)),
    roots=(Root(root="r1", cause="machine", fault_class="never_entered"),),
    culprits=(Culprit(root="r1", kind="node", id="n2", probability=0.6),),
)  # fmt: skip


def side(plan: Plan, *attempts: JobAttempt, taken: tuple[TriedRung, ...] = ()) -> str:
    """Return which of plan and rung decides."""
    history = JobHistory(at=AT, attempts=attempts, taken=taken, nodes=NODES)
    return choose_side(plan, next_rung(history, WEIGHTS.ladder), Trouble.from_history(history, WEIGHTS.ladder))


def evicts(*nodes: str) -> Plan:
    """Return a plan that evicts."""
    return Plan(kind="evict", nodes=nodes)


def test_a_first_eviction_is_the_plans() -> None:
    """Proof against a node, and nothing before it: the plan, also where it takes fewer nodes than are proven."""
    proven = replace(HANG, proven=("n1", "n2"))

    assert side(evicts("n1", "n2"), proven) == "plan"
    assert side(evicts("n1"), proven) == "plan"


def test_a_plan_without_proof_enough_for_the_verdict_is_the_plans_too() -> None:
    """The plan evicts whom the verdict only wants looked at: once, and not after an eviction in vain."""
    looked = replace(HANG, suspects=("n2",))

    assert side(evicts("n2"), looked) == "plan"
    assert side(evicts("n2"), BEFORE, looked, taken=(EVICTED,)) == "rung"
    assert (
        side(evicts("n2"), looked, taken=(TriedRung(kind="evict", attempt=2, nodes=("n2",), outcome="refused"),))
        == "rung"
    )


def test_an_eviction_in_vain_makes_the_next_one_the_ladders() -> None:
    """Checks come between; after them the plan may evict whom the next failure proves again."""
    third = replace(HANG, number=3, proven=("n2",))
    passed = TriedRung(kind="probe", attempt=2, nodes=("n2",))

    assert side(evicts("n2"), BEFORE, replace(HANG, proven=("n2",)), taken=(EVICTED,)) == "rung"
    assert side(evicts("n2"), BEFORE, replace(HANG, proven=("n2",)), third, taken=(EVICTED, passed)) == "plan"


def test_what_checks_found_is_the_ladders() -> None:
    """A node that is proven and failed its checks leaves because it failed them."""
    failed = TriedRung(kind="probe", attempt=2, nodes=("n2",), found=("n2",))

    assert side(evicts("n2"), BEFORE, replace(HANG, proven=("n2",)), taken=(EVICTED, failed)) == "rung"


@pytest.mark.parametrize("kind", ["drain_after_job", "reset_gpu", "reboot_node"])
def test_a_device_is_reset_once(kind: str) -> None:
    """The first time it is the plan's, whatever else was tried; the same node again is the ladder's."""
    event = replace(HANG, symptom="hardware", suspects=("n3",))
    reset = TriedRung(kind="reattempt", attempt=1, nodes=("n3",))

    assert side(Plan(kind=kind, nodes=("n3",)), event) == "plan"
    assert side(Plan(kind=kind, nodes=("n3",)), BEFORE, event, taken=(EVICTED,)) == "plan"
    assert side(Plan(kind=kind, nodes=("n3",)), BEFORE, event, taken=(reset,)) == "rung"


@pytest.mark.parametrize("kind", ["reattempt", "restart_job"])
def test_a_restart_is_tried_once_a_symptom(kind: str) -> None:
    """It is the plan's until it was done for this symptom, or a machine has left in vain."""
    done = TriedRung(kind="reattempt", attempt=1)

    assert side(Plan(kind=kind), HANG) == "plan"
    assert side(Plan(kind=kind), replace(BEFORE, symptom="crash"), HANG, taken=(done,)) == "plan"
    assert side(Plan(kind=kind), BEFORE, HANG, taken=(done,)) == "rung"
    assert side(Plan(kind=kind), BEFORE, HANG, taken=(EVICTED,)) == "rung"


def test_a_role_is_restarted_as_often_as_its_own_guards_let_it() -> None:
    """A restart of the whole job says nothing about it; after an eviction in vain the ladder decides."""
    done, plan = TriedRung(kind="reattempt", attempt=1), Plan(kind="restart_role", role="rollout")

    assert side(plan, BEFORE, HANG, taken=(done,)) == "plan"
    assert side(plan, BEFORE, HANG, taken=(EVICTED,)) == "rung"


def test_code_is_rolled_back_by_the_plan_once_and_for_all_ranks_by_the_ladder() -> None:
    """The ladder knows which code ran well; a second rollback is never the plan's."""
    everywhere = replace(HANG, cause="code", fault_class="exception_all_ranks")
    code = replace(HANG, cause="code", fault_class="desync")

    assert side(Plan(kind="rollback"), code) == "plan"
    assert side(Plan(kind="rollback"), everywhere) == "rung"
    assert (
        side(Plan(kind="rollback"), BEFORE, code, taken=(TriedRung(kind="rollback", attempt=1, code_version="a"),))
        == "rung"
    )


def test_checks_under_way_are_waited_for() -> None:
    """Whatever a newer verdict asks for, also for the first time, waits until they are over."""
    pending = TriedRung(kind="probe", attempt=2, nodes=("n5",), outcome="pending")
    plans = (evicts("n2"), Plan(kind="reset_gpu", nodes=("n2",)), Plan(kind="reattempt"))

    assert [side(plan, replace(HANG, suspects=("n2",)), taken=(pending,)) for plan in plans] == ["rung"] * 3


def test_nothing_is_the_ladders_but_not_what_was_too_dear() -> None:
    """Where nobody is named the rung decides; where the plan has found an eviction too dear the ladder does not insist."""
    assert side(Plan(), HANG) == "rung"
    assert side(Plan(), replace(HANG, symptom="slow", proven=("n2",))) == "neither"
    assert side(Plan(), replace(HANG, cause="none")) == "plan"
    assert side(evicts("n1"), replace(HANG, cause="network", proven=("n1",))) == "rung"


def test_who_refused_decides_about_that_attempt_only() -> None:
    """A refusal of this attempt is heard; one of an earlier attempt, and checks that could not be made, are not."""
    refused = TriedRung(kind="reattempt", attempt=2, outcome="refused")

    def said(taken: TriedRung) -> str | None:
        trouble = Trouble.from_history(JobHistory(at=AT, attempts=(BEFORE, HANG), taken=(taken,)), WEIGHTS.ladder)
        assert trouble is not None
        return explain_refusal(trouble)

    assert "reattempt of attempt 2" in (said(refused) or "")
    assert said(replace(refused, attempt=1)) is None
    assert said(replace(refused, kind="probe")) is None


def price(rung: Rung, *taken: TriedRung, known: Situation | None = None) -> Plan:
    """Return what a rung comes to as a plan."""
    trouble = Trouble.from_history(JobHistory(at=AT, attempts=(HANG,), taken=taken, nodes=NODES), WEIGHTS.ladder)
    assert trouble is not None
    return price_rung(rung, trouble, VERDICT, Plan(), known or Situation(nodes=NODES), COSTS, WEIGHTS)


def found(node: str, kind: Any = "probe") -> TriedRung:
    """Return checks of all nodes that one of them failed."""
    return TriedRung(kind=kind, attempt=2, nodes=NODES, found=(node,))


def test_a_failed_check_is_weighed_by_what_was_known_before() -> None:
    """Named with 0.6 before it, a node that fails is almost surely faulty; one that nobody suspected less; a replay says more."""
    out = Rung(kind="evict", nodes=("n2",), why="n2 failed the checks")
    other = replace(out, nodes=("n5",))

    named, unsuspected, replayed = (
        price(out, found("n2")),
        price(other, found("n5")),
        price(other, found("n5", "replay")),
    )

    assert named.probability == pytest.approx(0.99)
    assert unsuspected.probability == pytest.approx(10 / 11, abs=1e-3)  # 1 in 8 before, seventy times as likely after
    assert replayed.probability == pytest.approx(0.99)
    assert "n2 failed the checks; expected to lose" in named.why


def test_a_failed_check_counts_once() -> None:
    """What is remembered of the node has the same check in it: it does not make the node twice as suspect."""
    out = Rung(kind="evict", nodes=("n5",), why="n5 failed the checks")
    remembers = Situation(nodes=NODES, remembered={"n5": 4.0})

    assert price(out, found("n5"), known=remembers) == price(out, found("n5"))


def test_in_a_large_job_one_failed_check_is_doubtful() -> None:
    """Of 4,096 healthy nodes forty fail a check: who failed it and was not suspected is evicted by a person, not by a rule."""
    trouble = Trouble.from_history(
        JobHistory(at=AT, attempts=(HANG,), taken=(found("n5"),), nodes=tuple(map(str, range(4_096)))), WEIGHTS.ladder
    )
    assert trouble is not None
    out = Rung(kind="evict", nodes=("n5",), why="it failed")

    assert price_rung(out, trouble, VERDICT, Plan(), Situation(), COSTS, WEIGHTS).probability < 0.35


def test_an_eviction_that_is_barred_is_none() -> None:
    """The job needs all its nodes, or a shard its last holder: what checks found does not overrule that."""
    out = Rung(kind="evict", nodes=("n2",), why="n2 failed the checks")
    needed = Situation(nodes=NODES, minimum_nodes=8)
    holds = Situation(nodes=NODES, holders={"n2": ()})

    assert price(out, found("n2"), known=needed).kind == "none"
    assert "the job needs 8" in price(out, found("n2"), known=needed).why
    assert "last holder" in price(out, found("n2"), known=holds).why


def test_a_rung_counts_the_jobs_of_others() -> None:
    """Who else runs on the node is in the price, as in the plan's."""
    out = Rung(kind="evict", nodes=("n2",), why="n2 failed the checks")
    shared = Situation(nodes=NODES, tenants={"n2": ("other",)}, tenant_gpus={"other": 64})

    assert price(out, found("n2"), known=shared).priced_tenants == ("other",)


def test_a_replay_names_all_its_nodes_and_costs_nothing() -> None:
    """Holds on any of them keep it back, and there is no loss to compare."""
    rung = Rung(kind="replay", replay=replay_of(NODES, 1, 8), why="nothing explains it")
    reported = price(rung)

    assert (reported.kind, reported.nodes, reported.expected_loss_gpu_hours) == ("replay", tuple(sorted(NODES)), None)


REPLAY = replace(plan(), kind="replay", status="done", nodes=NODES, replay=replay_of(NODES, 1, 8))
PROBE = replace(plan(), kind="probe", status="done", nodes=("n1", "n2"))


@given(st.integers(0, 7))
def test_a_replay_finds_the_machine_in_both_bad_groups(faulty: int) -> None:
    """Whichever of eight machines computes wrongly, the groups that it is in name it, and only it."""
    assert REPLAY.replay is not None
    groups = (*REPLAY.replay.horizontal, *REPLAY.replay.vertical)
    bad = [list(reversed(group.nodes)) for group in groups if NODES[faulty] in group.nodes]

    assert checks.find_failed_nodes(replace(REPLAY, did={"bad": bad})) == (NODES[faulty],)
    assert checks.explain_problem(REPLAY, {"bad": bad}) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(NODES),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*NODES, "bad"]), inner),
    max_leaves=8,
)


@pytest.mark.system
@given(st.dictionaries(st.sampled_from([*NODES, "bad"]), JSON), st.sampled_from([PROBE, REPLAY]))
def test_whatever_is_said_of_checks_hurts_nobody(did: dict[str, Any], one: Any) -> None:
    """Any JSON is either refused with a sentence, or names only nodes that were to be looked at."""
    why = checks.explain_problem(one, did)

    assert set(checks.find_failed_nodes(replace(one, did=did))) <= set(one.nodes)
    assert why is None or why.isprintable()
    if why is not None:
        assert checks.find_failed_nodes(replace(one, did=did)) == ()


def test_small_groups_count_in_both_phases() -> None:
    """Where a group is one node, the node is its group of either phase: naming it once names the machine."""
    two = replace(REPLAY, nodes=("n0", "n1"), replay=replay_of(("n0", "n1"), 1, 2))

    assert checks.find_failed_nodes(replace(two, did={"bad": [["n1"]]})) == ("n1",)
    assert checks.find_failed_nodes(replace(two, did={"bad": []})) == ()
