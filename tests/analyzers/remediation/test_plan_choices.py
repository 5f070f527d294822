"""The plan against an exhaustive search, with wild input, and with a site's costs."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from analyzers.model.verdict import Culprit
from analyzers.remediation.plan import Costs, Plan, Situation, choose_plan, options
from analyzers.remediation.plan.costs import problems
from service.packaged_knowledge import KnowledgeError, load
from tests.analyzers.remediation.test_plan import COSTS, judged, on
from tests.support import plan_oracle

ROUNDING = 0.001  # GPU hours: five parts of four places


@st.composite
def small_jobs(draw: st.DrawFn) -> plan_oracle.Job:
    """A job of one to eight nodes, one to three roots, and whatever else may weigh."""
    nodes = tuple(f"n{i}" for i in range(draw(st.integers(1, 8))))
    some_nodes = st.lists(st.sampled_from(nodes), unique=True, max_size=4)
    roots = []
    for _ in range(draw(st.integers(1, 3))):
        left, root = 100, {}
        for node in draw(some_nodes):
            root[node] = Fraction(share := draw(st.integers(0, left)), 100)
            left -= share
        roots.append(root)
    return plan_oracle.Job(
        nodes=nodes,
        roots=tuple(roots),
        named=frozenset(draw(some_nodes)) | {nodes[0]},
        gpus_per_node=draw(st.sampled_from((1, 8))),
        spares=draw(st.none() | st.integers(0, 4)),
        minimum=draw(st.none() | st.integers(1, 9)),
        since_checkpoint=Fraction(draw(st.integers(0, 7200))),
        holders=draw(st.dictionaries(st.sampled_from(nodes), some_nodes.map(tuple), max_size=4)),
        tenants=draw(st.dictionaries(st.sampled_from(nodes), st.just(("a",)) | st.just(("a", "b")), max_size=3)),
        tenant_gpus=draw(st.dictionaries(st.sampled_from(("a", "b")), st.integers(1, 64))),
    )


prices = st.builds(
    plan_oracle.Prices,
    **{
        name: st.integers(0, 4000).map(Fraction)
        for name in ("restart", "redetect", "unattended", "lost_work", "innocent", "replacement")
    },
    cure=st.integers(0, 100).map(lambda percent: Fraction(percent, 100)),
)


def costs_of(these: plan_oracle.Prices) -> Costs:
    """The same prices as the plan takes them."""
    return Costs(
        restart_seconds=float(these.restart),
        redetect_seconds=float(these.redetect),
        unattended_seconds=float(these.unattended),
        lost_work_seconds=float(these.lost_work),
        innocent_hours=float(these.innocent),
        replacement_hours=float(these.replacement),
        cures={"*": float(these.cure)},
    )


def planned(job: plan_oracle.Job, these: plan_oracle.Prices) -> Plan:
    """What the plan says of a job of the oracle."""
    roots = [{node: float(share) for node, share in root.items()} for root in job.roots]
    situation = Situation(
        nodes=job.nodes,
        gpus_per_node=job.gpus_per_node,
        spares=job.spares,
        minimum_nodes=job.minimum,
        holders=dict(job.holders),
        tenants=dict(job.tenants),
        tenant_gpus=dict(job.tenant_gpus),
        seconds_since_checkpoint=float(job.since_checkpoint),
    )
    return choose_plan(judged(*roots, named=tuple(sorted(job.named))), situation, costs_of(these))


@pytest.mark.system
@settings(max_examples=150, deadline=None)
@given(small_jobs(), prices)
def test_exhaustive_search_chooses_the_same(job: plan_oracle.Job, these: plan_oracle.Prices) -> None:
    """Over every subset of a small job's nodes nothing that is allowed loses less than the plan, to a thousandth."""
    plan, losses = planned(job, these), plan_oracle.losses(job, these)
    least = min(losses.values())
    chosen = (plan.kind, frozenset(plan.nodes))
    assert plan.expected_loss_gpu_hours == pytest.approx(float(least), abs=ROUNDING)
    assert float(losses[chosen]) == pytest.approx(float(least), abs=ROUNDING)
    near = [option for option, value in losses.items() if value - least < 2 * ROUNDING]
    assert len(near) > 1 or near == [chosen]


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(1, 99), min_size=9, max_size=9), st.integers(1, 64))
def test_more_than_eight_named_nodes_lose_no_better_set(percents: list[int], spares: int) -> None:
    """Among nodes that differ in their guilt alone, the most suspected together are as good as every subset."""
    roots = [{f"n{i}": percent / 100} for i, percent in enumerate(percents)]
    verdict = judged(*roots, named=tuple(f"n{i}" for i in range(len(percents))))
    quick = choose_plan(verdict, on(40, spares=spares), COSTS)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(options, "EVERY_SUBSET_OF", 9)
        assert (
            choose_plan(verdict, on(40, spares=spares), COSTS).expected_loss_gpu_hours == quick.expected_loss_gpu_hours
        )


