"""One infrastructure incident: what several nodes show together, for how long, and which job symptoms it explains."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from analyzers.incidents.fleet.clusters import Cluster
from analyzers.incidents.fleet.explanations import Explanation
from analyzers.incidents.fleet.signs import SignClass
from analyzers.model.incident import Incident, Symptom
from analyzers.model.verdict import Verdict

NEAR_SECONDS = 120.0  # a switch that dies shows first in its links, then in mounts, then in silence
EARLIER_SECONDS = 60.0  # by which a job's symptom may seem to begin before what explains it
MOST_NODES = 64  # that a symptom names

ALL_SILENT = "all_silent"
DETECTORS = {
    "silence": "silent_together",
    "link": "shared_link",
    "storage": "shared_storage",
    "device": "shared_device",
    "host": "shared_host",
}
# Which cluster leads an incident that has several: the nearest to the root first.
ORDER = ("link", "host", "device", "storage", "silence")
_UNSEEN = frozenset({"rank_silent"})
_STALLS = frozenset({"no_progress", "outstanding", "zero_traffic"})
_EXPLAINED: dict[str, frozenset[str]] = {
    "silence": _STALLS,
    "link": _STALLS | {"hardware_event"},
    "storage": _STALLS,
    "device": frozenset({"hardware_event"}),
    "host": frozenset({"hardware_event"}),
}


def detector_name(cluster: Cluster) -> str:
    """Return the detector name of a cluster's symptom."""
    return ALL_SILENT if cluster.all_agents else DETECTORS[cluster.sign_class.family]


@dataclass(slots=True)
class OngoingIncident:
    """An infrastructure incident between two ticks. ``detector``, ``onset`` and ``first`` are its identity."""

    detector: str
    onset: float
    first: tuple[str, ...]  # nodes that it began with
    clusters: dict[SignClass, Cluster] = field(default_factory=dict)

    @property
    def nodes(self) -> frozenset[str]:
        """Return all nodes that have shown it."""
        return frozenset(self.first).union(*(cluster.members for cluster in self.clusters.values()))

    def is_of(self, cluster: Cluster) -> bool:
        """Whether a cluster belongs to this incident; a node that stays silent after our outage does not."""
        if self.detector == ALL_SILENT and cluster.sign_class.family == "silence":
            return cluster.all_agents
        mine = detector_name(cluster) == self.detector or cluster.sign_class in self.clusters
        near = abs(cluster.onset - self.onset) <= NEAR_SECONDS
        return (mine or near) and cluster.overlaps(self.nodes)

    def take(self, cluster: Cluster) -> None:
        """Add a cluster: nodes that have recovered remain among the affected ones."""
        held = self.clusters.get(cluster.sign_class)
        if held is None:
            self.clusters[cluster.sign_class] = cluster
            return
        held.members = {**held.members, **cluster.members}
        held.all_agents = held.all_agents or cluster.all_agents

    @property
    def leading(self) -> list[Cluster]:
        """Return the clusters, the nearest to the root first."""
        return sorted(
            self.clusters.values(), key=lambda one: (ORDER.index(one.sign_class.family), one.onset, one.sign_class)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedIncident:
    """An infrastructure incident as it is now. Equal ``key``: the same incident as at the tick before."""

    key: str
    symptom: Symptom
    verdict: Verdict
    nodes: frozenset[str]
    jobs: frozenset[str]  # that run on them
    held: frozenset[str]  # the jobs that it still holds: what the others show is their own
    explained: frozenset[str] = frozenset()  # detectors whose symptoms have no other ground here
    explained_jobs: frozenset[str] = frozenset()  # and the jobs of which that holds for a stall

    def explains(self, incident: Incident) -> bool:
        """Whether this is the only ground of a job's incident, which is then merged into it."""
        if incident.job not in self.held or incident.onset_at < self.symptom.at - EARLIER_SECONDS:
            return False
        return all(self._explains(symptom, incident.job) for symptom in incident.symptoms)

    def _explains(self, symptom: Symptom, job: str) -> bool:
        if symptom.detector in _UNSEEN:
            return set(symptom.nodes) <= self.nodes
        if symptom.detector not in self.explained:
            return False
        if symptom.detector == "hardware_event":
            return bool(symptom.nodes) and set(symptom.nodes) <= self.nodes
        return job in self.explained_jobs


def incident_key(incident: Incident) -> str:
    """Return the key of the ``SharedIncident`` that an infrastructure incident was opened for."""
    return symptom_key(incident.symptoms[0])


def symptom_key(symptom: Symptom) -> str:
    """Return a symptom's identity: what, since when, where first."""
    return f"{symptom.detector}@{symptom.at:.3f}/{symptom.nodes[0] if symptom.nodes else ''}"


def explained_detectors(cluster: Cluster, found: Explanation | None) -> frozenset[str]:
    """Return the detectors whose symptoms a cluster explains.

    Without a named cause, a coincidence must not hide a fault of the job itself. Waits for files need no named cause: a waiting
    rank does not move.
    """
    if cluster.all_agents or (found is None and cluster.sign_class.family != "storage"):
        return frozenset()
    return _EXPLAINED[cluster.sign_class.family]


def held_jobs(
    ongoing: OngoingIncident, jobs_nodes: Mapping[str, Collection[str]], silent: Collection[str]
) -> frozenset[str]:
    """Return the jobs that it still holds: of silence alone those with a silent node, as nodes that report show their state."""
    only_silent = all(of.family == "silence" for of in ongoing.clusters)
    nodes = ongoing.nodes & frozenset(silent) if only_silent else ongoing.nodes
    return frozenset(job for job, on in jobs_nodes.items() if nodes & set(on))


def stalled_jobs(ongoing: OngoingIncident, jobs_nodes: Mapping[str, Collection[str]]) -> frozenset[str]:
    """Return the jobs that it can have stalled.

    A lost link or machine stops a whole job. A file server stops the ranks that use it: half of a job's nodes, or a node on
    which a rank was seen to wait.
    """
    if any(of.family != "storage" for of in ongoing.clusters):
        return frozenset(job for job, nodes in jobs_nodes.items() if set(nodes) & ongoing.nodes)
    waiting = {
        name
        for cluster in ongoing.clusters.values()
        for name, signs in cluster.members.items()
        if any(sign.source == "process" for sign in signs)
    }
    return frozenset(
        job
        for job, nodes in jobs_nodes.items()
        if set(nodes) & waiting or 2 * len(set(nodes) & ongoing.nodes) >= len(nodes) > 0
    )
