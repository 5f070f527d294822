"""A restart of one role: what is restarted, where, and when the whole job is in its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from analyzers.model.verdict import Action, Culprit, Root, Verdict
from analyzers.remediation.plan import Costs, Plan, Situation, choose_plan
from analyzers.remediation.role_restart import (
    PastRestart,
    RoleFacts,
    RoleInstance,
    explain_whole_job,
    reserve_of,
    role_options,
)
from service.packaged_knowledge import load, role_rules_of

COSTS = Costs.from_knowledge(load())
RULES = role_rules_of(load())
TRAINERS, ROLLOUTS = ("t0", "t1"), ("r0", "r1", "r2", "r3")


def instance(role: str, name: str, node: str, **more: object) -> RoleInstance:
    """Return an instance that has done some steps."""
    return RoleInstance(role=role, instance=name, node=node, epoch=5, **({"weights": 40, "first_weights": 0} | more))  # type: ignore[arg-type]


FACTS = RoleFacts(
    instances=(
        *(instance("trainer", node[1], node) for node in TRAINERS),
        *(instance("rollout", node[1], node) for node in ROLLOUTS),
        instance("reward", "0", "c0", weights=None, first_weights=None),
        instance("controller", "0", "c0", weights=None, first_weights=None),
    ),
    rules=RULES,
)


def on(facts: RoleFacts = FACTS, **more: object) -> Situation:
    """Return the job on its seven nodes."""
    return Situation(nodes=(*TRAINERS, *ROLLOUTS, "c0"), instances=facts, **more)  # type: ignore[arg-type]


def judged(
    role: str, rank: int, node: str, kind: str = "reattempt", probability: float = 0.9, cause: str = "machine"
) -> Verdict:
    """Return a verdict that names one rank of a role by its node."""
    one = Culprit(root="r1", kind="node", id=node, ranks=(rank,), role=role, probability=probability)
    named = (node,) if kind in ("evict", "probe") else ()
    return Verdict(
        symptom="crash", cause=cause, abstained=False, culprits=(one,), suspects=(one,),
        roots=(Root(root="r1", cause=cause, fault_class="process_killed"),), action=Action(kind=kind, nodes=named),
    )  # fmt: skip


def plan(verdict: Verdict, facts: RoleFacts = FACTS, **more: object) -> Plan:
    """Return what is planned."""
    return choose_plan(verdict, on(facts, **more), COSTS)


def test_a_lost_rollout_is_restarted_alone_on_its_machine() -> None:
    """It costs its own GPUs, no lost work, and less than a restart of the job, which is shown beside it."""
    chosen = plan(judged("rollout", 2, "r2"))

    assert (chosen.kind, chosen.role, chosen.nodes) == ("restart_role", "rollout", ())
    assert chosen.restart is not None
    assert (chosen.restart.instance, chosen.restart.epochs, chosen.restart.nodes) == ("2", {"2": 5}, ("r2",))
    assert (chosen.restart.leaves, chosen.restart.step, chosen.restart.number) == ((), 40, 1)
    whole = next(one for one in chosen.alternatives if one.option.kind == "reattempt")
    assert chosen.parts["restart"] < whole.parts["restart"] / 6
    assert "restarting rollout 2" in chosen.why


def test_a_restart_says_how_many_machines_go_on() -> None:
    """Of six machines of trainers and rollouts: all rollouts', all but its own, or all but the one that it takes."""

    def at_work(verdict: Verdict, facts: RoleFacts = FACTS) -> list[float | None]:
        return [one.restart.at_work for one in role_options(verdict, facts)]

    assert at_work(judged("trainer", 1, "t1")) == [pytest.approx(4 / 6)]
    assert at_work(judged("rollout", 2, "r2")) == [pytest.approx(3 / 6)]
    assert at_work(judged("reward", 0, "c0")) == [pytest.approx(4 / 6)]
    assert at_work(judged("trainer", 1, "t1", "evict")) == [pytest.approx(4 / 6), pytest.approx(3 / 6)]
    here = replace(FACTS, instances=tuple(replace(one, node="n0") for one in FACTS.instances))
    assert at_work(judged("trainer", 1, "n0"), here) == [pytest.approx(4 / 6)]  # on one machine by its instances
    unknown = replace(FACTS, instances=tuple(replace(one, node=None) for one in FACTS.instances))
    assert at_work(judged("trainer", 1, "t1"), unknown) == [pytest.approx(4 / 6)]
    alone = replace(FACTS, instances=tuple(one for one in FACTS.instances if one.role == "reward"))
    assert at_work(judged("reward", 0, "c0"), alone) == [None]


