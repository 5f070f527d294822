"""Findings about GPUs and NVSwitches: the faults that nothing else explains, with their echoes rejected."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from analyzers.diagnosis.hardware.echoes import ECHO_SECONDS, SKEW_SECONDS, explained
from analyzers.diagnosis.hardware.faults import REMOTE_REQUESTS, Fault, device_faults, repeated
from analyzers.diagnosis.hardware.occurrences import Occurrence
from analyzers.diagnosis.hardware.places import Places
from analyzers.knowledge import Knowledge, xids
from analyzers.model.fault_classes import hardware_action
from analyzers.model.finding import Cause, Evidence, Finding, Kind, Suspect

Root = list[Fault]

EVIDENCE_LIMIT = 8
REJECTED_LIMIT = 256
REJECTED = 0.05
OPEN = 0.6  # so much less sure is what may have come hours before
AFTER_XID = "caused by previous Xid"  # an Xid 45, which is read as the Xid that it names
MANY = 3  # links of so many devices failing at once are the fabric's, not each device's own
TOGETHER_SECONDS = ECHO_SECONDS + SKEW_SECONDS
_ASKS = {
    "evict": "the node should leave the job and be serviced",
    "reset_gpu": "the GPU needs a reset",
    "reboot_node": "the node needs a restart",
    "probe": "the node should be tested",
    "none": "the machine may stay",
}


def findings(
    occurrences: Sequence[Occurrence], places: Places, knowledge: Knowledge, missing: tuple[str, ...]
) -> Iterator[Finding]:
    """Yield one finding per independent fault: a device, a node that lost several, or links with no clear origin."""
    faults = device_faults(occurrences, knowledge)
    echo_of = explained(faults)
    roots = [fault for index, fault in enumerate(faults) if index not in echo_of]
    guilty = {fault.occurrence.key for fault in roots}
    followers = [occurrence for occurrence in _followers(occurrences, knowledge) if occurrence.key not in guilty]
    made = _Clusters(places, knowledge, missing, _echoes_by_device(faults, echo_of), followers)
    for cluster in _clusters(roots):
        yield from made.findings(cluster)
    for fault in repeated(occurrences, knowledge):
        if fault.occurrence.key not in guilty:
            yield made.one([fault])


OUT_OF_TIME = "this was logged far from the job's last own sign of life: it belongs to another time"
OUTLIVED = "the job's steps went on for minutes after it, so it can wait until the node is free"
ANOTHER_HOUR = "by the stamps the job's steps went on for long after it, and in another zone it came as they ended"
OF_A_STRANGER = "the process that it names is none of the job's, whose processes on this node are known"

OF_NO_RANK = "no rank of the job uses this GPU: it can wait until no job runs on its node"
OF_NO_NODE = "{node} is no node of this job, whose hosts are all listed"


def not_the_jobs(
    occurrences: Sequence[Occurrence], places: Places, knowledge: Knowledge, why: str
) -> Iterator[Finding]:
    """Yield what would have been suspects, rejected: their time or their process is not the job's."""
    faults = device_faults(occurrences, knowledge)[-EVIDENCE_LIMIT:]
    yield from rejecting((_turned_down(fault, places) for fault in faults), why)


def _turned_down(fault: Fault, places: Places) -> Suspect:
    event = fault.occurrence.event
    return Suspect(
        kind="device",
        strength=REJECTED,
        why=fault.summary,
        node=places.node(event.node),
        device=event.pci,
        name=f"{event.pci} of {places.node(event.node)}" if event.pci and event.node else "",
        evidence=(fault.occurrence.evidence(fault.summary),),
    )


def of_another_hour(finding: Finding) -> Finding:
    """Return a claim of which it is open whether it came before the job's end: it asks for a test of its node, and no more."""
    if finding.cause != "machine":
        return finding
    suspects = tuple(
        replace(one, strength=round(one.strength * OPEN, 4), why=f"{one.why}; {ANOTHER_HOUR}")
        for one in finding.suspects
    )
    return replace(finding, fault_class="fault_of_another_hour", suspects=suspects)


