"""All jobs and nodes together, examined at every tick."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from analyzers.incidents.fleet.alarms import Alarms, newest_attempts
from analyzers.incidents.fleet.clusters import Cluster, cluster_signs, cluster_silences, find_silent
from analyzers.incidents.fleet.domains import Domain, Domains
from analyzers.incidents.fleet.explanations import Explanation, explain_cluster
from analyzers.incidents.fleet.fleet_verdict import best_explanation, build_symptom, build_verdict, first_nodes
from analyzers.incidents.fleet.node_activity import NodeActivity
from analyzers.incidents.fleet.rules import Rules
from analyzers.incidents.fleet.shared_incident import (
    ALL_SILENT,
    DETECTORS,
    OngoingIncident,
    SharedIncident,
    detector_name,
    explained_detectors,
    held_jobs,
    stalled_jobs,
    symptom_key,
)
from analyzers.incidents.fleet.signs import NodeSigns
from analyzers.incidents.job_views import JobView
from analyzers.incidents.messages import Alarm, Received
from analyzers.knowledge import Knowledge
from analyzers.model.incident import Incident

AWAY_SECONDS = 30.0  # ticks come every ten: after a longer pause the engine was not running


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetReport:
    """The result of one tick."""

    shared: tuple[SharedIncident, ...] = ()  # infrastructure incidents that go on, by their beginning
    over: Mapping[str, str] = field(default_factory=dict)  # key → why it is over, once
    alarms: tuple[Alarm, ...] = ()  # raised or over since the last tick
    silent: frozenset[str] = frozenset()  # nodes that are silent for longer than usual


class Fleet:
    """The memory between two ticks. Batches and ticks in the same order give the same reports."""

    def __init__(self, knowledge: Knowledge) -> None:
        self._knowledge, self._rules, self._domains = knowledge, Rules.from_knowledge(knowledge), Domains(knowledge)
        self._signs: dict[str, NodeSigns] = {}
        self._ongoing: list[OngoingIncident] = []
        self._alarms = Alarms(self._rules)
        self._unreadable: dict[str, float] = {}  # node → when records of it last could not be used
        self._newest_at: float | None = None  # of any batch
        self._gap_seconds, self._gap_until = 0.0, 0.0  # the newest pause of the log
        self._looked_at: float | None = None
        self._grace_until = 0.0

    def take(self, received: Received) -> None:
        """Apply a batch."""
        if self._newest_at is not None and received.received_at - self._newest_at > self._rules.silence_seconds:
            self._gap_seconds, self._gap_until = received.received_at - self._newest_at, received.received_at
        self._newest_at = max(received.received_at, self._newest_at or 0.0)
        if received.unreadable:
            self.note_unreadable(received.node, received.received_at)
        signs = self._signs.get(received.node)
        if signs is None:
            signs = self._signs[received.node] = NodeSigns()
        signs.take(received)

    def note_unreadable(self, node: str, at: float) -> None:
        """Note that a node sent something that could not be used."""
        self._unreadable[node] = at

    def restore(self, incidents: Iterable[Incident], alarms: Iterable[Alarm] = ()) -> None:
        """Restore the open infrastructure incidents and the raised alarms of an earlier engine."""
        for incident in incidents:
            if incident.kind == "infrastructure" and incident.closed_at is None and incident.symptoms:
                first = incident.symptoms[0]
                if first.detector in (ALL_SILENT, *DETECTORS.values()):
                    self._ongoing.append(OngoingIncident(first.detector, first.at, first.nodes or incident.nodes))
        for alarm in alarms:
            if alarm.raised:
                self._alarms.raised[alarm.kind, alarm.job] = alarm

    def look(self, views: Mapping[Any, JobView], nodes: Mapping[str, NodeActivity], now: float) -> FleetReport:
        """Examine all jobs and nodes. ``nodes``: their activity, without forgotten nodes."""
        self._forget(nodes)
        mute = find_silent(nodes, self._rules, now)
        in_grace = self._in_grace(nodes, now)
        jobs = newest_attempts(views.values())
        jobs_on = _jobs_on(jobs)
        clusters = list(cluster_signs(self._signs, nodes, jobs_on, self._rules, self._knowledge, now))
        clusters += cluster_silences(mute, nodes, jobs, self._rules, now)
        over = self._follow(clusters, mute, nodes, in_grace=in_grace)
        return FleetReport(
            shared=tuple(self._describe(ongoing, jobs, nodes, mute) for ongoing in self._ongoing if ongoing.clusters),
            over=over,
            alarms=self._alarm(jobs, mute, nodes, now, in_grace=in_grace),
            silent=frozenset() if in_grace else frozenset(mute),
        )

    def _forget(self, nodes: Collection[str]) -> None:
        if len(self._signs) > len(nodes):
            self._signs = {name: signs for name, signs in self._signs.items() if name in nodes}
            self._domains.forget(nodes)
        if len(self._unreadable) > len(nodes):
            self._unreadable = {name: at for name, at in self._unreadable.items() if name in nodes}

    def _in_grace(self, nodes: Mapping[str, NodeActivity], now: float) -> bool:
        """Whether the engine has just begun or was not running: earlier silence then proves nothing."""
        rules = self._rules
        if self._looked_at is None or now - self._looked_at > AWAY_SECONDS:
            self._grace_until = now + rules.silence_grace_seconds
        self._looked_at = now
        usual = [median(seen.intervals) for seen in nodes.values() if seen.intervals]
        if self._gap_seconds > rules.silence_intervals * min(usual, default=0.0):
            self._grace_until = max(self._grace_until, self._gap_until + rules.silence_grace_seconds)
        return now < self._grace_until

    def _follow(
        self, clusters: Iterable[Cluster], mute: Collection[str], nodes: Mapping[str, NodeActivity], *, in_grace: bool
    ) -> dict[str, str]:
        """Assign each cluster to its incident, or to a new one; return those that are over, and why."""
        going: set[int] = set()
        for cluster in sorted(clusters, key=lambda one: (one.onset, one.sign_class)):
            ongoing = next((one for one in self._ongoing if one.is_of(cluster)), None)
            if ongoing is None:
                if in_grace and cluster.sign_class.family == "silence":
                    continue
                ongoing = OngoingIncident(detector_name(cluster), cluster.onset, first_nodes(cluster))
                self._ongoing.append(ongoing)
            ongoing.take(cluster)
            going.add(id(ongoing))
        ended = [
            one for one in self._ongoing if id(one) not in going and not (in_grace and _may_return(one, mute, nodes))
        ]
        self._ongoing = [one for one in self._ongoing if one not in ended]
        return {_key(one): _because(one, mute, nodes, self._rules) for one in ended}

    def _describe(
        self,
        ongoing: OngoingIncident,
        jobs: Iterable[JobView],
        nodes: Mapping[str, NodeActivity],
        mute: Collection[str],
    ) -> SharedIncident:
        domains = self._domains.among(nodes, self._reported_domains())
        cluster, found = self._best(ongoing, domains, nodes)
        jobs_nodes = {job.job: frozenset(job.ranks.values()) for job in jobs}
        concerned = frozenset(job for job, on in jobs_nodes.items() if on & ongoing.nodes)
        verdict = build_verdict(
            ongoing, cluster, found, knowledge_hash=self._knowledge.hash, known=nodes, jobs=concerned,
            has_table=self._domains.has_table,
        )  # fmt: skip
        symptom = build_symptom(ongoing, self._rules)
        return SharedIncident(
            key=symptom_key(symptom),
            symptom=symptom,
            verdict=verdict,
            nodes=ongoing.nodes,
            jobs=concerned,
            held=held_jobs(ongoing, jobs_nodes, mute),
            explained=explained_detectors(cluster, best_explanation(found)),
            explained_jobs=stalled_jobs(ongoing, jobs_nodes),
        )

    def _best(
        self, ongoing: OngoingIncident, domains: Iterable[Domain], nodes: Collection[str]
    ) -> tuple[Cluster, tuple[Explanation, ...]]:
        """Return the leading cluster and its explanations: the first cluster with a single best explanation."""
        leading = ongoing.leading
        domains = list(domains)
        for cluster in leading:
            found = tuple(explain_cluster(cluster, domains, nodes, self._rules))
            if best_explanation(found) is not None:
                return cluster, found
        return leading[0], tuple(explain_cluster(leading[0], domains, nodes, self._rules))

    def _reported_domains(self) -> dict[tuple[str, str], set[str]]:
        found: dict[tuple[str, str], set[str]] = defaultdict(set)
        for name, signs in self._signs.items():
            for server in signs.servers:
                found["storage", server].add(name)
            if signs.driver:
                found["driver", signs.driver].add(name)
        return found

    def _alarm(
        self,
        jobs: list[JobView],
        mute: Collection[str],
        nodes: Mapping[str, NodeActivity],
        now: float,
        *,
        in_grace: bool,
    ) -> tuple[Alarm, ...]:
        if in_grace or (len(mute) == len(nodes) > 1):  # our own outage is one alarm, and not one a job
            return ()
        return (
            *self._alarms.unreadable(self._unreadable, now),
            *self._alarms.clocks(nodes),
            *self._alarms.coverage(jobs, self._signs, mute, nodes, now),
        )


def _jobs_on(jobs: Iterable[JobView]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for job in jobs:
        for node in set(job.ranks.values()):
            found[node].add(job.job)
    return found


def _may_return(ongoing: OngoingIncident, mute: Collection[str], nodes: Collection[str]) -> bool:
    """Whether it may still last though it is not seen during our own grace time: silence of some, and restored incidents."""
    if ongoing.detector in (ALL_SILENT, DETECTORS["silence"]):
        return any(name in mute or name not in nodes for name in ongoing.nodes)
    return not ongoing.clusters


def _key(ongoing: OngoingIncident) -> str:
    return f"{ongoing.detector}@{ongoing.onset:.3f}/{ongoing.first[0] if ongoing.first else ''}"


def _because(ongoing: OngoingIncident, mute: Collection[str], nodes: Collection[str], rules: Rules) -> str:
    count = len(ongoing.nodes)
    if ongoing.detector in (ALL_SILENT, DETECTORS["silence"]):
        back = sum(name in nodes and name not in mute for name in ongoing.nodes)
        gone = sum(name not in nodes for name in ongoing.nodes)
        more = f"; {gone} are forgotten after a long silence" if gone else ""
        return f"{'all' if back == count else back} of {count} agents report again{more}"
    if ongoing.detector == "shared_storage":
        return f"the file system answers again on so many of the {count} nodes that no common cause is left"
    if ongoing.detector == DETECTORS["link"]:
        return f"so few links of the {count} nodes are still down that no common cause is left"
    return f"no further sign on any of the {count} nodes for {rules.same_quiet_seconds:g} s"