def test_the_ranks_of_a_trainer_are_restarted_together() -> None:
    """They are one process group; the rollouts are not among them."""
    chosen = plan(judged("trainer", 1, "t1"))

    assert chosen.restart is not None
    assert (chosen.role, chosen.restart.instance, chosen.restart.epochs) == ("trainer", None, {"0": 5, "1": 5})


@pytest.mark.parametrize(
    ("trainer", "rollout", "controller"),
    [
        ("policy", "generator", "orchestrator"),  # NeMo-RL
        ("actor_rollout", "vllm", "agent_loop_worker"),  # verl: its trainer generates too
        ("megatron_actor", "rollout_engine", "rollout_manager"),  # slime
        ("learners", "sglang-engines", "main_controller"),
    ],
)
def test_roles_are_known_by_the_names_that_frameworks_give_them(trainer: str, rollout: str, controller: str) -> None:
    """What a name means is that of role_rules.toml: groups, what generates and what manages are not called alike everywhere."""
    names = {"trainer": trainer, "rollout": rollout, "controller": controller}
    facts = replace(FACTS, instances=tuple(replace(one, role=names.get(one.role, one.role)) for one in FACTS.instances))
    here, away = role_options(judged(trainer, 1, "t1", "evict"), facts)
    assert (here.restart.epochs, here.restart.at_work) == ({"0": 5, "1": 5}, pytest.approx(4 / 6))
    assert (away.restart.onto, away.restart.gives, away.restart.gives_role) == ({"t1": "r0"}, ("0",), rollout)
    assert away.restart.at_work == pytest.approx(3 / 6)
    assert plan(judged(rollout, 2, "r2"), facts).kind == "restart_role"
    assert plan(judged(controller, 0, "c0"), facts).kind == "reattempt"


def test_a_verdict_that_asks_for_a_role_gets_it() -> None:
    """By role and instance, registered or not; an instance that is not registered beside others is not replaced by them."""
    asks = replace(judged("rollout", 2, "r2"), action=Action(kind="restart_role", role="rollout", instance="3"))
    chosen, unknown = plan(asks), plan(asks, RoleFacts())

    assert chosen.restart is not None
    assert unknown.restart is not None
    assert (chosen.kind, chosen.restart.epochs) == ("restart_role", {"3": 5})
    assert (unknown.kind, unknown.restart.instance, unknown.restart.epochs) == ("restart_role", "3", {})
    other = replace(asks, action=Action(kind="restart_role", role="rollout", instance="9"))
    assert plan(other).kind == "restart_job"


@pytest.mark.parametrize("kind", ["probe", "none", "rollback"])
def test_what_asks_for_no_restart_restarts_no_role(kind: str) -> None:
    """Checks, nothing, and older code are not made bolder by a directory of roles."""
    verdict = judged("rollout", 2, "r2", kind=kind, probability=0.5)
    assert plan(verdict).kind != "restart_role"
    assert plan(replace(verdict, abstained=True)).kind == "none"


def test_culprits_of_two_roles_are_no_matter_of_one() -> None:
    """The whole job is restarted, as without a directory."""
    verdict = judged("rollout", 2, "r2")
    other = Culprit(root="r2", kind="node", id="t0", ranks=(0,), role="trainer", probability=0.9)
    assert plan(replace(verdict, culprits=(*verdict.culprits, other))).kind == "reattempt"
    nameless = replace(verdict.culprits[0], role=None)
    assert plan(replace(verdict, culprits=(nameless,))).kind == "reattempt"


# Where.


def test_a_trainer_leaves_a_bad_machine_for_a_rollouts() -> None:
    """Without a standby a rollout ends, whose machine the trainer gets; the machine that is at fault is named."""
    verdict = judged("trainer", 1, "t1", kind="evict", probability=0.97)
    chosen, scarce = plan(verdict), plan(verdict, spares=0)

    assert chosen.restart is not None
    assert (chosen.kind, chosen.restart.leaves) == ("restart_role", ("t1",))
    assert (chosen.restart.onto, chosen.restart.gives) == ({"t1": "r0"}, ("0",))
    assert "short" not in chosen.parts
    assert scarce.restart == chosen.restart
    assert "short" in scarce.parts  # a rollout's machine is missing until another comes