def rejecting(claimed: Iterable[Suspect], why: str) -> Iterator[Finding]:
    """Yield one finding that rejects all that would have been suspected, where there is any."""
    rejected = tuple(
        replace(one, strength=REJECTED, why=f"{one.why}; {why.format(node=one.node or 'it')}") for one in claimed
    )
    if rejected:
        yield Finding(
            analyzer="hardware",
            family="hardware",
            symptom="unknown",
            cause="none",
            fault_class="out_of_time",
            rejected=rejected[:REJECTED_LIMIT],
        )


def origins(occurrences: Sequence[Occurrence]) -> Iterator[Finding]:
    """Yield what channels that were torn down say of an NVLink error, where its own line is in no log."""
    torn = [one for one in occurrences if one.event.code in xids.NVLINK5 and AFTER_XID in one.event.text]
    shown = tuple(one.evidence(f"channels torn down after Xid {one.event.code}") for one in torn[:EVIDENCE_LIMIT])
    if shown:
        yield Finding(
            analyzer="hardware", family="hardware", symptom="hardware", cause="unknown", fault_class="nvlink_origin_unseen",
            onset=torn[0].event.at, first_symptom=shown[0], evidence=shown,
            missing=(f"the kernel's lines of Xid {torn[0].event.code} itself, on this GPU and its peers: they name the link",),
        )  # fmt: skip


def _clusters(roots: Sequence[Fault]) -> Iterator[Root]:
    """Group what is one fault: all of a device's, all lost GPUs of a machine, equal link faults at the same time."""
    by_device: dict[tuple[str, str], Root] = defaultdict(list)
    for fault in roots:
        by_device[fault.occurrence.key].append(fault)
    leads = [max(faults, key=_weight) for faults in by_device.values()]
    cluster: Root = []
    for lead in sorted(leads, key=_by_kind_and_time):
        if cluster and not _same_fault(cluster[-1], lead):
            yield [fault for one in cluster for fault in by_device[one.occurrence.key]]
            cluster = []
        cluster.append(lead)
    if cluster:
        yield [fault for one in cluster for fault in by_device[one.occurrence.key]]


def _weight(fault: Fault) -> tuple[float, int, float]:
    return (fault.strength, fault.precedence, -(fault.occurrence.at.seconds or 0.0))


def _by_kind_and_time(fault: Fault) -> tuple[bool, int, str, str, float, str]:
    at = fault.occurrence.at
    machine = "" if fault.echoes else fault.occurrence.machine
    return (fault.echoes, fault.precedence, machine, at.clock, at.seconds or 0.0, fault.occurrence.device)


def _same_fault(one: Fault, other: Fault) -> bool:
    if one.precedence != other.precedence or one.echoes != other.echoes:
        return False
    if not one.occurrence.at.within(other.occurrence.at, TOGETHER_SECONDS, TOGETHER_SECONDS):
        return False
    lost = one.occurrence.event.code == other.occurrence.event.code == 79
    return one.echoes or (lost and one.occurrence.machine == other.occurrence.machine)


def _echoes_by_device(faults: Sequence[Fault], echo_of: dict[int, Fault]) -> dict[tuple[str, str], list[Fault]]:
    by_device: dict[tuple[str, str], list[Fault]] = defaultdict(list)
    for index, origin in echo_of.items():
        by_device[origin.occurrence.key].append(faults[index])
    return by_device


def _followers(occurrences: Sequence[Occurrence], knowledge: Knowledge) -> Iterator[Occurrence]:
    """Yield the lines that come beside others' faults and are none themselves: 45, 43, link errors that pass."""
    for occurrence in occurrences:
        code = occurrence.event.code or 0
        if occurrence.event.event != "xid":
            continue
        if code in xids.NVLINK5 or code == 74 or xids.xid(knowledge, code).role in {"sympathetic", "application"}:
            yield occurrence


