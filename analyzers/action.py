"""What to do about a verdict: the mildest action that its proof carries. An innocent machine is never evicted lightly."""

from __future__ import annotations

from analyzers.combine import Root
from analyzers.topology import Topology
from analyzers.verdict import Action, Culprit

# Classes whose proof is the machine's own record; a missing dump alone may be our own collection.
_PROVEN = frozenset(
    {"never_entered", "completion_lost", "init", "device_stuck", "stopped", "gone", "process_gone", "process_killed"}
)
_ENOUGH = 0.85
# Evicting more nodes than this, or than a quarter of the job, is never proposed: they share a cause elsewhere.
MOST_EVICTED_NODES = 4
_BY_CAUSE = {
    "network": ("probe", "test the links between these ranks before anything is evicted"),
    "storage": ("none", "the file system is the cause: no machine of the job is at fault"),
    "platform": ("restart_job", "killed or preempted from outside: no machine of the job is at fault"),
    "data": ("none", "the data is the cause: no machine is at fault"),
    "imbalance": ("none", "the work is uneven: no machine is at fault"),
    "unknown": ("probe", "collect what is missing before anything is evicted"),
}
_CODE = {
    "exception_one_rank": (
        "reattempt",
        "an exception in the code: run again; a repeat on the same node would point to it",
    ),
}


def fitting(culprits: tuple[Culprit, ...], roots: list[Root], topology: Topology, symptom: str) -> Action:
    """Choose the action for what the verdict names."""
    if not culprits:
        return Action(
            kind="none", why="nothing is at fault" if symptom == "healthy" else "nothing is named: nothing is done"
        )
    machines = [(root, entry) for root, entry in _paired(culprits, roots) if root.finding.cause == "machine"]
    evicted = [entry for root, entry in machines if _proven(root, entry)]
    if evicted and not _too_many(evicted, topology):
        return _evict(evicted, partly=len(evicted) < len(culprits))
    if machines:
        return _look_first([entry for _, entry in machines])
    cause, fault_class = roots[0].finding.cause, roots[0].finding.fault_class
    if cause == "code":
        kind, why = _CODE.get(fault_class, ("rollback", "the code is the cause: no machine is at fault"))
    else:
        kind, why = _BY_CAUSE.get(cause, ("none", ""))
    return Action(kind=kind, ranks=culprits[0].ranks if kind == "probe" else (), why=why)


def _paired(culprits: tuple[Culprit, ...], roots: list[Root]) -> list[tuple[Root, Culprit]]:
    labels = list(dict.fromkeys(culprit.root for culprit in culprits))
    return [(roots[labels.index(culprit.root)], culprit) for culprit in culprits]


def _proven(root: Root, entry: Culprit) -> bool:
    """Evict on the machine's own record, or where a second family of evidence agrees; never a set."""
    agreed = len(root.families) > 1
    return (
        root.certain
        and entry.probability >= _ENOUGH
        and entry.kind in ("node", "rank", "device")
        and (root.finding.fault_class in _PROVEN or agreed)
    )


def _too_many(entries: list[Culprit], topology: Topology) -> bool:
    nodes = {entry.id for entry in entries if entry.kind == "node"}
    total = len(set(topology.nodes.values()))
    return len(nodes) > MOST_EVICTED_NODES and 4 * len(nodes) > total


def _evict(entries: list[Culprit], *, partly: bool) -> Action:
    nodes = tuple(dict.fromkeys(entry.id for entry in entries if entry.kind == "node"))
    ranks = tuple(sorted({rank for entry in entries if entry.kind != "node" for rank in entry.ranks}))
    where = ", ".join((*nodes, *(f"the machine of rank {rank}" for rank in ranks)))
    more = "; probe the others before they are touched" if partly else ""
    return Action(
        kind="evict", nodes=nodes, ranks=ranks, why=f"replace {where} and restart the job from its checkpoint{more}"
    )


def _look_first(entries: list[Culprit]) -> Action:
    nodes = tuple(dict.fromkeys(entry.id for entry in entries if entry.kind == "node"))
    ranks = tuple(sorted({rank for entry in entries for rank in entry.ranks}))
    return Action(kind="probe", nodes=nodes, ranks=ranks, why="the proof is not enough to evict: look at these first")
