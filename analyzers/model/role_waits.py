"""Who waits for whom among the instances of roles and their queues, while they wait: where a chain of waits ends.

A wait names a role, an instance ("reward 0"), "queue:NAME", or another address. The steady cycle trainer, queue, rollout,
weights, trainer is no deadlock: a wait for weights that the trainer already has is a transfer, and ends at the waiter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from analyzers.knowledge.role_rules import RoleRules
from analyzers.model.role_instances import Instance, Seat, serving

QUEUE = "queue:"
MOST_AHEAD = 1_000  # versions of the weights beyond those of the others: one that states more is believed in nothing
_Edge = tuple[str, int | None]  # what is waited for, and the version of the weights that the waiter has
_PARTED: _Edge = ("", None)  # no wait


@dataclass
class RoleWaits:
    """The waits of a job's instances at one instant."""

    instances: Mapping[Seat, Instance]
    rules: RoleRules
    now: float
    waiting: list[Instance] = field(default_factory=list)
    _by_role: dict[str, list[Instance]] = field(default_factory=lambda: defaultdict(list))
    _by_kind: dict[str, list[Instance]] = field(default_factory=lambda: defaultdict(list))
    _targets: dict[_Edge, tuple[Instance, ...] | None] = field(default_factory=dict)
    _ends: dict[_Edge, tuple[list[Instance], bool]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Sort the instances by role and find those that wait."""
        for one in serving(self.instances):
            self._by_role[one.role].append(one)
            self._by_kind[self.rules.kind(one.role)].append(one)
        self.waiting = [one for one in serving(self.instances) if self.active(one)]

    def of_role(self, role: str) -> list[Instance]:
        """Return the serving instances of a role."""
        return self._by_role.get(role, [])

    def of_kind(self, kind: str) -> list[Instance]:
        """Return the serving instances of all roles that are for one thing."""
        return self._by_kind.get(kind, [])

    def active(self, one: Instance) -> bool:
        """Whether it waits for another now, as far as it has said anything lately."""
        if not one.waits or self.now - one.spoke_at > self.rules.bounds.stale_seconds:
            return False
        found = self._of(one)
        return found is None or any(other is not one for other in found)

    def fetches(self, one: Instance) -> bool:
        """Whether it waits, as far as it has said lately, for weights that who it waits for has already."""
        fresh = one.waits and self.now - one.spoke_at <= self.rules.bounds.stale_seconds
        return fresh and any(newer(other.weights, one.weights) for other in self._asked(one.waiting_for or ""))

    def ends(self, one: Instance) -> tuple[list[Instance], bool]:
        """Return those at which its chain of waits ends, which do not wait themselves, and whether any end is unseen.

        Thousands may wait each for the next: what is found for the first holds for all up to where a chain parts.
        """
        seen, alike = set[_Edge](), list[_Edge]()
        left, found, unseen = [one], dict[Seat, Instance](), False
        while left:
            waiter = left.pop()
            if (edge := _edge(waiter)) in seen:
                continue
            if len(seen) == len(alike):
                alike.append(edge)
            seen.add(edge)
            if edge in self._ends:
                known, hidden = self._ends[edge]
                found, unseen = found | {end.seat: end for end in known}, unseen or hidden
                continue
            targets = self._of(waiter)
            unseen = unseen or not targets
            for target in targets or ():
                if self.active(target):
                    left.append(target)
                else:
                    found[target.seat] = target
            if len(targets or ()) != 1:
                seen.add(_PARTED)
        result = [found[seat] for seat in sorted(found)], unseen
        self._ends.update(dict.fromkeys(alike, result))
        return result

    @cached_property
    def behind(self) -> dict[Seat, list[Instance]]:
        """Map each instance at which chains end to those whose chains they are."""
        chains: dict[_Edge, list[Instance]] = defaultdict(list)
        for one in self.waiting:
            chains[_edge(one)].append(one)
        found: dict[Seat, list[Instance]] = defaultdict(list)
        for waiters in chains.values():
            for end in self.ends(waiters[0])[0]:
                found[end.seat] += waiters
        return found

    def _of(self, one: Instance) -> tuple[Instance, ...] | None:
        """Return for which instances it waits; None: for one that is not among them."""
        edge = _edge(one)
        if edge not in self._targets:
            self._targets[edge] = self._named(one)
        return self._targets[edge]

    def _named(self, one: Instance) -> tuple[Instance, ...] | None:
        target = one.waiting_for or ""
        if target.startswith(QUEUE):
            return self._at_queue(one, target.removeprefix(QUEUE))
        found = self._asked(target)
        # It has what this one waits for: what takes so long is the transfer.
        transfer = [other for other in found if newer(other.weights, one.weights)]
        return tuple(other for other in found if other not in transfer) if found else None

    def _asked(self, target: str) -> list[Instance]:
        """Return the instances that a wait names: one, those of a role, or of all roles that are for that."""
        role, _, name = target.partition(" ")
        found = [self.instances[role, name]] if (role, name) in self.instances else self._by_role.get(target, [])
        kind = self.rules.kind(target) if not found and ":" not in target else ""
        return self._by_kind.get(kind, []) if kind else found

    def _at_queue(self, one: Instance, queue: str) -> tuple[Instance, ...] | None:
        held = self.instances.get(("queue", queue))
        fills = self.rules.feeds(one.role, queue)
        if held is not None and held.queue_depth and not fills:
            return ()  # there is something in it: this one is about to go on
        if fills:
            return tuple(self.of_kind("trainer")) or None
        feeding = (role for role in self._by_role if self.rules.feeds(role, queue))
        return tuple(other for role in feeding for other in self._by_role[role]) or None


def _edge(one: Instance) -> _Edge:
    return one.waiting_for or "", one.weights


def newer(one: int | None, other: int | None) -> bool:
    """Return whether one version of the weights is later than another; False where either is not known."""
    return one is not None and other is not None and one > other