class _Clusters:
    """Turns clusters of faults into findings."""

    def __init__(
        self,
        places: Places,
        knowledge: Knowledge,
        missing: tuple[str, ...],
        echoes: dict[tuple[str, str], list[Fault]],
        followers: list[Occurrence],
    ) -> None:
        self._places = places
        self._knowledge = knowledge
        self._missing = missing
        self._echoes = echoes
        self._followers = followers

    def findings(self, cluster: Root) -> Iterator[Finding]:
        """Choose the form: one device, one node, two ends of a link, or a fabric whose origin is not seen."""
        keys = {fault.occurrence.key for fault in cluster}
        machines = {machine for machine, _ in keys}
        if len(keys) == 1:
            yield self.one(cluster)
        elif not cluster[0].echoes:
            yield self._node(cluster, "off_bus_many", f"{len(keys)} GPUs of this node left the bus together")
        elif len(keys) < MANY:
            yield self._either(cluster)
        elif cluster[0].precedence <= REMOTE_REQUESTS:
            yield self._origin_unseen(cluster, keys)
        elif len(machines) == 1:
            yield self._node(cluster, "nvlink_fatal_node", f"links of {len(keys)} GPUs of this node failed together")
        else:
            yield self._fabric(cluster, keys)

    def one(self, faults: Root) -> Finding:
        """Name one device."""
        lead = max(faults, key=_weight)
        suspect = self._suspect(faults, lead.strength)
        return self._finding(faults, lead.fault_class, (suspect,))

    def _either(self, cluster: Root) -> Finding:
        lead = max(cluster, key=_weight)
        suspects = tuple(self._suspect(faults, lead.strength * 0.6) for faults in _per_device(cluster))
        missing = (f"a test of the link between {_names(suspects)}: both ends report it, neither shows why",)
        return self._finding(cluster, lead.fault_class, suspects, missing=missing)

    def _node(self, cluster: Root, fault_class: str, what: str) -> Finding:
        event = cluster[0].occurrence.event
        ranks = tuple(sorted({rank for faults in _per_device(cluster) for rank in self._ranks(faults)}))
        why = f"{what}: what they share is at fault; {self._asks(fault_class)}"
        suspect = self._place(event.node, "node", 0.95 if fault_class == "off_bus_many" else 0.7, why, cluster, ranks)
        return self._finding(cluster, fault_class, (suspect,))

    def _fabric(self, cluster: Root, keys: set[tuple[str, str]]) -> Finding:
        suspects = tuple(self._suspect(faults, 0.3) for faults in _per_device(cluster)[:REJECTED_LIMIT])
        missing = (f"the switch's own log: links of {len(keys)} GPUs on several nodes failed together",)
        return self._finding(cluster, "nvlink_fatal_many", suspects, cause="network", missing=missing)

    def _origin_unseen(self, cluster: Root, keys: set[tuple[str, str]]) -> Finding:
        why = "it reports failed requests to others; the link that failed is not in its log"
        rejected = tuple(self._suspect(faults, 0.05, why) for faults in _per_device(cluster)[:REJECTED_LIMIT])
        report = f"{len(keys)} GPUs report the consequences and none the link itself"
        missing = (f"the kernel log of the node or switch whose link failed: {report}",)
        return self._finding(cluster, "nvlink_origin_unseen", (), cause="unknown", missing=missing, rejected=rejected)

    def _finding(
        self,
        faults: Root,
        fault_class: str,
        suspects: tuple[Suspect, ...],
        *,
        cause: Cause = "machine",
        missing: tuple[str, ...] = (),
        rejected: tuple[Suspect, ...] = (),
    ) -> Finding:
        first = min(faults, key=lambda fault: (fault.occurrence.at.seconds or 0.0, fault.occurrence.key))
        onsets = [fault.occurrence.event.at for fault in faults if fault.occurrence.event.at is not None]
        ranks = [rank for suspect in suspects for rank in suspect.ranks or self._places.ranks_on(suspect.node)]
        innocent = (*rejected, *self._rejected(faults))
        # Logs that name no node share their PCI addresses: no device is suspected and rejected under one name.
        suspected = {(suspect.node, suspect.device) for suspect in suspects if suspect.device is not None}
        return Finding(
            analyzer="hardware",
            family="hardware",
            symptom="hardware",
            cause=cause,
            fault_class=fault_class,
            suspects=suspects,
            scope=frozenset(ranks),
            onset=min(onsets, default=None),
            first_symptom=first.occurrence.evidence(first.summary),
            rejected=tuple(one for one in innocent if (one.node, one.device) not in suspected)[:REJECTED_LIMIT],
            missing=(*missing, *self._missing),
        )

    def _suspect(self, faults: Root, strength: float, why: str | None = None) -> Suspect:
        lead = max(faults, key=_weight)
        event = lead.occurrence.event
        if why is None:
            others = sorted({fault.summary for fault in faults} - {lead.summary})
            also = f"; also {', '.join(others[:3])}" if others else ""
            where = f" on {lead.occurrence.device}" if lead.occurrence.device else ""
            why = f"{lead.summary}{where}{also}; {self._asks(lead.fault_class)}"
        kind: Kind = "switch" if lead.kind == "switch" else "device"
        return self._place(event.node, kind, strength, why, faults, self._ranks(faults))

    def _place(
        self, node: str | None, kind: Kind, strength: float, why: str, faults: Root, ranks: tuple[int, ...]
    ) -> Suspect:
        lead = max(faults, key=_weight).occurrence.event
        device = None if kind == "node" else lead.device if kind == "switch" else lead.pci
        return Suspect(
            kind=kind,
            strength=round(strength, 4),
            why=why,
            ranks=ranks,
            node=self._places.node(node),
            device=device,
            evidence=_evidence(faults),
        )

    def _ranks(self, faults: Root) -> tuple[int, ...]:
        pids = frozenset(pid for fault in faults for pid in fault.occurrence.pids)
        return self._places.ranks_of_device(faults[0].occurrence.event, pids)

    def _rejected(self, faults: Root) -> Iterator[Suspect]:
        """Reject what these faults explain: link errors of other devices, and teardown lines beside them."""
        own = {fault.occurrence.key for fault in faults}
        seen: set[tuple[str, str]] = set(own)
        if all(fault.precedence == 0 for fault in faults):
            return  # a program's own fault, returning: nothing follows from it
        for key in sorted(own):
            for echo in self._echoes.get(key, ()):
                if echo.occurrence.key not in seen:
                    seen.add(echo.occurrence.key)
                    lead = next(fault for fault in faults if fault.occurrence.key == key)
                    yield self._echo(
                        echo.occurrence, echo.summary, f"it follows {lead.summary.split(',')[0]} on {_device(lead)}"
                    )
        at = min((fault.occurrence.at for fault in faults), key=lambda instant: instant.seconds or 0.0)
        for occurrence in self._followers:
            if occurrence.key not in seen and occurrence.at.within(at, SKEW_SECONDS, TOGETHER_SECONDS):
                seen.add(occurrence.key)
                summary = f"Xid {occurrence.event.code}"
                yield self._echo(occurrence, summary, "such a line follows the fault of another device")

    def _echo(self, occurrence: Occurrence, summary: str, why: str) -> Suspect:
        return Suspect(
            kind="device",
            strength=0.05,
            why=f"{summary}: {why}",
            node=self._places.node(occurrence.event.node),
            device=occurrence.event.pci,
            ranks=self._places.ranks_of_device(occurrence.event, occurrence.pids),
            evidence=(occurrence.evidence(summary),),
        )

    def _asks(self, fault_class: str) -> str:
        return _ASKS[hardware_action(fault_class, self._knowledge)]


def _per_device(faults: Root) -> list[Root]:
    by_device: dict[tuple[str, str], Root] = defaultdict(list)
    for fault in faults:
        by_device[fault.occurrence.key].append(fault)
    return [by_device[key] for key in sorted(by_device)]


def _evidence(faults: Root) -> tuple[Evidence, ...]:
    own = [fault.occurrence.evidence(fault.summary) for fault in faults]
    beside = [other.evidence(f"Xid {other.event.code}") for fault in faults for other in fault.beside]
    return tuple(dict.fromkeys([*own, *beside]))[:EVIDENCE_LIMIT]


def _device(fault: Fault) -> str:
    node = fault.occurrence.event.node
    device = fault.occurrence.device or "an unnamed device"
    return f"{device} of {node}" if node else device


def _names(suspects: tuple[Suspect, ...]) -> str:
    return " and ".join(
        f"{suspect.device or 'a device'} of {suspect.node or 'an unnamed node'}" for suspect in suspects
    )
