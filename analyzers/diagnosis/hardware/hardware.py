"""From kernel events to findings: which device is faulty, which only echo it, and which ports and hosts are in trouble."""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.diagnosis.hardware import devices, hosts, ports, sightings
from analyzers.diagnosis.hardware.occurrences import UTC, coalesce, instant_of, of_kind
from analyzers.diagnosis.hardware.passed import without_passed
from analyzers.diagnosis.hardware.places import Places
from analyzers.knowledge import Knowledge
from analyzers.model.finding import Finding
from analyzers.model.topology import Topology
from analyzers.model.window import Window, last_activity_ns
from collectors.records import KernelEvent, LogEvent

# A kernel log keeps weeks. An event this far from the job's last own sign of life is another story; the bounds leave
# room for stamps without a zone, which may be off by half a day.
STALE_SECONDS = 86_400.0
LATER_SECONDS = 54_000.0


def analyze(window: Window, topology: Topology, knowledge: Knowledge) -> Iterator[Finding]:
    """Yield a finding per faulty device, link or host that the kernel logs show; nothing for ordinary lines."""
    events = sightings.events(window)
    if not events:
        return
    last_sign_at = _last_sign_at(window)
    timely = [event for event in events if _timely(event, last_sign_at)]
    places = Places(window, topology)
    occurrences = coalesce(of_kind(timely, "xid", "off_bus", "sxid"))
    missing = _missing(timely)
    yield from devices.findings(occurrences, places, knowledge, missing)
    yield from ports.findings(timely, places, missing)
    yield from hosts.findings(without_passed(timely, window), places)
    if len(timely) < len(events):
        old = coalesce(
            of_kind((event for event in events if not _timely(event, last_sign_at)), "xid", "off_bus", "sxid")
        )
        yield from devices.out_of_time(old, places, knowledge)


def _timely(event: KernelEvent, last_sign_at: float | None) -> bool:
    at = instant_of(event)
    if last_sign_at is None or at.clock != UTC or at.seconds is None:
        return True
    return -STALE_SECONDS <= at.seconds - last_sign_at <= LATER_SECONDS


def _last_sign_at(window: Window) -> float | None:
    """Return the newest instant that the job's own logs and dumps mention; file times are not trusted for this."""
    logged = [event.at for event in window.records_of(LogEvent) if event.at is not None]
    dumped = [last_activity_ns(dump) / 1e9 for dump in window.dumps]
    return max([*logged, *(at for at in dumped if at > 0)], default=None)


def _missing(events: list[KernelEvent]) -> tuple[str, ...]:
    undated = next((event for event in events if event.at is None and event.yearless_at is not None), None)
    if undated is None:
        return ()
    file = undated.source.rpartition(":")[0]
    return (f"the year of {file}: its lines carry none, so they cannot be set beside other logs in time",)