def test_a_standby_of_the_same_kind_comes_first() -> None:
    """Of two standbys the one with the same hardware in the same data centre."""
    kinds = dict.fromkeys((*TRAINERS, *ROLLOUTS, "s1"), "h20 dc-a") | {"s0": "h20 dc-b"}
    chosen = plan(
        judged("trainer", 1, "t1", kind="evict", probability=0.97), replace(FACTS, standbys=("s0", "s1"), kinds=kinds)
    )

    assert chosen.restart is not None
    assert (chosen.restart.onto, chosen.restart.gives) == ({"t1": "s1"}, ())
    assert "short" not in chosen.parts


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(replace(FACTS, kinds=dict.fromkeys(TRAINERS, "h200")), id="other_hardware"),
        pytest.param(replace(FACTS, instances=(*FACTS.instances[:3], *FACTS.instances[-2:])), id="the_last_rollout"),
        pytest.param(
            replace(FACTS, instances=(*FACTS.instances, *(instance("reference", node[1], node) for node in ROLLOUTS))),
            id="shared_machines",
        ),
    ],
)
def test_no_rollout_is_given_that_does_not_fit(facts: RoleFacts) -> None:
    """Other hardware, the last rollout, and a machine on which another role runs stay: the trainer goes nowhere."""
    chosen = plan(judged("trainer", 1, "t1", kind="evict", probability=0.97), facts, spares=1)

    assert chosen.restart is None or not chosen.restart.leaves
    moved = [one for one in chosen.alternatives if one.option.restart is not None and one.option.restart.leaves]
    assert ["no rollout to spare" in one.barred for one in moved] == [True]


def test_the_reserve_has_the_machines_of_rollouts_that_serve_alone() -> None:
    """A rollout that is lost gives nothing; one on a trainer's machine (a hybrid) is the trainer's."""
    lost = replace(FACTS.instances[2], state="lost")
    hybrid = instance("rollout", "4", "t0")
    facts = replace(FACTS, instances=(*FACTS.instances[:2], lost, *FACTS.instances[3:], hybrid))
    assert [node for node, _ in reserve_of("t1", facts)] == ["r1", "r2", "r3"]


def test_the_plan_keeps_a_reserve_for_trainers() -> None:
    """Of the largest parallel size: a reward goes to no machine of it, a trainer may, and the plan says what is missing then."""

    def moved(role: str, rank: int, node: str, **more: object) -> tuple[dict[str, str], int]:
        facts = replace(FACTS, standbys=("s0",), **more)  # type: ignore[arg-type]
        (one,) = [one.restart for one in role_options(judged(role, rank, node, "evict"), facts) if one.restart.leaves]
        return one.onto, one.reserve_short

    # One standby and four rollouts: five machines.
    assert moved("reward", 0, "c0", reserve=4) == ({"c0": "s0"}, 0)
    assert moved("reward", 0, "c0", reserve=5) == ({}, 0)
    assert moved("reward", 0, "c0", reserve=5, kinds={"s0": "other", "c0": "other"}) == ({"c0": "s0"}, 1)
    assert moved("rollout", 2, "r2", reserve=5) == ({"r2": "s0"}, 1)  # its new machine is one of them
    assert moved("trainer", 1, "t1", reserve=4) == ({"t1": "s0"}, 0)
    assert moved("trainer", 1, "t1", reserve=5) == ({"t1": "s0"}, 1)
    assert moved("trainer", 1, "t1", reserve=0) == ({"t1": "s0"}, 0)
    chosen = plan(judged("trainer", 1, "t1", "evict", 0.97), replace(FACTS, reserve=8))
    assert "on r0, where rollout 0 ends, with 5 machines too few in reserve for trainers" in chosen.why


# When the whole job.


