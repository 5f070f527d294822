"""Which kernel events are faults of a device: Xids, lost GPUs and NVSwitch errors, judged by the Xid tables."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from analyzers.diagnosis.hardware.occurrences import Occurrence
from analyzers.knowledge import Knowledge, xids
from collectors.records import KernelEvent

MEMORY_CODES = frozenset({48, 63, 64, 94, 95, 140, 171, 172})
MEMORY_SECONDS = 600.0  # the remapping of a row follows the double-bit error that asked for it
GUIDANCE_SECONDS = 60.0  # an Xid 154 follows the Xid whose recovery it names
SAME_SECONDS, PROGRAM_SECONDS = 1.0, 30.0  # before an Xid and after it, in which another is its consequence
ECC_REPEATS = 2  # Xid 74: more often than this on one link is a hardware fault

# Whose fault makes others fail: a lost GPU takes its links along, a link that went down makes its users report errors.
# The order is ours, from the local and remote effects that the vendor's NVLink 5 decode table lists for each row.
_LOST, _DEAD, _LINK_DOWN, _LINK_DOWN_UNEXPLAINED, _MANAGEMENT, _LINK_DOWN_BY_PEER = 100, 90, 80, 75, 70, 60
_SWITCH, _UNIT, _OLD_LINK, _TRAINING, REMOTE_REQUESTS, _AFTERMATH = 55, 50, 45, 40, 30, 5
_OF_CODE = {79: _LOST, 150: _MANAGEMENT, 74: _OLD_LINK, 136: _TRAINING, 155: _TRAINING, 145: REMOTE_REQUESTS, 95: 85}
_ECHOING = frozenset({74, 95, 136, 155, *xids.NVLINK5})
_BY_PEER = "investigate_peer_device"
_UNEXPLAINED = "sympathetic_report_solo"

_GUIDANCE = (
    re.compile(r"\bto 0x[0-9a-fA-F]+ \(([^)]{1,200})\)"),
    re.compile(r": 154,(?: pid=[^,]*, name=[^,]*,)? ?(.*)"),
)
_RECOVERIES = (("reboot", "_then_reboot"), ("drain and reset", "_then_drain"), ("reset", "_then_reset"))


@dataclass(frozen=True, slots=True)
class Fault:
    """One occurrence that is a fault of its device. ``precedence``: a higher one explains a lower one nearby."""

    occurrence: Occurrence
    fault_class: str
    summary: str
    strength: float
    precedence: int
    echoes: bool = False  # may be the consequence of a fault elsewhere
    kind: str = "device"
    beside: tuple[Occurrence, ...] = ()  # further lines about the same fault


def device_faults(occurrences: Sequence[Occurrence], knowledge: Knowledge) -> list[Fault]:
    """Return the faults among Xids, lost GPUs and NVSwitch errors, with Xid 154's guidance taken in."""
    guidance = _guidance(occurrences)
    by_link = _counts_by_link(occurrences)
    found = []
    for occurrence in occurrences:
        guided = _suffix(occurrence, guidance)
        if not guided and _of_program(occurrence, occurrences, knowledge):
            continue
        if (fault := _fault(occurrence, knowledge, guided, by_link)) is not None:
            found.append(replace(fault, fault_class=fault.fault_class + guided) if guided else fault)
    found += _guided_alone(guidance, found)
    return _memory(found, occurrences)


def _of_program(occurrence: Occurrence, occurrences: Sequence[Occurrence], knowledge: Knowledge) -> bool:
    """Whether an Xid only follows a program's own fault on this GPU: a context that has faulted cannot be switched away."""
    if occurrence.event.event != "xid" or not (after := xids.xid(knowledge, occurrence.event.code or 0).after):
        return False
    return any(
        other.key == occurrence.key
        and other.event.code in after
        and occurrence.at.within(other.last_at, SAME_SECONDS, PROGRAM_SECONDS)
        for other in occurrences
        if other.event.event == "xid"
    )


def _guided_alone(
    guidance: dict[tuple[str, str], list[tuple[Occurrence, str]]], faults: Iterable[Fault]
) -> Iterator[Fault]:
    """Yield a fault for an Xid 154 that names a recovery while the log shows no fault that would need it."""
    faulty: dict[tuple[str, str], list[Occurrence]] = defaultdict(list)
    for fault in faults:
        faulty[fault.occurrence.key].append(fault.occurrence)
    for key, said in guidance.items():
        for occurrence, suffix in said:
            if not any(occurrence.at.within(other.last_at, 5.0, GUIDANCE_SECONDS) for other in faulty[key]):
                summary = (
                    "Xid 154, the driver asks for a recovery of this GPU; the Xid that led to it is not in the log"
                )
                yield Fault(occurrence, f"xid_154{suffix}", summary, 0.5, _AFTERMATH, echoes=True)


