"""The plan: what the verdict allows, at the least expected loss; never a shard, a minimum or an unnamed node."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from analyzers.model.verdict import Action, Culprit, Root, Verdict
from analyzers.remediation.plan import Costs, Plan, Situation, choose_plan, find_lost_shards
from service.packaged_knowledge import load

COSTS = Costs.from_knowledge(load())


def judged(
    *roots: Mapping[str, float],
    kind: str = "evict",
    named: tuple[str, ...] = (),
    cause: str = "machine",
    **more: object,
) -> Verdict:
    """A verdict whose roots have these suspects; every root is named by its most probable one."""
    fault_class = str(more.pop("fault_class", "never_entered"))
    known: dict[str, object] = {"symptom": "hang", "abstained": False, "cause": cause}
    suspects = [entry for number, root in enumerate(roots, 1) for entry in _entries(f"r{number}", root)]
    first = [next(entry for entry in suspects if entry.root == f"r{number}") for number in range(1, len(roots) + 1)]
    return Verdict(
        **(known | more),  # type: ignore[arg-type]
        roots=tuple(Root(root=entry.root, cause=cause, fault_class=fault_class) for entry in first),
        culprits=tuple(entry for entry in first if entry.kind != "unknown"),
        suspects=tuple(suspects),
        action=Action(kind=kind, nodes=named, why="because"),
    )


def _entries(label: str, root: Mapping[str, float]) -> list[Culprit]:
    ordered = sorted(root.items(), key=lambda pair: (-pair[1], pair[0]))
    entries = [Culprit(root=label, kind="node", id=node, probability=share) for node, share in ordered]
    return [*entries, Culprit(root=label, kind="unknown", id="unknown", probability=1 - sum(root.values()))]


def on(nodes: int, **more: object) -> Situation:
    """A job on as many nodes: n0, n1 and so on."""
    return Situation(nodes=tuple(f"n{i}" for i in range(nodes)), **more)  # type: ignore[arg-type]


def loss_of(plan: Plan, kind: str, *nodes: str) -> float | None:
    """What an alternative was expected to lose."""
    return next(
        one.expected_loss_gpu_hours for one in plan.alternatives if (one.option.kind, one.option.nodes) == (kind, nodes)
    )


# What the verdict's action allows.


@pytest.mark.parametrize("kind", ["probe", "none", "something_new"])
def test_what_is_only_looked_at_is_not_touched(kind: str) -> None:
    """An action that evicts nobody leads to a plan that does nothing, however sure the suspicion."""
    plan = choose_plan(judged({"n1": 0.99}, kind=kind, named=("n1",)), on(64), COSTS)
    assert (plan.kind, plan.nodes, plan.alternatives) == ("none", (), ())
    assert kind in plan.why


def test_who_abstains_plans_nothing() -> None:
    """A verdict that abstains leads to nothing, whatever its action says."""
    plan = choose_plan(judged({"n1": 0.99}, named=("n1",), abstained=True), on(64), COSTS)
    assert (plan.kind, plan.nodes) == ("none", ())


def test_one_faulty_node_is_evicted_alone() -> None:
    """The named node of a large job goes, its parallel group stays, and the sentence has the numbers of both choices."""
    groups = {"pp0": ("n1", "n2", "n3"), "all": tuple(f"n{i}" for i in range(64))}
    plan = choose_plan(judged({"n1": 0.95}, named=("n1",)), on(64, groups=groups), COSTS)
    assert (plan.kind, plan.nodes, plan.probability) == ("evict", ("n1",), 0.95)
    assert plan.expected_loss_gpu_hours == pytest.approx(sum(plan.parts.values()))
    assert f"{plan.expected_loss_gpu_hours:,.1f} GPU hours" in plan.why
    assert f"{loss_of(plan, 'reattempt'):,.1f}" in plan.why
    no_gpus = choose_plan(judged({"n1": 0.95}, named=("n1",)), on(64, groups=groups, has_gpus=False), COSTS)
    assert f"lose {(plan.expected_loss_gpu_hours or 0.0) / 8:,.1f} node hours" in no_gpus.why
    group = next(one for one in plan.alternatives if one.option.group == "pp0")
    assert group.option.nodes == ("n1", "n2", "n3")
    assert "n2, n3" in group.barred
    assert (group.expected_loss_gpu_hours or 0.0) > (plan.expected_loss_gpu_hours or math.inf)


def test_a_culprit_that_the_action_leaves_out_stays() -> None:
    """Of two culprits one is to be looked at first: the plan evicts the other alone, and counts that it may strike again."""
    both = judged({"n1": 0.95}, {"n2": 0.95}, named=("n1",))
    plan = choose_plan(both, on(64), COSTS)
    assert plan.nodes == ("n1",)
    (barred,) = [one.barred for one in plan.alternatives if one.option.nodes == ("n1", "n2")]
    assert "n2" in barred
    alone = choose_plan(judged({"n1": 0.95}, named=("n1",)), on(64), COSTS)
    assert plan.parts["again"] > 5 * alone.parts["again"]


def test_both_culprits_of_one_root_go() -> None:
    """Two nodes that are named together by one root are both guilty, not one or the other."""
    entries = tuple(Culprit(root="r1", kind="node", id=node, probability=0.95) for node in ("n1", "n2"))
    halves = tuple(replace(entry, probability=0.5) for entry in entries)
    together = replace(judged({"n1": 0.95}, named=("n1", "n2")), culprits=entries, suspects=halves)
    assert choose_plan(together, on(64), COSTS).nodes == ("n1", "n2")


def test_the_plan_may_evict_fewer_than_named() -> None:
    """Where a second named node is hardly suspected, taking it out costs more than it saves: it stays in."""
    plan = choose_plan(judged({"n1": 0.9, "n2": 0.01}, named=("n1", "n2")), on(4), COSTS)
    assert plan.nodes == ("n1",)


def test_a_rank_on_no_known_node_is_not_evicted() -> None:
    """An action that names ranks and no node asks for placement, and evicts nothing."""
    verdict = replace(judged({"n1": 0.9}), action=Action(kind="evict", ranks=(7,)))
    plan = choose_plan(verdict, on(64), COSTS)
    assert plan.kind == "none"
    assert "rank 7" in plan.why


def test_a_node_that_the_job_has_left_is_not_evicted() -> None:
    """A named node outside of the newest attempt is barred, and the sentence says why."""
    plan = choose_plan(judged({"old": 0.95}, named=("old",)), on(64), COSTS)
    assert "old" not in plan.nodes
    assert "old" in plan.why


# What weighs.


def test_a_small_job_is_restarted_before_a_doubtful_node_goes() -> None:
    """At 0.9 a job of two nodes loses its node, and a job of one node is restarted first (docs/plan.md says so)."""
    verdict = judged({"n0": 0.9}, named=("n0",))
    assert choose_plan(verdict, on(2, spares=2), COSTS).kind == "evict"
    assert choose_plan(verdict, on(1, spares=2), COSTS).kind == "reattempt"


def test_a_rate_of_cures_turns_the_choice() -> None:
    """Where a site knows that restarts cure this class nearly always, the node stays; where never, it goes."""
    verdict, small = judged({"n1": 0.9}, named=("n1",)), on(4)
    assert choose_plan(verdict, small, replace(COSTS, cures={"*": 0.0, "never_*": 0.95})).kind == "reattempt"
    assert choose_plan(verdict, small, replace(COSTS, cures={"*": 0.95, "never_*": 0.0})).kind == "evict"


def test_tenants_are_priced() -> None:
    """A job of 4,096 GPUs on the same node keeps it from being evicted for one of 32, and not for a larger one."""
    tenants = {"tenants": {"n1": ("theirs",)}, "tenant_gpus": {"theirs": 4096}}
    verdict = judged({"n1": 0.97}, named=("n1",))
    small, large = (choose_plan(verdict, on(nodes, **tenants), COSTS) for nodes in (4, 2048))
    assert small.kind == "reattempt"
    assert (large.nodes, large.priced_tenants) == (("n1",), ("theirs",))
    assert large.parts["tenants"] == pytest.approx(4096 * 1500 / 3600, abs=1e-4)


def test_a_tenant_on_two_nodes_is_lost_once() -> None:
    """One other job on both evicted nodes stops once: its loss is counted once."""
    shared = {"tenants": {"n1": ("theirs",), "n2": ("theirs",)}, "tenant_gpus": {"theirs": 16}}
    verdict = judged({"n1": 0.95}, {"n2": 0.95}, named=("n1", "n2"))
    plan = choose_plan(verdict, on(512, **shared), COSTS)
    assert plan.nodes == ("n1", "n2")
    assert plan.parts["tenants"] == pytest.approx(16 * 1500 / 3600, abs=1e-4)


def test_without_a_spare_and_a_declared_minimum_it_tries_again_first() -> None:
    """No spare and nobody said that it may shrink: the whole job would wait, so a restart is tried; a spare settles it."""
    verdict = judged({"n1": 0.95}, named=("n1",))
    assert choose_plan(verdict, on(64, spares=0), COSTS).kind == "reattempt"
    assert choose_plan(verdict, on(64, spares=0, minimum_nodes=32), COSTS).kind == "evict"
    assert choose_plan(verdict, on(64, spares=1), COSTS).kind == "evict"


def test_the_minimum_is_kept() -> None:
    """An eviction that leaves fewer nodes than the minimum is beyond any price; a spare makes room for it."""
    verdict = judged({"n1": 0.99}, named=("n1",))
    short = choose_plan(verdict, on(64, minimum_nodes=64), COSTS)
    assert short.kind == "reattempt"
    assert {"63", "64"} <= set(re.findall(r"\d+", short.why))
    assert loss_of(short, "evict", "n1") is None
    assert choose_plan(verdict, on(64, minimum_nodes=64, spares=1), COSTS).kind == "evict"


def test_the_last_holder_of_a_shard_stays() -> None:
    """A node whose shards nobody else holds is not evicted; of two that back each other up only one goes."""
    alone = choose_plan(judged({"n1": 0.99}, named=("n1",)), on(64, holders={"n1": ()}), COSTS)
    assert alone.kind == "reattempt"
    assert "shards of n1" in alone.why
    pair = judged({"n1": 0.95}, {"n2": 0.95}, named=("n1", "n2"))
    assert choose_plan(pair, on(64, holders={"n1": ("n2",), "n2": ("n1",)}), COSTS).nodes == ("n1",)  # a tie: by name
    assert choose_plan(pair, on(64, holders={"n1": ("n2", "n3"), "n2": ("n1", "n3")}), COSTS).nodes == ("n1", "n2")


def test_time_since_the_checkpoint_is_lost() -> None:
    """An hour since the last checkpoint is an hour of every GPU, whatever is chosen; what is no number is not believed."""
    verdict = judged({"n1": 0.95}, named=("n1",))
    fresh, old = (choose_plan(verdict, on(64, seconds_since_checkpoint=since), COSTS) for since in (0.0, 3600.0))
    assert old.parts["restart"] - fresh.parts["restart"] == pytest.approx(64 * 8)
    unknown = choose_plan(verdict, on(64), COSTS)
    assert choose_plan(verdict, on(64, seconds_since_checkpoint=math.nan), COSTS) == unknown


def test_free_costs_change_nothing() -> None:
    """Where everything is free, all options tie, and the mildest is taken: nothing."""
    free = replace(COSTS, **dict.fromkeys((name for name in Costs.__struct_fields__ if name != "cures"), 0.0))
    assert choose_plan(judged({"n1": 0.99}, named=("n1",)), on(64), free).kind == "none"


# The other actions.


def test_a_job_that_goes_on_is_not_stopped_for_a_drain() -> None:
    """A device event in a running job: the drain waits for its end and costs no restart; a doubtful one is left alone."""
    event = {"kind": "drain_after_job", "symptom": "hardware", "fault_class": "xid_63"}
    plan = choose_plan(judged({"n1": 0.9}, named=("n1",), **event), on(64), COSTS)
    assert (plan.kind, plan.nodes) == ("drain_after_job", ("n1",))
    assert "restart" not in plan.parts
    assert choose_plan(judged({"n1": 0.01}, named=("n1",), **event), on(2), COSTS).kind == "none"


@pytest.mark.parametrize("kind", ["reset_gpu", "reboot_node"])
def test_who_is_reset_is_away_as_well(kind: str) -> None:
    """The job starts without the node: at its minimum it is barred, and without a spare what the job misses is in its loss."""
    verdict = judged({"n1": 0.9}, kind=kind, named=("n1",), symptom="hang", fault_class="ecc_dbe")
    barred = choose_plan(verdict, on(64, minimum_nodes=64), COSTS)
    spared = choose_plan(verdict, on(64, minimum_nodes=64, spares=1), COSTS)
    fewer = choose_plan(verdict, on(64, minimum_nodes=32, spares=0), COSTS)

    assert (barred.kind, spared.kind) == ("none", kind)
    assert {"63", "64"} <= set(re.findall(r"\d+", barred.why))
    assert "short" not in spared.parts
    weighed = {one.option.kind: one.parts for one in fewer.alternatives} | {fewer.kind: fewer.parts}
    assert weighed[kind]["short"] == 8 * COSTS.replacement_hours


def test_a_reset_stays_a_reset() -> None:
    """What the table of events asks for is done or not: a reset never becomes an eviction or a plain restart."""
    verdict = judged({"n1": 0.9}, kind="reset_gpu", named=("n1",), symptom="hardware", fault_class="ecc_dbe")
    plan = choose_plan(verdict, on(64), COSTS)
    assert (plan.kind, plan.nodes) == ("reset_gpu", ("n1",))
    assert {one.option.kind for one in plan.alternatives} == {"none"}


def test_code_is_rolled_back() -> None:
    """A fault of the code is answered by older code: to run the same again cures it too rarely, and no node is touched."""
    entry = Culprit(root="r1", kind="code", id="rank 3", probability=0.9)
    verdict = replace(judged({}, kind="rollback", cause="code"), culprits=(entry,), suspects=(entry,))
    plan = choose_plan(verdict, on(64), COSTS)
    assert (plan.kind, plan.nodes, plan.probability) == ("rollback", (), 0.9)
    assert [one.option.kind for one in plan.alternatives] == ["reattempt", "none"]


def test_no_unknown_version_is_gone_back_to() -> None:
    """A rollback needs a version that ran well: where none is known the job is started again, and the plan says why."""
    entry = Culprit(root="r1", kind="code", id="rank 3", probability=0.75)
    verdict = replace(judged({}, kind="rollback", cause="code", symptom="crash"), culprits=(entry,), suspects=(entry,))
    plan = choose_plan(verdict, replace(on(64), older_code=False), COSTS)
    barred = [one.barred for one in plan.alternatives if one.option.kind == "rollback"]
    assert plan.kind == "reattempt"
    assert barred == ["no older version of the code is known to have run well"]


def test_a_kill_from_outside_is_answered_by_a_start() -> None:
    """After a preemption the job is started again, and that is expected to cure it."""
    entry = Culprit(root="r1", kind="platform", id="platform", probability=0.9)
    verdict = replace(judged({}, kind="restart_job", cause="platform", symptom="crash"), culprits=(entry,))
    plan = choose_plan(replace(verdict, suspects=(entry,)), on(64), COSTS)
    assert plan.kind == "restart_job"
    assert plan.parts["again"] < 0.1 * plan.parts["restart"]


def test_a_role_is_restarted_for_its_own_gpus() -> None:
    """Where a role is asked for, only its GPUs stand still; an unknown role counts as the whole job."""
    verdict = judged({"n1": 0.5}, kind="restart_role")
    verdict = replace(verdict, action=Action(kind="restart_role", role="rollout"))
    known = choose_plan(verdict, on(64, roles={"rollout": ("n0", "n1")}), COSTS)
    unknown = choose_plan(verdict, on(64), COSTS)
    assert (known.kind, known.role) == ("restart_role", "rollout")
    assert unknown.parts["restart"] == pytest.approx(32 * known.parts["restart"], rel=1e-3)


def test_a_role_is_not_restarted_in_place_of_an_eviction() -> None:
    """Where an eviction is asked for, the suspect's role is shown as a set, and nothing but a named node is touched."""
    verdict = judged({"n1": 0.95}, named=("n1",))
    plan = choose_plan(verdict, on(64, roles={"rollout": ("n1", "n2")}), COSTS)
    assert (plan.kind, plan.nodes) == ("evict", ("n1",))
    (role,) = [one for one in plan.alternatives if one.option.group == "role rollout"]
    assert (role.option.nodes, bool(role.barred)) == (("n1", "n2"), True)


# Survivability.


def test_shards_survive_while_one_holder_does() -> None:
    """A node's shards are lost when it and all its holders go, whenever they went; who registered none loses none."""
    ring = {f"n{i}": (f"n{(i + 1) % 4}",) for i in range(4)}
    assert find_lost_shards(["n0"], ring) == ()
    assert find_lost_shards(["n0", "n2"], ring) == ()
    assert find_lost_shards(["n0", "n1"], ring) == ("n0",)
    assert find_lost_shards(ring, ring) == ("n0", "n1", "n2", "n3")
    assert find_lost_shards(["other"], ring) == ()
    assert find_lost_shards([], {"n0": ()}) == ()


def test_a_pipeline_group_survives_backups_across_groups() -> None:
    """Backed up to ranks of no shared group, a whole pipeline group can go; backed up to neighbours inside it, not."""
    across = {f"n{i}": (f"n{(i + 4) % 16}",) for i in range(16)}
    inside = {f"n{i}": (f"n{i ^ 1}",) for i in range(16)}
    group = ["n0", "n1", "n2", "n3"]
    assert find_lost_shards(group, across) == ()
    assert find_lost_shards(group, inside) == ("n0", "n1", "n2", "n3")


# Against exhaustive search.


# What it is made of.


# The costs.