@pytest.mark.parametrize(
    ("role", "facts", "why"),
    [
        ("controller", FACTS, "manages the job"),
        ("trainer", replace(FACTS, past=(PastRestart(role="trainer", step=9, outcome="failed"),) * 2), "2 times in a row"),
        ("trainer", replace(FACTS, past=(PastRestart(role="trainer", step=40, outcome="cured"),)), "second time"),
        ("rollout", replace(FACTS, past=(PastRestart(role="rollout", step=40, instances=("0",)),)), "rollout 0 fails"),
        ("trainer", replace(FACTS, instances=tuple(replace(one, first_weights=40) for one in FACTS.instances[:2])), "first step"),
    ],
)  # fmt: skip
def test_a_guard_has_the_whole_job_restarted(role: str, facts: RoleFacts, why: str) -> None:
    """The restart of the role is shown as barred, and the plan says by what."""
    node = {"controller": "c0", "trainer": "t0", "rollout": "r0"}[role]
    chosen = plan(judged(role, 0, node), facts)

    assert chosen.kind == "reattempt"
    assert why in chosen.why
    assert [why in one.barred for one in chosen.alternatives if one.option.kind == "restart_role"] == [True]


@pytest.mark.parametrize(
    "past",
    [
        (PastRestart(role="trainer", step=40, outcome="failed"),),  # one failure is allowed, and no failure of the step
        (PastRestart(role="trainer", step=9, outcome="failed"), PastRestart(role="trainer", step=12, outcome="cured")) * 2,
        (PastRestart(role="rollout", step=40, outcome="failed"),) * 2,  # another role
        (PastRestart(role="trainer", step=39, outcome="cured"),),  # another step
    ],
)  # fmt: skip
def test_what_is_no_guard_bars_nothing(past: tuple[PastRestart, ...]) -> None:
    """Cured restarts, however many, other roles and other steps leave the trainer's restart as it is."""
    assert explain_whole_job("trainer", FACTS.of("trainer"), replace(FACTS, past=past)) == ""


def test_a_trainer_that_has_resumed_and_done_a_step_may_be_restarted_again() -> None:
    """The first step after its own resume counts, not that of the attempt."""
    resumed = tuple(replace(one, first_weights=39) for one in FACTS.instances[:2])
    facts = replace(FACTS, instances=(*resumed, *FACTS.instances[2:]))
    assert explain_whole_job("trainer", resumed, facts) == ""
    early = replace(facts, instances=tuple(replace(one, first_weights=40) for one in facts.instances))
    assert "first step" in explain_whole_job("rollout", early.of("rollout"), early)


def lying(role: str, version: int, first: int) -> RoleFacts:
    """Return the job with one instance of a role that states a version."""
    liar = next(one for one in FACTS.instances if one.role == role)
    changed = replace(liar, weights=version, first_weights=first)
    return replace(FACTS, instances=tuple(changed if one is liar else one for one in FACTS.instances))


@pytest.mark.parametrize("role", ["trainer", "rollout", "controller"])
@pytest.mark.parametrize(("version", "first"), [(10**12, 10**12), (10**12, 0), (2_000, 0), (0, 0), (41, 10**12)])
def test_one_instance_that_states_an_absurd_version_changes_no_step(role: str, version: int, first: int) -> None:
    """Neither far beyond the others nor a number that never grew: the step is the trainers', and no guard bites for it."""
    facts = lying(role, version, first)
    assert facts.step in (40, 41)  # of two trainers that both grow the lower
    for one in ("trainer", "rollout", "reward"):
        assert explain_whole_job(one, facts.of(one), facts) == ""


def test_a_lone_trainer_is_held_against_its_rollouts() -> None:
    """They follow it by some versions, and by no thousands; the word of one that no one can be held against is taken."""
    one, others = FACTS.instances[0], FACTS.instances[2:]
    steps = {
        version: replace(FACTS, instances=(replace(one, weights=version), *others)).step for version in (44, 10**12)
    }
    assert steps == {44: 44, 10**12: 40}
    assert replace(FACTS, instances=(replace(one, weights=10**12),)).step == 10**12
    resumed = tuple(replace(other, weights=0) for other in others)
    assert replace(FACTS, instances=(replace(one, weights=5_000, first_weights=5_000), *resumed)).step == 5_000


def in_one_step(*restarts: tuple[str, str]) -> RoleFacts:
    """Return the job after these restarts, which came back within its present step."""
    past = (PastRestart(role=role, step=40, outcome="cured", instances=(name,)) for role, name in restarts)
    return replace(FACTS, past=tuple(past))


