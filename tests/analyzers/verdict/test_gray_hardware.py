"""Hardware that is not well beside other claims: it agrees with a slow machine, and changes no verdict of a hang or a crash."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from analyzers.model.finding import Cause, Family, Finding, Suspect, Symptom
from analyzers.model.topology import Topology
from analyzers.model.verdict import Verdict
from analyzers.verdict.correlate import combine
from analyzers.verdict.gray_hardware import add_gray
from collectors.records import Members, Placement, Record
from simulation.traces.op_traces import OpJob
from tests.analyzers.diagnosis.test_contract import NODES, bundles
from tests.support.gray_fleet import GrayFleet, named, on, verdict_on
from tests.support.op_traces import simulated

DECIDED = [
    "hang",
    "hang and all else",
    "without placement",
    "wrong operation",
    "processes",
    "hardware",
    "crash",
    "numeric",
]


def fleet(node: int | None) -> list[Record]:
    """Readings of the GPUs of the four nodes: on one of them, or on none, a GPU has half its lanes."""
    change = on(-1 if node is None else node, 3, width=8)
    return list(GrayFleet(nodes=4, names=NODES, change=change).records())


def weighed(verdict: Verdict) -> tuple[object, ...]:
    """What is decided: all but what is shown beside it."""
    return (
        verdict.symptom,
        verdict.cause,
        verdict.culprits,
        verdict.action,
        verdict.roots,
        verdict.abstained,
        verdict.victims,
    )


@pytest.mark.parametrize("case", DECIDED)
@pytest.mark.parametrize("node", range(4))
def test_no_verdict_of_a_hang_or_a_crash_changes(case: str, node: int) -> None:
    """Whether it is on the culprit's node or on another: beside what holds the job up it is no reason to do more, or less."""
    records = bundles()[case]
    with_it, without = (verdict_on([*records, *fleet(one)]) for one in (node, None))
    assert weighed(with_it) == weighed(without)


def test_a_hang_that_is_not_decided_stays_so() -> None:
    """Where the others' waits name no rank, a GPU that is not well is none either."""
    records = [one for one in bundles()["hang"] if one.rank in (0, 1)]
    with_it, without = (verdict_on([*records, *fleet(one)]) for one in (2, None))
    assert weighed(with_it) == weighed(without)


def traced(slow_rank: int, times: float, node: int | None) -> Verdict:
    """The verdict on a trace of one slow worker, two ranks a node, beside the GPUs' readings."""

    def worker(stage: int, replica: int, _step: int) -> float:
        return times if stage * 4 + replica == slow_rank else 1.0

    job = simulated(OpJob(stages=2, replicas=4, microbatches=2, steps=4, worker=worker))
    placed = Placement(
        source="hosts.txt", ranks=Members.of(range(8)), nodes=tuple(NODES[rank // 2] for rank in range(8))
    )
    beside: Sequence[Record] = fleet(node) if node is not None else ()
    return verdict_on([*job.records(), placed, *beside])


def test_it_agrees_with_a_slow_worker_of_its_node() -> None:
    """The trace shows that the job waits for it, its GPU why."""
    alone, both = traced(2, 1.3, None), traced(2, 1.3, 1)
    assert (alone.symptom, both.symptom) == ("slow", "slow")
    assert [one.ranks for one in both.culprits] == [one.ranks for one in alone.culprits] == [(2,)]
    assert both.culprits[0].probability >= alone.culprits[0].probability
    assert "lanes" in both.culprits[0].why


def test_it_takes_no_part_in_a_slow_worker_of_another_node() -> None:
    """The slow worker stays as it is; the other GPU is shown with why it is not named."""
    alone, both = traced(2, 1.3, None), traced(2, 1.3, 3)
    assert [one.why for one in both.culprits] == [one.why for one in alone.culprits]
    assert both.action == alone.action
    assert [one for one in both.rejected if "lanes" in one.why and "nothing shows that it holds the job up" in one.why]


def test_it_stands_where_the_job_is_well() -> None:
    """A trace in which no worker is slower does not clear a link that has lost its lanes; the job goes on."""
    verdict = traced(2, 1.0, 3)
    assert [one[:2] for one in named(verdict)] == [("node", NODES[3])]
    assert (verdict.symptom, verdict.action.kind) == ("hardware", "probe")


@pytest.mark.parametrize(
    ("cause", "joined"), [("machine", True), ("unknown", True), ("storage", False), ("data", False)]
)
def test_it_joins_no_slowness_that_blames_something_else(cause: Cause, joined: bool) -> None:
    """A rank whose loader waits for a file system is not slow by its GPU; the GPU is shown beside it."""

    def claim(family: Family, fault_class: str, cause: Cause, symptom: Symptom, why: str) -> Finding:
        suspect = Suspect(kind="node", strength=0.6, why=why, node="gpu-a1")
        return Finding(
            analyzer=family, family=family, symptom=symptom, cause=cause, fault_class=fault_class, suspects=(suspect,)
        )

    decision = combine([claim("timings", "slow_worker", cause, "slow", "slow")], Topology())
    add_gray(decision, [claim("hardware", "gray_pcie", "machine", "hardware", "eight lanes")], Topology())
    (root,) = decision.roots
    assert ("hardware" in root.families) is joined
    assert bool(decision.rejected) is not joined
