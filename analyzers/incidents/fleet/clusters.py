"""Which nodes show the same together: silence by chains of last batches, all else within a window of its first signs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median

from analyzers.incidents.fleet.node_activity import NodeActivity
from analyzers.incidents.fleet.rules import Rules
from analyzers.incidents.fleet.signs import NodeSigns, Sign, SignClass
from analyzers.incidents.job_views import JobView
from analyzers.knowledge import Knowledge

SILENCE = SignClass("silence")
LONGEST_INTERVAL_SECONDS = 300.0  # a gap longer than this was an outage, and no habit


@dataclass(slots=True)
class Cluster:
    """Nodes that show one class together. ``all_agents``: no agent reports at all."""

    sign_class: SignClass
    onset: float
    members: dict[str, list[Sign]] = field(default_factory=dict)
    all_agents: bool = False

    @property
    def nodes(self) -> frozenset[str]:
        """Return the names of the nodes."""
        return frozenset(self.members)

    def overlaps(self, nodes: Collection[str]) -> bool:
        """Whether at least half of the smaller set are the same nodes."""
        return 2 * len(self.members.keys() & set(nodes)) >= max(1, min(len(self.members), len(nodes)))


def find_silent(nodes: Mapping[str, NodeActivity], rules: Rules, now: float) -> dict[str, float]:
    """Return the nodes that have been silent for too long, with the instant of their last batch.

    A node is late against the newest batch of any node. Where that is old too, no node reports or the engine is late, and all
    nodes are silent together.
    """
    if not nodes:
        return {}
    bounds = {name: silence_bound_seconds(seen, rules) for name, seen in nodes.items()}
    if all(now - seen.last_received_at > bounds[name] for name, seen in nodes.items()):
        return {name: seen.last_received_at for name, seen in nodes.items()}
    newest = max(seen.last_received_at for seen in nodes.values())
    return {
        name: seen.last_received_at for name, seen in nodes.items() if newest - seen.last_received_at > bounds[name]
    }


def silence_bound_seconds(seen: NodeActivity, rules: Rules) -> float:
    """Return for how long a node may be silent: some of its usual intervals, and never less than the rules' seconds."""
    usual = [seconds for seconds in seen.intervals if seconds <= LONGEST_INTERVAL_SECONDS]
    return max(rules.silence_seconds, rules.silence_intervals * median(usual)) if usual else rules.silence_seconds


def cluster_silences(
    last_at: Mapping[str, float], nodes: Mapping[str, NodeActivity], jobs: Iterable[JobView], rules: Rules, now: float
) -> Iterator[Cluster]:
    """Yield the nodes that fell silent together, once no further node can belong to them."""
    jobs_nodes = [frozenset(job.ranks.values()) for job in jobs]
    for chain in _chains(last_at, rules.silence_together_seconds):
        onset = last_at[chain[0]]
        bounds = max(silence_bound_seconds(nodes[name], rules) for name in chain)
        all_agents = len(chain) > 1 and len(last_at) == len(nodes) and last_at[chain[-1]] == max(last_at.values())
        if now - onset >= bounds + rules.silence_settle_seconds and (all_agents or _many(chain, jobs_nodes, rules)):
            members = {name: [Sign(last_at[name], "its agent fell silent")] for name in chain}
            yield Cluster(SILENCE, onset, members, all_agents)


def _chains(last_at: Mapping[str, float], seconds: float) -> Iterator[list[str]]:
    """Yield the nodes in groups in which no two neighbours' last batches are further apart."""
    chain: list[str] = []
    for name in sorted(last_at, key=lambda name: (last_at[name], name)):
        if chain and last_at[name] - last_at[chain[-1]] > seconds:
            yield chain
            chain = []
        chain.append(name)
    if chain:
        yield chain


def _many(chain: Collection[str], jobs_nodes: Iterable[frozenset[str]], rules: Rules) -> bool:
    """Whether the nodes are too many for a coincidence: a single node is one."""
    if len(chain) >= rules.silence_nodes:
        return True
    members = set(chain)
    return any(
        len(members & nodes) >= max(2, rules.silence_job_share * len(nodes)) for nodes in jobs_nodes if len(nodes) > 1
    )


def cluster_signs(
    signs: Mapping[str, NodeSigns],
    nodes: Mapping[str, NodeActivity],
    jobs_on: Mapping[str, Collection[str]],
    rules: Rules,
    knowledge: Knowledge,
    now: float,
) -> Iterator[Cluster]:
    """Yield the classes that several nodes, or nodes of several jobs, show from about the same instant on."""
    shown: dict[SignClass, dict[str, list[Sign]]] = defaultdict(lambda: defaultdict(list))
    for name in sorted(signs.keys() & nodes.keys()):
        for of, sign in signs[name].shown(rules, knowledge, now, nodes[name].last_received_at):
            shown[of][name].append(sign)
    for of, members in sorted(shown.items()):
        onset = _onset(members, jobs_on, rules)
        if onset is not None:
            kept = {name: [sign for sign in found if sign.at >= onset] for name, found in members.items()}
            yield Cluster(of, onset, {name: found for name, found in kept.items() if found})


def _onset(members: Mapping[str, Iterable[Sign]], jobs_on: Mapping[str, Collection[str]], rules: Rules) -> float | None:
    """Return the first instant from which enough nodes, or nodes of enough jobs, showed it within the window."""
    signs = sorted((sign.at, name) for name, found in members.items() for sign in found)
    first = 0
    for at, _ in signs:
        while at - signs[first][0] > rules.same_seconds:
            first += 1
        within = {name for other, name in signs[first:] if other <= at}
        jobs = {job for name in within for job in jobs_on.get(name, ())}
        if len(within) >= rules.same_nodes or (len(within) > 1 and len(jobs) >= rules.same_jobs):
            return signs[first][0]
    return None
