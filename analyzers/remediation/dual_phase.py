"""Dual-phase replay: the machine that computes wrongly is found by running the job twice on parts of its machines.

ByteRobust's Algorithm 1. Machine x of z = m·n is in the horizontal group ⌊x/m⌋ of the first phase, and in the vertical group
x mod n of the second. A group has m machines, enough for k whole pipelines, so that of the job's parallelism only the data
parallel part shrinks. The machine in both bad groups is the faulty one; that is one machine only where m ≤ n, else two members
of a horizontal group share a vertical one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from analyzers.model.doc import doc

MOST_REPEATS = 1_000


class ReplayUnsuited(ValueError):
    """No replay of two phases finds a single machine here; the message states why, and what would."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that one run of a replay takes."""

    name: Annotated[str, doc("`H` and a number in the first phase, `V` and a number in the second.")]
    nodes: Annotated[tuple[str, ...], doc("The nodes of the group.")]


class ReplayPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Two phases of groups. The groups of one phase run at the same time; each runs ``repeats`` times."""

    horizontal: Annotated[tuple[Group, ...], doc("The groups of the first phase.")]
    vertical: Annotated[tuple[Group, ...], doc("The groups of the second phase.")]
    group_nodes: Annotated[int, doc("Nodes of a horizontal group (m).")]
    replicas: Annotated[int, doc("Data-parallel replicas within a group (k).")]
    repeats: Annotated[int, doc("How often each group runs.")] = 1


def plan_replay(
    machines: Sequence[str], pipeline_nodes: int, data_parallel: int, *, shows: float = 1.0, wished: float = 0.99
) -> ReplayPlan:
    """Return the replay of a job of ``data_parallel`` pipelines, each over ``pipeline_nodes`` machines; raise Unsuited.

    ``shows``: the probability that the fault shows in one run of a group that has the faulty machine; ``wished``: the
    probability with which both phases shall show it.
    """
    _check(machines, pipeline_nodes, data_parallel)
    replicas, groups = _split(pipeline_nodes, data_parallel)
    size = replicas * pipeline_nodes
    horizontal = (Group(name=f"H{h}", nodes=tuple(machines[h * size : (h + 1) * size])) for h in range(groups))
    vertical = (Group(name=f"V{v}", nodes=tuple(machines[v::groups])) for v in range(groups))
    return ReplayPlan(
        horizontal=tuple(horizontal),
        vertical=tuple(vertical),
        group_nodes=size,
        replicas=replicas,
        repeats=count_repeats(shows, wished),
    )


def _check(machines: Sequence[str], pipeline_nodes: int, data_parallel: int) -> None:
    if pipeline_nodes < 1 or data_parallel < 1 or pipeline_nodes * data_parallel != len(machines):
        raise ReplayUnsuited(
            f"{len(machines)} machines are not {data_parallel} replicas of {pipeline_nodes} nodes: "
            "a replay keeps whole pipelines together, give the nodes of one whole job"
        )
    if len(set(machines)) < len(machines):
        raise ReplayUnsuited(
            f"of {len(machines)} machines {len(machines) - len(set(machines))} are named twice: name each once"
        )


def _split(pipeline_nodes: int, data_parallel: int) -> tuple[int, int]:
    """Return k and n: the largest groups that still distinguish single machines."""
    fitting = [
        k for k in range(1, data_parallel + 1) if data_parallel % k == 0 and k * pipeline_nodes <= data_parallel // k
    ]
    if not fitting:
        raise ReplayUnsuited(
            f"groups of {pipeline_nodes} nodes, {data_parallel} of them, leave up to {math.ceil(pipeline_nodes / data_parallel)} "
            f"machines in one intersection: {pipeline_nodes} nodes a pipeline need as many replicas, and there are "
            f"{data_parallel}; check the machines one by one, or replay with shorter pipelines"
        )
    return max(fitting), data_parallel // max(fitting)


def count_repeats(shows: float, wished: float = 0.99) -> int:
    """Return how often each group is to run, so that a fault that shows in one run of ``1/shows`` shows in both phases."""
    if not 0.0 < shows <= 1.0 or not 0.0 < wished < 1.0:
        raise ReplayUnsuited(
            f"shows = {shows} and wished = {wished} are to be probabilities above 0, and wished below 1"
        )
    if shows == 1.0:
        return 1
    needed = math.ceil(math.log1p(-math.sqrt(wished)) / math.log1p(-shows))
    if needed > MOST_REPEATS:
        raise ReplayUnsuited(
            f"a fault that shows in {shows:.2g} of the runs takes {needed:,} runs a group, more than {MOST_REPEATS:,}: "
            "make the runs longer, or check the machines by themselves"
        )
    return max(1, needed)


def intersect_groups(plan: ReplayPlan, bad: Iterable[str]) -> tuple[str, ...]:
    """Return the machines that lie in a bad group of either phase, in the job's order.

    None: a phase showed nothing. Several: more than one is faulty, or a run failed for another reason; they are to be
    checked, not evicted.
    """
    names = set(bad)
    if unknown := names - {group.name for group in (*plan.horizontal, *plan.vertical)}:
        raise ValueError(f"the replay has no group {', '.join(sorted(unknown))}: its groups are H0 … and V0 …")
    upright = {node for group in plan.vertical if group.name in names for node in group.nodes}
    return tuple(node for group in plan.horizontal if group.name in names for node in group.nodes if node in upright)
