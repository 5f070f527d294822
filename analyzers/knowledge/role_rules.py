"""The rules of roles and phases (role_rules.toml) as typed rows: what a role's name means, and what a phase allows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

import msgspec

from analyzers.knowledge import Knowledge
from analyzers.knowledge.typed import KnowledgeRowError, typed

Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e7)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
MOST_NAME, MOST_NAMES = 4_096, 1_024


class RoleRule(msgspec.Struct, frozen=True, kw_only=True):
    """What a role is for. ``still``: phase → seconds without progress; ``feeds``: the queues that it fills."""

    name: str = "(?!)"
    still: dict[str, Seconds] = {}
    decided_seconds: Seconds = 300
    slow_seconds: Seconds = 300
    feeds: tuple[str, ...] = ()
    restart: Literal["role", "job"] = "role"


class PhaseRule(msgspec.Struct, frozen=True, kw_only=True):
    """What a phase allows. ``awaits``: an instance only waits in it; ``works``: it has something to do."""

    name: str
    longest_seconds: Seconds = 0
    awaits: bool = False
    works: bool = False


class RoleBounds(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of every role; role_rules.toml explains them."""

    heartbeat_seconds: Seconds = 45
    unanswered_seconds: Seconds = 45
    quiet_seconds: Seconds = 60
    stale_seconds: Seconds = 90
    lost_share: Share = 0.5
    sync_seconds: Seconds = 180
    lost_request_seconds: Seconds = 180
    pile_share: Share = 0.7
    pile_least: Annotated[int, msgspec.Meta(ge=1)] = 4
    tail_seconds: Seconds = 3600
    slow_factor: Annotated[float, msgspec.Meta(ge=1.2)] = 2.0
    piled_factor: Annotated[float, msgspec.Meta(ge=1.2)] = 1.5
    grown_share: Share = 0.25


class RoleRules(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The document. A role or phase that no row fits is of the kind "" and has the defaults."""

    role: dict[str, RoleRule] = {}
    phase: dict[str, PhaseRule] = {}
    bounds: RoleBounds = RoleBounds()

    @cached_property
    def _roles(self) -> dict[str, str]:
        return {}

    @cached_property
    def _phases(self) -> dict[str, str]:
        return {}

    def kind(self, role: str) -> str:
        """Return what a role is for, by its name: trainer, rollout, reward …; empty: not known."""
        return _known(self._roles, self.role, role)

    def works_alone(self, role: str) -> bool:
        """Return whether each instance of a role works by itself: there may be fewer, and one's end is no other's."""
        return self.kind(role) in _ALONE

    def of_role(self, role: str) -> RoleRule:
        """Return the rule of a role, by its name."""
        return self.role.get(self.kind(role), _NO_ROLE)

    def phase_kind(self, phase: str | None) -> str:
        """Return what a phase is, by its name: train, generate, weight_sync …; empty: not known."""
        return _known(self._phases, self.phase, phase or "")

    def of_phase(self, phase: str | None) -> PhaseRule:
        """Return the rule of a phase, by its name."""
        return self.phase.get(self.phase_kind(phase), _NO_PHASE)

    def feeds(self, role: str, queue: str) -> bool:
        """Return whether a role fills a queue: a queue that names what feeds it is fed by nothing else."""
        named = {kind for kind, rule in self.role.items() if any(one and one in queue.lower() for one in rule.feeds)}
        return self.kind(role) in named if named else "" in self.of_role(role).feeds


_NO_ROLE, _NO_PHASE = RoleRule(), PhaseRule(name="")
_ALONE = frozenset({"rollout", "reward", "environment"})


def _known(found: dict[str, str], rows: Mapping[str, RoleRule] | Mapping[str, PhaseRule], name: str) -> str:
    """Return what a name is; names come by the thousand readings, and are few."""
    if name not in found:
        if len(found) >= MOST_NAMES:
            found.clear()
        found[name] = _first(rows, name)
    return found[name]


def _first(rows: Mapping[str, RoleRule] | Mapping[str, PhaseRule], name: str) -> str:
    lowered = name.lower()[:MOST_NAME]
    if not lowered:
        return ""
    return next((kind for kind, row in rows.items() if re.search(row.name, lowered)), "")


def role_rules(knowledge: Knowledge) -> RoleRules:
    """Return the rules; raise ``KnowledgeRowError`` where a site's rows cannot be meant."""
    rules = typed(knowledge, "role_rules", RoleRules)
    for problem in _wrong(rules):
        raise KnowledgeRowError(f"knowledge role_rules.toml: {problem}: correct that row or leave it out")
    return rules


def problems(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a site's document; a row of a packaged role may have a part of its values."""
    known = {"meta", "role", "phase", "bounds"}
    yield from (f"[{name}] is no part of role_rules.toml" for name in document.keys() - known)
    rows = {**document, "phase": {name: {"name": "(?!)", **row} for name, row in document.get("phase", {}).items()}}
    try:
        yield from _wrong(msgspec.convert(rows, RoleRules))
    except (msgspec.ValidationError, TypeError) as problem:
        yield str(problem)


def _wrong(rules: RoleRules) -> Iterator[str]:
    names = {
        **{name: row.name for name, row in rules.role.items()},
        **{name: row.name for name, row in rules.phase.items()},
    }
    for name, pattern in names.items():
        try:
            re.compile(pattern)
        except re.error as problem:
            yield f"the name of {name} is no regular expression ({problem})"
    for name, role in rules.role.items():
        for phase in role.still.keys() - rules.phase.keys() - {""}:
            if rules.phase and phase not in _PACKAGED:
                yield f"still of {name} names the phase {phase}, which has no row"


_PACKAGED = frozenset({"weight_sync", "switch", "checkpoint", "warm_up", "wait", "tool", "score", "generate", "train"})
