"""Alarms about our own observation: too few of a job's ranks are seen, clocks are apart."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from analyzers.incidents.fleet.node_activity import NodeActivity
from analyzers.incidents.fleet.rules import Rules
from analyzers.incidents.fleet.signs import NodeSigns
from analyzers.incidents.job_views import JobView
from analyzers.incidents.messages import Alarm

MOST_NAMED = 8
MOST_NODES = 1_024  # of an alarm
UNREADABLE_SECONDS = 600.0  # since the last such record of any node
STEADY_LOOKS = 3  # a clock's offset is known up to a batch's travel time: one late batch is no wrong clock


def list_names(nodes: Iterable[str]) -> str:
    """List nodes for a sentence, the first few."""
    ordered = sorted(nodes)
    more = f" and {len(ordered) - MOST_NAMED} more" if len(ordered) > MOST_NAMED else ""
    return ", ".join(ordered[:MOST_NAMED]) + more


@dataclass(slots=True)
class Alarms:
    """The raised alarms, so that each is reported once, and its end once."""

    rules: Rules
    raised: dict[tuple[str, str | None], Alarm] = field(default_factory=dict)
    apart: dict[str, int] = field(default_factory=dict)  # node → ticks at which its clock was off

    def clocks(self, nodes: Mapping[str, NodeActivity]) -> Iterator[Alarm]:
        """Yield the alarm of clocks that are apart; again where further nodes' are."""
        held = self.raised.get(("clock", None))
        reported = set(held.nodes) if held else set()
        for name, seen in nodes.items():
            limit = self.rules.clock_over_seconds if name in reported else self.rules.clock_raised_seconds
            self.apart[name] = self.apart.get(name, 0) + 1 if abs(seen.offset) > limit else 0
        self.apart = {name: looks for name, looks in self.apart.items() if looks and name in nodes}
        off = {name for name, looks in self.apart.items() if looks >= STEADY_LOOKS or name in reported}
        if not off:
            yield from self._over("clock", None, "all clocks agree again")
        elif off - reported:
            worst = max(sorted(off), key=lambda name: abs(nodes[name].offset))
            text = (
                f"{_nodes(len(off))} with a clock more than {self.rules.clock_raised_seconds:g} s off ({list_names(off)}), at"
                f" most {nodes[worst].offset:+.1f} s on {worst}: instants are corrected by it, and are less certain"
            )
            yield self._raise(Alarm(kind="clock", text=text, nodes=tuple(sorted(off))))

    def unreadable(self, last_at: Mapping[str, float], now: float) -> Iterator[Alarm]:
        """Yield the alarm of nodes whose records cannot be read; again where further nodes' are. ``last_at``: node → when."""
        held = self.raised.get(("records", None))
        nodes = {node for node, at in last_at.items() if now - at < UNREADABLE_SECONDS}
        if not nodes:
            yield from self._over("records", None, f"all records of {UNREADABLE_SECONDS:g} s could be read")
        elif held is None or nodes - set(held.nodes):
            text = (
                f"records of {_nodes(len(nodes))} cannot be read and are left out ({list_names(nodes)}): is the agent there of"
                " this version, and who has its token? `faulthound nodes show NODE` has the version"
            )
            yield self._raise(Alarm(kind="records", text=text, nodes=tuple(sorted(nodes)[:MOST_NODES])))

    def coverage(
        self,
        jobs: Iterable[JobView],
        signs: Mapping[str, NodeSigns],
        silent: Collection[str],
        nodes: Collection[str],
        now: float,
    ) -> Iterator[Alarm]:
        """Yield an alarm for each job of whose ranks too few are seen."""
        running: dict[str, JobView] = {job.job: job for job in jobs}
        for _, job in sorted(running.items()):
            if job.first_at is None or now - job.first_at < self.rules.coverage_settle_seconds:
                continue
            yield from self._coverage(_sight(job, signs, silent, nodes))
        for kind, name_ in [key for key in self.raised if key[0] == "coverage" and key[1] not in running]:
            yield from self._over(kind, name_, f"job {name_} is no longer running")

    def _coverage(self, sight: _Sight) -> Iterator[Alarm]:
        held = self.raised.get(("coverage", sight.job))
        unseen = {*sight.silent, *sight.blind}
        if sight.share < self.rules.coverage_raised_below and (held is None or unseen - set(held.nodes)):
            text = sight.describe(self.rules)
            yield self._raise(Alarm(kind="coverage", text=text, nodes=tuple(sorted(unseen)), job=sight.job))
        elif sight.share >= self.rules.coverage_over_from:
            yield from self._over(
                "coverage", sight.job, f"{sight.share:.0%} of the ranks of job {sight.job} are seen again"
            )

    def _raise(self, alarm: Alarm) -> Alarm:
        self.raised[alarm.kind, alarm.job] = alarm
        return alarm

    def _over(self, kind: str, job: str | None, text: str) -> Iterator[Alarm]:
        held = self.raised.pop((kind, job), None)
        if held is not None:
            yield Alarm(kind=kind, text=text, raised=False, nodes=held.nodes, job=job)


@dataclass(frozen=True, slots=True)
class _Sight:
    """Of a job's ranks: how many are seen, and why the others are not."""

    job: str
    ranks: int
    unplaced: int
    silent: Mapping[str, int]  # node → ranks
    blind: Mapping[str, int]
    why: str  # the blind nodes', of the first

    @property
    def share(self) -> float:
        return 1 - (self.unplaced + sum(self.silent.values()) + sum(self.blind.values())) / max(self.ranks, 1)

    def describe(self, rules: Rules) -> str:
        parts = []
        if self.silent:
            parts.append(
                f"{sum(self.silent.values())} on {_nodes(len(self.silent))} that do not report ({list_names(self.silent)})"
            )
        if self.blind:
            parts.append(
                f"{sum(self.blind.values())} on {_nodes(len(self.blind))} whose agent can take neither stacks nor recorder dumps"
                f" ({list_names(self.blind)}; {self.why})"
            )
        if self.unplaced:
            parts.append(f"{self.unplaced} on nodes that were not reported")
        share, bound = f"{self.share:.0%} of {self.ranks} ranks", f"below {rules.coverage_raised_below:.0%}"
        seen = f"{share} are seen, {bound}; not seen"
        if not self.silent and not self.unplaced:
            seen = f"all ranks are seen by their processes, and {share} by stacks or recorder dumps, {bound}; not so"
        return f"job {self.job}: {seen}: {'; '.join(parts)}. A verdict may miss its culprit, and names no node for being unseen"


def _sight(job: JobView, signs: Mapping[str, NodeSigns], silent: Collection[str], nodes: Collection[str]) -> _Sight:
    on = Counter(job.ranks.values())
    ranks = max(job.world_size or 0, len(job.ranks))
    mute = {name: count for name, count in on.items() if name in silent or name not in nodes}
    blind = {name: count for name, count in on.items() if name not in mute and name in signs and signs[name].blind}
    why = signs[min(blind)].blind if blind else ""
    return _Sight(job.job, ranks, ranks - len(job.ranks), mute, blind, why)


def _nodes(count: int) -> str:
    return f"{count} node{'s' if count != 1 else ''}"


def newest_attempts(jobs: Iterable[JobView]) -> list[JobView]:
    """Return the newest attempt of each job that has not ended."""
    by_name: dict[str, list[JobView]] = defaultdict(list)
    for job in jobs:
        by_name[job.job].append(job)
    last = [max(attempts, key=lambda job: job.attempt or 0) for _, attempts in sorted(by_name.items())]
    return [job for job in last if job.ranks and len(job.ended) < len(job.ranks)]
