"""The options: every set of nodes that is worth weighing, and what bars it. None is harsher than the verdict's action."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

import msgspec

from analyzers.model.verdict import (
    TAKES_NODES,
    Verdict,
)
from analyzers.remediation.plan.case import PlanCase
from analyzers.remediation.plan.posterior import clamp_probability
from analyzers.remediation.plan.situation import find_lost_shards
from analyzers.remediation.role_restart import RoleRestart
from analyzers.remediation.types import list_some
from analyzers.verdict.action import NOT_PROVEN

MILDER = {
    "evict": ("reattempt",),
    "drain_after_job": (),
    "reset_gpu": (),
    "reboot_node": (),
    "restart_role": ("restart_job",),
    "restart_job": (),
    "reattempt": (),
    "rollback": ("reattempt",),
}
"""Action → milder actions that may replace it; doing nothing always may. For an action that is no key nothing is done."""

STARTS_WITHOUT = frozenset({"evict", "reset_gpu", "reboot_node"})
"""The job restarts without these nodes, and without their memory. A node that is reset or rebooted returns only after a person
has done and checked that: until then it is missing like an evicted one."""
LEAST_NAMED = 0.7
"""Least probability of a dead process's machine for an eviction to be weighed: a kill from outside reaches it (0.75), a crash in
native code, which is as often a library's fault, does not (0.55)."""
EVERY_SUBSET_OF = 8  # nodes; of more only each alone and the most suspected together
MOST_TOGETHER = 64
MOST_SUSPECTED = 4
MOST_GROUPS = 4


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One possible action."""

    kind: str = "none"
    nodes: tuple[str, ...] = ()
    role: str | None = None
    group: str = ""  # the parallel group, or "role …", that the nodes are
    restart: RoleRestart | None = None  # of the role
    bar: str = ""  # why it must not be chosen, where that is known without the rest


def harshest_kind(verdict: Verdict) -> str:
    """Return the harshest action that a plan may come to: the verdict's own, but for one machine whose process has died.

    A verdict that asks for checks first may get further evidence: a second round of a hang, or another rank. Of an ended process
    no more evidence comes, so its probability decides, and the doubt is weighed as a cost. Several machines that lose processes
    at once share a cause elsewhere: they are still checked first.
    """
    action, culprits = verdict.action, verdict.culprits
    held_by_doubt = action.kind == "probe" and action.why == NOT_PROVEN
    if not held_by_doubt or verdict.symptom != "crash" or verdict.cause != "machine" or len(culprits) != 1:
        return action.kind
    (one,) = culprits
    named = one.kind == "node" and action.nodes == (one.id,)
    return "evict" if named and clamp_probability(one.weight) >= LEAST_NAMED else action.kind


def list_options(case: PlanCase) -> list[Option]:
    """Return the options, each once; barred sets are among them, so that a person sees their cost."""
    sets = dict.fromkeys(_sets(case)) if case.kind in TAKES_NODES else {}
    found = [Option(), *(Option(kind=case.kind, nodes=nodes) for nodes in sets)]
    found += [one for one in _groups(case) if one.nodes not in sets]
    whole = [case.kind] if case.kind not in TAKES_NODES else []
    found += [Option(kind="restart_role", role=one.role, restart=one.restart, bar=one.bar) for one in case.restarts]
    if case.kind == "restart_role":
        whole = []
    return found + [Option(kind=kind) for kind in (*whole, *MILDER[case.kind])]


def explain_bar(option: Option, case: PlanCase) -> tuple[str, bool]:
    """Return why an option must not be chosen ("": it may), and whether its loss is beyond any bound."""
    situation, known = case.situation, case.situation.nodes
    if option.bar:
        return option.bar, False
    if option.kind == "rollback" and not situation.older_code:
        return "no older version of the code is known to have run well", False
    if option.kind in STARTS_WITHOUT and (lost := find_lost_shards(option.nodes, situation.holders)):
        return f"the checkpoint shards of {list_some(lost)} would lose their last holder: copy them first", True
    if option.kind in STARTS_WITHOUT and known:
        left, least = situation.left_without(len(option.nodes)), max(1, situation.minimum_nodes or 1)
        if left < least:
            return f"{left} nodes would be left, and the job needs {least}: add spares first", True
    if unnamed := sorted(set(option.nodes).difference(case.named)):
        return f"the verdict does not ask for {list_some(unnamed)}", False
    if known and (elsewhere := sorted(set(option.nodes).difference(known))):
        return f"the job does not run on {list_some(elsewhere)} any more", False
    return "", False


def _sets(case: PlanCase) -> Iterator[tuple[str, ...]]:
    """Yield sets of the nodes that the action names, and the most suspected of all together, named or not."""
    named = _by_guilt(case.named, case)
    if len(named) <= EVERY_SUBSET_OF:
        for size in range(1, len(named) + 1):
            yield from (tuple(sorted(nodes)) for nodes in combinations(named, size))
    else:
        yield from ((node,) for node in named[:MOST_TOGETHER])
        yield from (tuple(sorted(named[:size])) for size in (*range(2, min(len(named), MOST_TOGETHER)), len(named)))
    suspected = _by_guilt(case.guilt, case)[:MOST_SUSPECTED]
    yield from (tuple(sorted(suspected[:size])) for size in range(1, len(suspected) + 1))


def _by_guilt(nodes: Iterable[str], case: PlanCase) -> list[str]:
    return sorted(nodes, key=lambda node: (-case.guilt.get(node, 0.0), node))


def _groups(case: PlanCase) -> Iterator[Option]:
    """Yield the smallest parallel groups of the most suspected node, and its role: other systems evict these as a whole."""
    if case.kind != "evict" or not case.named:
        return
    first, situation = _by_guilt(case.named, case)[0], case.situation
    known = situation.groups | {f"role {role}": nodes for role, nodes in situation.roles.items()}
    holding = [(name, tuple(sorted(set(nodes)))) for name, nodes in known.items() if first in nodes]
    holding = [(name, nodes) for name, nodes in holding if 1 < len(nodes) < len(situation.nodes)]
    once = {nodes: name for name, nodes in sorted(holding, reverse=True)}
    for nodes in sorted(once, key=lambda nodes: (len(nodes), once[nodes]))[:MOST_GROUPS]:
        yield Option(kind="evict", nodes=nodes, group=once[nodes])
