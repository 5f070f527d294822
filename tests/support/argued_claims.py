"""Claims of analyzers, and what the verdict makes of them."""

from __future__ import annotations

from functools import cache

from analyzers.knowledge import Knowledge
from analyzers.model.finding import Evidence, Family, Finding, Suspect
from analyzers.model.topology import ProcessGroup, Topology
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.verdict.build import compose
from analyzers.verdict.correlate import combine
from service.packaged_knowledge import load

NODES = {rank: f"n{rank // 4}" for rank in range(64)}
GROUPS = (ProcessGroup("world", "0", "", "world", tuple(range(64))), ProcessGroup("tp", "7", "tp", "tp", (4, 5, 6, 7)))
SHAPE = Topology(tuple(range(64)), NODES, GROUPS)
BARE = Topology(tuple(range(64)))
FAMILY_OF: dict[str, Family] = {
    "hang": "waits", "ras": "waits", "stacks": "stacks", "process": "process", "hardware": "hardware", "crash": "log"
}  # fmt: skip


@cache
def knowledge() -> Knowledge:
    """The packaged knowledge, read once."""
    return load()


def suspect(*ranks: int, strength: float = 0.9, **more: object) -> Suspect:
    """Somebody, with one sentence of evidence."""
    name = ",".join(map(str, ranks)) or str(more.get("node"))
    known = {"kind": "rank", "why": f"{name} stands still", "evidence": (Evidence(text=f"seen at {name}"),)}
    return Suspect(strength=strength, ranks=ranks, **{**known, **more})  # type: ignore[arg-type]


def claim(analyzer: str, fault_class: str, *suspects: Suspect, **more: object) -> Finding:
    """One analyzer's claim."""
    known = {"symptom": "hang", "cause": "machine", "family": FAMILY_OF[analyzer], "together": len(suspects) == 1}
    return Finding(analyzer=analyzer, fault_class=fault_class, suspects=suspects, **{**known, **more})  # type: ignore[arg-type]


def a_set(*ranks: int, fault_class: str = "device_or_network", cause: str = "unknown", **more: object) -> Finding:
    """Waits that end in several ranks of which at least one is guilty."""
    members = tuple(suspect(rank, strength=round(0.9 / len(ranks), 4)) for rank in ranks)
    return claim("hang", fault_class, *members, together=False, cause=cause, scope=frozenset(ranks), **more)


def decided(*findings: Finding, topology: Topology = SHAPE) -> Verdict:
    """The verdict that these claims come to."""
    return compose(combine(findings, topology), Window(), topology, knowledge())


def named(verdict: Verdict) -> list[tuple[str, tuple[int, ...]]]:
    """Who is named: kind and id, and the guilty ranks."""
    return [(f"{culprit.kind} {culprit.id}", culprit.ranks) for culprit in verdict.culprits]


HUNG = claim("hang", "never_entered", suspect(5, strength=0.95), victims=tuple(r for r in range(64) if r != 5))
