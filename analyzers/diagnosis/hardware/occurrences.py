"""Kernel events folded into occurrences, each with an instant and the clock it was read on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from analyzers.model.finding import Evidence
from collectors.records import KernelEvent

COALESCE_SECONDS = 5.0  # the driver repeats one fault for a few seconds ("Story of two GPUs" counts it once)
UTC, YEAR = "utc", "year"


@dataclass(frozen=True, slots=True)
class Instant:
    """Seconds on a named clock: UTC, within an unknown year, since one machine's boot, or none at all."""

    clock: str
    seconds: float | None

    def after(self, other: Instant) -> float | None:
        """Return by how many seconds this is later than another; None where the two clocks cannot be compared."""
        if self.seconds is None or other.seconds is None or self.clock != other.clock:
            return None
        return self.seconds - other.seconds

    def within(self, other: Instant, before: float, later: float) -> bool:
        """Return whether this lies from ``before`` seconds before another to ``later`` after it, or may well do so."""
        gap = self.after(other)
        return gap is None or -before <= gap <= later


@dataclass(frozen=True)
class Occurrence:
    """Events of one kind on one device that belong together; ``event`` is the first of them."""

    event: KernelEvent
    machine: str  # the node, or the file where no node is known
    at: Instant
    last_at: Instant
    count: int = 1
    pids: frozenset[int] = frozenset()

    @cached_property
    def device(self) -> str:
        """Name the device within its machine: a PCI address, else the driver's name for it."""
        return self.event.pci or self.event.device or ""

    @cached_property
    def key(self) -> tuple[str, str]:
        """Identify the device among all machines."""
        return (self.machine, self.device)

    def evidence(self, summary: str) -> Evidence:
        """Return what was seen as evidence, with its line."""
        times = f" ({self.count} times)" if self.count > 1 else ""
        return Evidence(text=f"{summary}{times}: {self.event.text[:200]}", source=self.event.source, at=self.event.at)


def machine_of(event: KernelEvent) -> str:
    """Name the machine whose log this is: its node, else the file."""
    return event.node or f"the machine of {event.source.rpartition(':')[0] or event.source}"


def instant_of(event: KernelEvent) -> Instant:
    """Choose the clock: UTC before a year that is missing, before the machine's own."""
    if event.at is not None:
        return Instant(UTC, event.at)
    if event.yearless_at is not None:
        return Instant(YEAR, event.yearless_at)
    if event.monotonic_at is not None:
        return Instant(f"boot of {machine_of(event)} {event.boot_id or ''}", event.monotonic_at)
    return Instant(f"lines of {event.source.rpartition(':')[0]}", None)


def coalesce(events: Iterable[KernelEvent], seconds: float = COALESCE_SECONDS) -> list[Occurrence]:
    """Fold events of the same kind, code, device and unit that follow each other within ``seconds``."""
    open_: dict[tuple[object, ...], Occurrence] = {}
    done: list[Occurrence] = []
    for event in sorted(events, key=_order):
        fresh = _begin(event)
        key = (fresh.key, event.event, event.code, event.severity, event.unit, event.link, event.status[:2])
        held = open_.get(key)
        gap = None if held is None else fresh.at.after(held.last_at)
        if held is not None and (gap is None or gap <= seconds) and held.at.clock == fresh.at.clock:
            open_[key] = replace(held, last_at=fresh.at, count=held.count + fresh.count, pids=held.pids | fresh.pids)
            continue
        if held is not None:
            done.append(held)
        open_[key] = fresh
    return sorted([*done, *open_.values()], key=lambda occurrence: _order(occurrence.event))


def _begin(event: KernelEvent) -> Occurrence:
    at = instant_of(event)
    pids = frozenset() if event.pid is None else frozenset({event.pid})
    return Occurrence(event, machine_of(event), at, at, max(event.repeats, 1), pids)


def _order(event: KernelEvent) -> tuple[str, float, str, int]:
    at = instant_of(event)
    file, _, line = event.source.rpartition(":")
    return (at.clock, at.seconds if at.seconds is not None else -1.0, file, int(line) if line.isdecimal() else 0)


def of_kind(events: Iterable[KernelEvent], *kinds: str) -> Iterator[KernelEvent]:
    """Keep the events of these kinds."""
    return (event for event in events if event.event in kinds)
