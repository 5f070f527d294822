"""Findings about network ports: only a second alert within five minutes counts, since one is everyday life."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from analyzers.diagnosis.hardware.occurrences import Instant, Occurrence, coalesce, instant_of, machine_of, of_kind
from analyzers.diagnosis.hardware.places import Places
from analyzers.model.finding import Evidence, Finding, Suspect
from collectors.records import KernelEvent

ALERTS = 2  # DESIGN 5: network alerts act only after 2 in 5 minutes
ALERT_SECONDS = 300.0
TOGETHER_SECONDS = 60.0
MANY = 3
EVIDENCE_LIMIT = 8


@dataclass(frozen=True, slots=True)
class _Flapping:
    machine: str
    port: str
    downs: tuple[KernelEvent, ...]
    at: Instant
    fault_class: str = "link_flapping"

    @property
    def count(self) -> int:
        return sum(max(event.repeats, 1) for event in self.downs)


def findings(events: Sequence[KernelEvent], places: Places, missing: tuple[str, ...]) -> Iterator[Finding]:
    """Yield one finding per port that flaps, per node whose ports all do, and one where many nodes' do at once."""
    flapping = [*_flapping(events), *_cables(events)]
    for cluster in _clusters(flapping):
        machines = sorted({port.machine for port in cluster})
        if len(machines) >= MANY:
            yield _switch(cluster, machines, places, missing)
            continue
        for machine in machines:
            ports = [port for port in cluster if port.machine == machine]
            if len(ports) >= MANY:
                yield _node(ports, places, missing)
            else:
                yield from (_port(port, places, missing) for port in ports)


def _flapping(events: Sequence[KernelEvent]) -> Iterator[_Flapping]:
    """Yield each port that went down often enough; the driver's and the network service's word are counted apart."""
    downs: dict[tuple[str, str, bool], list[KernelEvent]] = defaultdict(list)
    for event in of_kind(events, "link_down"):
        downs[machine_of(event), event.device or event.pci or "", "carrier" in event.text].append(event)
    worst: dict[tuple[str, str], _Flapping] = {}
    for (machine, port, _), lost in downs.items():
        burst = _burst(lost)
        flap = _Flapping(machine, port, tuple(burst), instant_of(burst[0])) if burst else None
        if flap and ((machine, port) not in worst or flap.count > worst[machine, port].count):
            worst[machine, port] = flap
    yield from worst.values()


def _cables(events: Sequence[KernelEvent]) -> Iterator[_Flapping]:
    """Yield each NIC whose port module reported an error often enough: cable, transceiver, temperature."""
    errors: dict[tuple[str, str], list[KernelEvent]] = defaultdict(list)
    for event in of_kind(events, "mlx5"):
        if event.severity == "error" and "odule event" in event.text:
            errors[machine_of(event), event.pci or event.device or ""].append(event)
    for (machine, port), reported in errors.items():
        if burst := _burst(reported):
            yield _Flapping(machine, port, tuple(burst), instant_of(burst[0]), "nic_cable")


def _burst(events: Sequence[KernelEvent]) -> list[KernelEvent]:
    """Return the largest set of alerts within five minutes, empty where it has fewer than two."""
    timed = sorted((event for event in events if instant_of(event).seconds is not None), key=_seconds)
    best: list[KernelEvent] = []
    start = 0
    for end in range(len(timed)):
        while _seconds(timed[end]) - _seconds(timed[start]) > ALERT_SECONDS:
            start += 1
        if end + 1 - start > len(best):
            best = timed[start : end + 1]
    return best if sum(max(event.repeats, 1) for event in best) >= ALERTS else []


def _seconds(event: KernelEvent) -> float:
    return instant_of(event).seconds or 0.0


def _clusters(flapping: Sequence[_Flapping]) -> Iterator[list[_Flapping]]:
    """Group ports that began to flap within a minute of each other, on clocks that can be compared."""
    cluster: list[_Flapping] = []
    for port in sorted(flapping, key=lambda port: (port.at.clock, port.at.seconds or 0.0, port.machine, port.port)):
        gap = port.at.after(cluster[-1].at) if cluster else None
        if cluster and (gap is None or gap > TOGETHER_SECONDS):
            yield cluster
            cluster = []
        cluster.append(port)
    if cluster:
        yield cluster


def _port(port: _Flapping, places: Places, missing: tuple[str, ...]) -> Finding:
    verb = "reported a cable or module error" if port.fault_class == "nic_cable" else "went down"
    why = f"{port.port} {verb} {port.count} times within five minutes"
    strength = min(0.85, 0.45 + 0.05 * port.count)
    return _finding(port.fault_class, _suspect(port, places, strength, why), [port], places, missing)


def _node(ports: list[_Flapping], places: Places, missing: tuple[str, ...]) -> Finding:
    why = f"{len(ports)} ports flapped together: a driver restart, the node, or the switch they share"
    suspect = _suspect(ports[0], places, 0.3, why, kind_is_node=True)
    return _finding("link_flapping", suspect, ports, places, missing)


def _switch(ports: list[_Flapping], machines: list[str], places: Places, missing: tuple[str, ...]) -> Finding:
    why = f"ports of {len(machines)} nodes flapped within a minute: what they share is a switch"
    suspect = Suspect(kind="switch", strength=0.5, why=why, evidence=_evidence(ports))
    rejected = tuple(
        _suspect(port, places, 0.05, "its port flapped together with those of other nodes") for port in ports[:256]
    )
    return _finding("switch_flapping", suspect, ports, places, missing, rejected)


def _suspect(port: _Flapping, places: Places, strength: float, why: str, *, kind_is_node: bool = False) -> Suspect:
    node = places.node(port.downs[0].node)
    return Suspect(
        kind="node" if kind_is_node else "link",
        strength=round(strength, 4),
        why=why,
        node=node,
        device=None if kind_is_node else port.port,
        ranks=places.ranks_on(node) if len(places.ranks_on(node)) == 1 else (),
        evidence=_evidence([port]),
    )


def _finding(
    fault_class: str,
    suspect: Suspect,
    ports: list[_Flapping],
    places: Places,
    missing: tuple[str, ...],
    rejected: tuple[Suspect, ...] = (),
) -> Finding:
    nodes = {port.downs[0].node for port in ports}
    return Finding(
        analyzer="hardware",
        family="hardware",
        symptom="hardware",
        cause="network",
        fault_class=fault_class,
        suspects=(suspect,),
        scope=frozenset(rank for node in nodes for rank in places.ranks_on(node)),
        onset=min((event.at for port in ports for event in port.downs if event.at is not None), default=None),
        first_symptom=suspect.evidence[0] if suspect.evidence else None,
        rejected=rejected,
        missing=missing,
    )


def _evidence(ports: Sequence[_Flapping]) -> tuple[Evidence, ...]:
    occurrences: list[Occurrence] = [found for port in ports for found in coalesce(port.downs)]
    return tuple(occurrence.evidence(f"{occurrence.device} lost its link") for occurrence in occurrences)[
        :EVIDENCE_LIMIT
    ]
