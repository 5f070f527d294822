"""Processors stuck on many hosts at one time: what the hosts share holds them up, and none of them is the faulty one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from analyzers.diagnosis.hardware.occurrences import Occurrence
from analyzers.model.finding import Finding, Suspect

STUCK = frozenset({"soft_lockup", "hard_lockup", "rcu_stall", "hung_task"})
MANY, TOGETHER_SECONDS = 3, 60.0
EVIDENCE_LIMIT = 8


def many(occurrences: Iterable[Occurrence], nodes: int) -> list[list[Occurrence]]:
    """Return what befell so many hosts within a minute, or all of the job's ``nodes``, each time by itself.

    Only hosts that are named count: of one there may be several logs.
    """
    enough = min(MANY, nodes) if nodes > 1 else MANY
    named = [one for one in occurrences if one.event.node is not None]
    return [found for found in _clusters(named) if len(_hosts(found)) >= enough]


def finding(occurrences: Sequence[Occurrence]) -> Finding:
    """Blame what the hosts share: power, the hypervisor, a file system that all of them mount."""
    nodes = len(_hosts(occurrences))
    why = f"processors or processes were stuck on {nodes} nodes within a minute: it lies in what they share"
    evidence = tuple(one.evidence("stuck") for one in occurrences[:EVIDENCE_LIMIT])
    return Finding(
        analyzer="hardware", family="hardware", symptom="hardware", cause="platform", fault_class="stuck_together",
        suspects=(Suspect(kind="platform", strength=0.5, why=why, evidence=evidence),), first_symptom=evidence[0],
        onset=min((one.event.at for one in occurrences if one.event.at is not None), default=None),
    )  # fmt: skip


def _hosts(occurrences: Iterable[Occurrence]) -> set[str]:
    """Return the hosts by their first label: "gpu-07" and "gpu-07.cluster.local" are one."""
    return {(one.event.node or "").partition(".")[0] for one in occurrences}


def _clusters(occurrences: Iterable[Occurrence]) -> Iterator[list[Occurrence]]:
    """Group what began within a minute of the first, on clocks that can be compared."""
    cluster: list[Occurrence] = []
    stuck = (one for one in occurrences if one.event.event in STUCK and one.at.seconds is not None)
    for one in sorted(stuck, key=lambda one: (one.at.clock, one.at.seconds or 0.0, one.machine)):
        gap = one.at.after(cluster[0].at) if cluster else None
        if cluster and (gap is None or gap > TOGETHER_SECONDS):
            yield cluster
            cluster = []
        cluster.append(one)
    if cluster:
        yield cluster