def test_the_same_input_gives_the_same_bytes() -> None:
    """The order of the named nodes and of the groups leaves no trace in the plan."""
    groups = {"b": ("n1", "n2"), "a": ("n2", "n1")}
    verdict = judged({"n1": 0.5, "n2": 0.4}, named=("n1", "n2"))
    turned = replace(verdict, action=replace(verdict.action, nodes=("n2", "n1")))
    one = choose_plan(verdict, on(64, groups=groups), COSTS)
    two = choose_plan(turned, on(64, groups=dict(reversed(groups.items()))), COSTS)
    assert msgspec.json.encode(one) == msgspec.json.encode(two)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(), min_size=1, max_size=4), st.floats())
def test_wild_probabilities_do_no_harm(shares: list[float], since: float) -> None:
    """What is no probability is brought to one: the loss stays a number, and no unnamed node is touched."""
    entries = tuple(Culprit(root="r1", kind="node", id=f"n{i}", probability=p) for i, p in enumerate(shares))
    verdict = replace(judged({"n0": 0.5}, named=("n0",)), culprits=entries, suspects=entries)
    plan = choose_plan(verdict, on(8, seconds_since_checkpoint=since), COSTS)
    assert math.isfinite(plan.expected_loss_gpu_hours or 0.0)
    assert set(plan.nodes) <= {"n0"}
    assert 0 <= plan.probability <= 1


def test_a_large_job_with_many_named_is_planned() -> None:
    """Five hundred named nodes of 2,048 are weighed without trying their subsets."""
    named = tuple(f"n{i}" for i in range(500))
    verdict = judged(*({node: 1.0} for node in named), named=named)
    assert set(choose_plan(verdict, on(2048), COSTS).nodes) == set(named)


def test_the_packaged_table_is_whole() -> None:
    """The packaged table names every cost, without a problem, and what the code falls back to are its values."""
    table = load().table("plan")
    reported = {f"{key}_{name}" for name in ("seconds", "hours") for key in table[name]}
    assert reported | {"cures"} == set(Costs.__struct_fields__)
    assert list(problems(table)) == []
    assert replace(COSTS, cures=Costs().cures) == Costs()


def test_the_longest_pattern_sets_the_rate() -> None:
    """A class takes the rate of its own row before a pattern's, and a pattern's before everybody's."""
    costs = replace(COSTS, cures={"*": 0.2, "xid_*": 0.0, "xid_63": 0.5})
    assert [costs.cured_by_restart(name) for name in ("xid_63", "xid_79", "stopped")] == [0.5, 0.0, 0.2]


def test_a_site_lays_its_costs_over(tmp_path: Path) -> None:
    """A site's file replaces the rows that it names; what is no cost or out of bounds is refused with its value."""
    file = tmp_path / "plan.toml"
    file.write_text("[seconds]\nrestart = 180\n[cures]\nnever_entered = 0.4\n", encoding="utf-8")
    costs = Costs.from_knowledge(load(file))
    assert (costs.restart_seconds, costs.redetect_seconds) == (180.0, 600.0)
    assert (costs.cured_by_restart("never_entered"), costs.cured_by_restart("stopped")) == (0.4, 0.227)
    file.write_text("[seconds]\nrestart = -1\nrestrat = 5\n[cures]\n'*' = 22.7\n[money]\n", encoding="utf-8")
    with pytest.raises(KnowledgeError) as refused:
        load(file)
    for said in ("seconds.restart = -1", "seconds.restrat", "cures.* = 22.7", "money"):
        assert said in str(refused.value)
