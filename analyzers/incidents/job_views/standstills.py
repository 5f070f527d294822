"""When a job is known to have stood still, or not to have been watched: such a span teaches nothing about the job's rhythm.

- A rank's process was stopped, or an incident's verdict named a cause: never learned.
- No agent read the reporter of the steps: no standstill, neither counted nor learned.
- An incident that no verdict explained: learned only where it recurs at the places of a round period.
- An incident whose verdict was a pause: learned as any pause of the job's own.
- One that was a pause, and in which nothing waited too long later: learned at its place alone, for a fault may have followed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Literal

import msgspec

MOST_STANDSTILLS = 128
MOST_NODES = 8  # of one standstill: more are the whole job's, and no node's

Why = Literal["fault", "process", "agent", "unknown", "pause", "place"]
NEVER = frozenset({"fault", "process", "agent"})
OWN = frozenset({"pause", "place"})  # it is, or began as, a pause of the job's own
SHOWN = frozenset({"fault", "process", "unknown"})  # it was an incident, and no pause of the job's own


class Standstill(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A span by the service's clock. ``nodes``: those that a verdict, or the process's state, names."""

    key: str  # the incident, and which stop of it after the first, or whose process and since when
    since: float
    until: float | None = None  # None: it lasts
    why: Why = "unknown"
    nodes: tuple[str, ...] = ()

    @property
    def of_process(self) -> bool:
        """Whether a process was found stopped or stuck; otherwise it is an incident, or a span without an agent."""
        return self.key.startswith("rank ")


class Standstills:
    """The newest standstills of one attempt."""

    __slots__ = ("_known", "changes")

    def __init__(self) -> None:
        self._known: dict[str, Standstill] = {}
        self.changes = 0  # what was computed from them holds until this changes

    def __iter__(self) -> Iterator[Standstill]:
        return iter(sorted(self._known.values(), key=lambda one: (one.since, one.key)))

    def put(self, one: Standstill) -> None:
        """Add a standstill, or replace what is known of it; beyond the bound the oldest goes."""
        if self._known.get(one.key) == one:
            return
        self._known[one.key] = one
        if len(self._known) > MOST_STANDSTILLS:
            del self._known[min(self._known.values(), key=lambda known: (known.since, known.key)).key]
        self.changes += 1

    def counted(self, but: str) -> Counter[str]:
        """Return in how many standstills of incidents each node showed up, ``but`` one and the job's own pauses left out."""
        found = (one for one in self._known.values() if one.key.startswith("inc-") and one.key != but)
        return Counter(node for one in found if one.why in {"fault", "unknown"} for node in one.nodes)

    def usual_pause_seconds(self) -> float:
        """Return how long the second longest of the job's own pauses was: one alone may be chance; 0 before there are two."""
        pauses = sorted(
            one.until - one.since for one in self._known.values() if one.why == "pause" and one.until is not None
        )
        return pauses[-2] if len(pauses) > 1 else 0.0

    def during(self, begin: float, end: float) -> frozenset[Why]:
        """Return why the job stood still in a part of a span."""
        return frozenset(
            one.why for one in self._known.values()
            if one.since < end and (math.inf if one.until is None else one.until) > begin
        )  # fmt: skip