def _fault(
    occurrence: Occurrence, knowledge: Knowledge, guided: str, by_link: dict[tuple[str, str, int | None], int]
) -> Fault | None:
    event = occurrence.event
    if event.event == "sxid":
        return _switch_fault(occurrence)
    code = event.code or 0
    if code in xids.NVLINK5:
        return _nvlink5_fault(occurrence, knowledge, bool(guided))
    row = xids.xid(knowledge, code)
    if row.role != "primary":
        return None
    if code == 74:
        return _link_fault(occurrence, row, knowledge, by_link[*occurrence.key, event.link])
    precedence = _OF_CODE.get(code, _DEAD)
    summary = f"Xid {code}, {row.means}"
    return Fault(occurrence, f"xid_{code}", summary, row.strength, precedence, code in _ECHOING)


def _switch_fault(occurrence: Occurrence) -> Fault | None:
    if occurrence.event.severity != "fatal":
        return None
    summary = f"SXid {occurrence.event.code}, a fatal error of an NVSwitch"
    return Fault(occurrence, f"sxid_{occurrence.event.code}", summary, 0.8, _SWITCH, echoes=True, kind="switch")


def _nvlink5_fault(occurrence: Occurrence, knowledge: Knowledge, guided: bool) -> Fault | None:  # noqa: FBT001
    event, code = occurrence.event, occurrence.event.code or 0
    decided = xids.nvlink5(knowledge, code, event.unit, event.severity, event.status)
    if decided.resolution != "reset_gpu" and not (decided.resolution == "xid_154_eval" and guided):
        return None
    row = xids.xid(knowledge, code)
    severity = event.severity or "fatal by its registers"
    summary = f"Xid {code} ({event.unit or decided.unit or 'unit not given'}, {severity}), {row.means}"
    strength = row.strength if decided.decided_by == "registers" or code != 145 else row.strength * 0.8
    return Fault(
        occurrence, f"nvlink5_{code}_fatal", summary, strength, _nvlink5_precedence(code, decided.later), echoes=True
    )


def _nvlink5_precedence(code: int, later: str) -> int:
    if code != 149:
        return _OF_CODE.get(code, _UNIT)
    if later == _BY_PEER:
        return _LINK_DOWN_BY_PEER
    return _LINK_DOWN_UNEXPLAINED if later in ("", _UNEXPLAINED) else _LINK_DOWN


def _link_fault(occurrence: Occurrence, row: xids.Xid, knowledge: Knowledge, seen: int) -> Fault | None:
    """Judge an Xid 74 by its registers; ECC bits become a hardware fault with their third appearance on one link."""
    kind = xids.nvlink74(knowledge, occurrence.event.status)
    strength = {"seating": 0.6, "signal": 0.5, "repeated": 0.4, "unknown": 0.5, "sympathetic": 0.25, "ecc": 0.4}.get(
        kind
    )
    if strength is None:
        return None
    link = "an NVLink" if occurrence.event.link is None else f"NVLink {occurrence.event.link}"
    summary = f"Xid {row.code} on {link} ({kind} bits)"
    if kind == "ecc" and seen > ECC_REPEATS:
        return Fault(occurrence, "nvlink_74_ecc", f"{summary}, {seen} times", 0.8, _OLD_LINK, echoes=True)
    fault_class = "nvlink_74_repeated" if kind == "ecc" else f"nvlink_74_{kind}"
    precedence = _OLD_LINK if kind != "sympathetic" else REMOTE_REQUESTS - 10
    return Fault(occurrence, fault_class, summary, strength, precedence, echoes=True)


def _counts_by_link(occurrences: Iterable[Occurrence]) -> dict[tuple[str, str, int | None], int]:
    counts: dict[tuple[str, str, int | None], int] = defaultdict(int)
    for occurrence in occurrences:
        if occurrence.event.code == 74:
            counts[*occurrence.key, occurrence.event.link] += occurrence.count
    return counts


def _guidance(occurrences: Iterable[Occurrence]) -> dict[tuple[str, str], list[tuple[Occurrence, str]]]:
    """Read what recovery each Xid 154 names, by device."""
    found: dict[tuple[str, str], list[tuple[Occurrence, str]]] = defaultdict(list)
    for occurrence in occurrences:
        if occurrence.event.code == 154 and occurrence.event.event == "xid" and (suffix := recovery(occurrence.event)):
            found[occurrence.key].append((occurrence, suffix))
    return found


