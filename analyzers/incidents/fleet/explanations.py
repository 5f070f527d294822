"""Which shared domain explains a cluster: it has nearly all affected nodes, few of its nodes are spared, and some outside are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from analyzers.incidents.fleet.clusters import Cluster
from analyzers.incidents.fleet.domains import Domain
from analyzers.incidents.fleet.rules import Rules
from analyzers.model.finding import Cause, Kind

# What can make nodes show a class together. A switch also keeps nodes from a file server; a rack is its cooling or power.
_CAN: dict[str, tuple[str, ...]] = {
    "silence": ("switch", "rack", "power"),
    "link": ("switch", "rack", "power"),
    "device": ("driver", "rack", "power"),
    "host": ("rack", "power"),
    "storage": ("storage", "switch"),
}
_NAMED: dict[str, tuple[Kind, Cause]] = {
    "switch": ("switch", "network"),
    "storage": ("storage", "storage"),
    "driver": ("library", "platform"),
    "rack": ("platform", "platform"),
    "power": ("platform", "platform"),
}
MOST_SURE = 0.95


@dataclass(frozen=True, slots=True)
class Explanation:
    """One domain that would explain a cluster."""

    kind: Kind
    id: str
    cause: Cause
    probability: float
    why: str
    nodes: frozenset[str]


def explain_cluster(
    cluster: Cluster, domains: Iterable[Domain], known: Collection[str], rules: Rules
) -> Sequence[Explanation]:
    """Return the explanations of a cluster, the best first; two equal ones are no answer."""
    if cluster.all_agents:
        return (_ourselves(cluster),)
    fitting = [found for domain in domains if (found := _fits(cluster, domain, known, rules)) is not None]
    return sorted(fitting, key=lambda found: (-found.probability, found.kind, found.id))


def _ourselves(cluster: Cluster) -> Explanation:
    why = f"all {len(cluster.members)} agents fell silent together: what they share is this service and the way to it"
    return Explanation("platform", "this service", "platform", 0.9, why, cluster.nodes)


def _fits(cluster: Cluster, domain: Domain, known: Collection[str], rules: Rules) -> Explanation | None:
    if domain.kind not in _CAN[cluster.sign_class.family] or not _same_server(cluster, domain):
        return None
    inside = cluster.nodes & domain.nodes
    members = domain.nodes & set(known)
    # A silent file server is named by the nodes that wait for it; any other domain needs spared nodes as a contrast.
    contrast = len(known) > len(members) or domain.kind == "storage"
    within, hit = len(inside) / len(cluster.members), len(inside) / max(len(members), 1)
    if len(inside) <= 1 or within < rules.explained_within or hit < rules.explained_hit or not contrast:
        return None
    kind, cause = _NAMED[domain.kind]
    name = domain.name if domain.kind in ("switch", "storage") else f"{domain.kind} {domain.name}"
    spared = (
        f"{len(known) - len(members)} nodes outside of it" if len(known) > len(members) else "no other node is seen"
    )
    why = f"{len(inside)} of its {len(members)} nodes show it, and {len(cluster.members) - len(inside)} of {spared}"
    if len(known) <= len(members):
        why = f"{len(inside)} of the {len(members)} nodes that it serves show it"
    return Explanation(kind, name, cause, round(min(MOST_SURE, within * hit * MOST_SURE), 4), why, domain.nodes)


def _same_server(cluster: Cluster, domain: Domain) -> bool:
    return domain.kind != "storage" or cluster.sign_class.subject in ("", domain.name)
