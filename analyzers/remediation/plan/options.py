"""What could be done: every set that is worth weighing, and what bars it. None is harsher than the verdict's action."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

import msgspec

from analyzers.model.verdict import Verdict
from analyzers.remediation.plan.case import PlanCase
from analyzers.remediation.plan.posterior import clamp_probability
from analyzers.remediation.plan.situation import find_lost_shards
from analyzers.remediation.types import list_some
from analyzers.verdict.action import NOT_PROVEN

MILDER = {
    "evict": ("reattempt",),
    "drain_after_job": (),
    "reset_gpu": (),
    "reboot_node": (),
    "restart_role": (),
    "restart_job": (),
    "reattempt": (),
    "rollback": ("reattempt",),
}
"""What may be done instead of an action; to do nothing always may. An action that is no key asks for nothing to be done."""

ON_NODES = frozenset({"evict", "drain_after_job", "reset_gpu", "reboot_node"})
STARTS_WITHOUT = frozenset({"evict", "reset_gpu", "reboot_node"})
"""The job starts again without these nodes, and without what their memory holds. A node that is reset or rebooted comes back
when somebody has done so and has looked: until then it is as far away as one that was evicted."""
LEAST_NAMED = 0.7
"""What a dead process must say against its machine to be weighed: a kill from outside does (0.75), a crash in native code,
which is a library's fault as often, does not (0.55)."""
EVERY_SUBSET_OF = 8  # nodes; of more only each alone and the most suspected together
MOST_TOGETHER = 64
MOST_SUSPECTED = 4
MOST_GROUPS = 4


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that could be done."""

    kind: str = "none"
    nodes: tuple[str, ...] = ()
    role: str | None = None
    group: str = ""  # the parallel group, or "role …", that the nodes are


def harshest_kind(verdict: Verdict) -> str:
    """Return the harshest action that a plan may come to: the verdict's own, but for one machine whose process has died.

    Who says to look first may mean that somebody will: a hang's second look, another's word about the same rank. Of a
    process that has ended nothing more will be seen. Its probability is all there is, and what the doubt costs is weighed
    like any other. Several machines that lose processes at once share a cause elsewhere: those are still looked at first.
    """
    action, culprits = verdict.action, verdict.culprits
    held_by_doubt = action.kind == "probe" and action.why == NOT_PROVEN
    if not held_by_doubt or verdict.symptom != "crash" or verdict.cause != "machine" or len(culprits) != 1:
        return action.kind
    (one,) = culprits
    named = one.kind == "node" and action.nodes == (one.id,)
    return "evict" if named and clamp_probability(one.probability) >= LEAST_NAMED else action.kind


def list_options(case: PlanCase) -> list[Option]:
    """Return what could be done, each once; sets that are barred are among them, so that a person sees what they would cost."""
    sets = dict.fromkeys(_sets(case)) if case.kind in ON_NODES else {}
    found = [Option(), *(Option(kind=case.kind, nodes=nodes) for nodes in sets)]
    found += [one for one in _groups(case) if one.nodes not in sets]
    whole = [case.kind] if case.kind not in ON_NODES else []
    role = case.role if case.kind == "restart_role" else None
    return found + [Option(kind=kind, role=role) for kind in (*whole, *MILDER[case.kind])]


def explain_bar(option: Option, case: PlanCase) -> tuple[str, bool]:
    """Return why an option must not be chosen ("": it may), and whether its loss is beyond any bound."""
    situation, known = case.situation, case.situation.nodes
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
    """Yield sets of what the action names, and the most suspected of all together, named or not."""
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
    """Yield the smallest parallel groups of the most suspected node, and its role, which others evict as a whole."""
    if case.kind != "evict" or not case.named:
        return
    first, situation = _by_guilt(case.named, case)[0], case.situation
    known = situation.groups | {f"role {role}": nodes for role, nodes in situation.roles.items()}
    holding = [(name, tuple(sorted(set(nodes)))) for name, nodes in known.items() if first in nodes]
    holding = [(name, nodes) for name, nodes in holding if 1 < len(nodes) < len(situation.nodes)]
    once = {nodes: name for name, nodes in sorted(holding, reverse=True)}
    for nodes in sorted(once, key=lambda nodes: (len(nodes), once[nodes]))[:MOST_GROUPS]:
        yield Option(kind="evict", nodes=nodes, group=once[nodes])