def bar_of(facts: RoleFacts, role: str, *names: str) -> str:
    """Return why these instances are not restarted alone."""
    return explain_whole_job(role, [one for one in facts.of(role) if one.instance in names], facts)


def test_another_rollout_in_the_same_step_is_restarted_alone() -> None:
    """Each fails for itself. The same one again, the trainers as one group, and a step that ends one after another do not."""
    first = in_one_step(("rollout", "2"))
    assert (bar_of(first, "rollout", "1"), bar_of(first, "trainer", "0", "1")) == ("", "")
    assert "rollout 2 fails for the second time after step 40" in bar_of(first, "rollout", "2", "3")
    group = in_one_step(("trainer", "0"))
    assert "trainer fails for the second time" in bar_of(group, "trainer", "1")
    assert bar_of(group, "rollout", "1") == ""
    several = in_one_step(("rollout", "2"), ("rollout", "0"), ("trainer", "0"))
    assert "3 restarts were needed after step 40" in bar_of(several, "rollout", "1")
    assert bar_of(replace(several, past=several.past[1:]), "rollout", "1") == ""
    assert bar_of(replace(several, past=tuple(replace(one, step=39) for one in several.past)), "rollout", "1") == ""


def test_an_instance_that_comes_back_for_ever_ends_the_restarts_without_steps_too() -> None:
    """No instance says how many steps are done: the third restart of one within an hour is its last, and not that of others."""

    def facts(seconds_ago: float, times: int = 3) -> RoleFacts:
        past = PastRestart(role="rollout", outcome="cured", instances=("2",), seconds_ago=seconds_ago)
        unknown = tuple(replace(one, weights=None, first_weights=None) for one in FACTS.instances)
        return replace(FACTS, instances=unknown, past=(past,) * times)

    def bar(facts: RoleFacts, name: str) -> str:
        return explain_whole_job("rollout", [one for one in facts.of("rollout") if one.instance == name], facts)

    assert "3 times within an hour" in bar(facts(600.0), "2")
    assert [bar(facts(600.0), "3"), bar(facts(600.0, 2), "2"), bar(facts(4_000.0), "2")] == ["", "", ""]
    assert not bar(replace(facts(600.0), instances=FACTS.instances), "2")  # by the steps it gets on


def restarts_until_it_ends(failing: dict[int, int], *, guarded: bool) -> tuple[int, int]:
    """Run a job of 20 steps whose trainer fails so often in each step; return its role restarts and whole restarts.

    A whole restart goes back to other code, or calls a person: the fault is over. 50 restarts are given up.
    """
    past: list[PastRestart] = []
    left, step, first, whole = dict(failing), 0, 0, 0
    while step < 20 and len(past) < 50:
        if not left.get(step):
            step += 1
            continue
        left[step] -= 1
        chosen = [instance("trainer", "0", "t0", weights=step, first_weights=first)]
        facts = RoleFacts(instances=tuple(chosen), past=tuple(past), rules=RULES)
        if guarded and explain_whole_job("trainer", chosen, facts):
            whole, left, past, first = whole + 1, {}, [], step
            continue
        past.append(PastRestart(role="trainer", step=step, outcome="cured"))
        first = step
    return len(past), whole


@given(st.sets(st.integers(1, 19), min_size=1, max_size=9), st.integers(2, 19))
def test_the_guards_end_what_repeats_and_leave_the_rest(steps: set[int], again: int) -> None:
    """Faults that do not repeat cost one role restart each. One that repeats costs one, where without guards it never ends."""
    apart = {step for step in steps if step - 1 not in steps}
    assert restarts_until_it_ends(dict.fromkeys(apart, 1), guarded=True) == (len(apart), 0)
    repeating = {again: 1_000}
    assert restarts_until_it_ends(repeating, guarded=True) == (0, 1)
    assert restarts_until_it_ends(repeating, guarded=False) == (50, 0)


def test_an_option_says_what_it_is_the_next_of() -> None:
    """So that the same restart, asked for again, is another remediation."""
    facts = replace(FACTS, past=(PastRestart(role="rollout", step=3, outcome="cured"),))
    (option,) = role_options(judged("rollout", 2, "r2"), facts)
    assert option.restart.number == 2