def recovery(event: KernelEvent) -> str:
    """Return the suffix for the recovery that an Xid 154 line names, "" for none or one that asks nothing of a node."""
    said = next((found for pattern in _GUIDANCE if (found := pattern.search(event.text))), None)
    words = said[1].lower() if said else ""
    return next((suffix for word, suffix in _RECOVERIES if word in words), "")


def _suffix(occurrence: Occurrence, guidance: dict[tuple[str, str], list[tuple[Occurrence, str]]]) -> str:
    near = (
        suffix
        for other, suffix in guidance.get(occurrence.key, ())
        if other.at.within(occurrence.last_at, 5.0, GUIDANCE_SECONDS)
    )
    order = [suffix for _, suffix in _RECOVERIES]
    return min(near, key=order.index, default="")


def _memory(faults: Iterable[Fault], occurrences: Sequence[Occurrence]) -> list[Fault]:
    """Join a device's memory errors into one fault: 48 with a remapping that follows, 95 beside its 48."""
    by_device: dict[tuple[str, str], list[Occurrence]] = defaultdict(list)
    for occurrence in occurrences:
        if occurrence.event.event == "xid" and occurrence.event.code in MEMORY_CODES:
            by_device[occurrence.key].append(occurrence)
    return list(_joined(faults, by_device))


def _joined(faults: Iterable[Fault], by_device: dict[tuple[str, str], list[Occurrence]]) -> Iterator[Fault]:
    for fault in faults:
        code = fault.occurrence.event.code
        if fault.kind != "device" or code not in MEMORY_CODES:
            yield fault
            continue
        at = fault.occurrence.at
        beside = [
            other
            for other in by_device[fault.occurrence.key]
            if other is not fault.occurrence and other.at.within(at, MEMORY_SECONDS, MEMORY_SECONDS)
        ]
        codes = {other.event.code for other in beside}
        if code == 48:
            remapped = bool(codes & {63, 64})
            fault_class = ("ecc_dbe_remap" if remapped else "ecc_dbe") + fault.fault_class.removeprefix("xid_48")
            yield replace(
                fault, fault_class=fault_class, beside=tuple(beside), strength=0.95 if remapped else fault.strength
            )
        elif 48 not in codes:
            yield replace(fault, beside=tuple(beside))


APART_SECONDS = 60.0  # faults of one failing program come in a burst and count once
PROCESSES = 3
ELSEWHERE = 1 / 3  # on other GPUs at most this share of the occasions: a faulty program faults wherever it runs
CODES = (31, 13)

_PART = re.compile(r"\bGPC ?(\d+),? TPC ?(\d+)|\bGPC(\d+)[ ,_]TPC(\d+)", re.IGNORECASE)


def repeated(occurrences: Sequence[Occurrence], knowledge: Knowledge) -> Iterator[Fault]:
    """Yield a weak fault per GPU on which an application Xid returned in several processes and hardly anywhere else."""
    for code in CODES:
        if xids.xid(knowledge, code).role != "application":
            continue
        occasions = _occasions([o for o in occurrences if o.event.event == "xid" and o.event.code == code])
        everywhere = sum(len(seen) for seen in occasions.values())
        for (_, _, place), seen in occasions.items():
            if code == 13 and not place:
                continue  # the vendor's pattern is the same part of the GPU, which this line does not name
            processes = {pid for occasion in seen for pid in occasion.pids}
            elsewhere = everywhere - len(seen)
            if len(processes) >= PROCESSES and len(seen) >= PROCESSES and elsewhere <= ELSEWHERE * len(seen):
                where = f" at {place}" if place else ""
                summary = f"Xid {code}{where} on this GPU in {len(processes)} processes, {elsewhere} times on others"
                yield Fault(seen[0], f"xid_{code}_repeated", summary, 0.4, 0, beside=tuple(seen[1:]))


def _occasions(occurrences: Sequence[Occurrence]) -> dict[tuple[str, str, str], list[Occurrence]]:
    """Group by GPU (for Xid 13 also by the place within it) and keep one of each burst."""
    grouped: dict[tuple[str, str, str], list[Occurrence]] = defaultdict(list)
    for occurrence in occurrences:
        seen = grouped[*occurrence.key, _part_of(occurrence)]
        gap = occurrence.at.after(seen[-1].last_at) if seen else None
        same_process = bool(seen) and occurrence.pids <= seen[-1].pids
        if not seen or (gap is not None and gap >= APART_SECONDS and not same_process):
            seen.append(occurrence)
    return grouped


def _part_of(occurrence: Occurrence) -> str:
    if occurrence.event.code != 13 or (found := _PART.search(occurrence.event.text)) is None:
        return ""
    return f"GPC {found[1] or found[3]}, TPC {found[2] or found[4]}"
