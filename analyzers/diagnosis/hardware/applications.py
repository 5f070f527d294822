"""Xids that a program's own fault causes (13, 31, …), where a kernel log shows nothing else.

Such a line decides the GPU, and that the program is to be looked at first; it accuses no machine. It is a claim only beside
logs: dumps, stacks and steps show what a job does now, which an old Xid of another program says nothing about.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analyzers.diagnosis.hardware.occurrences import Occurrence
from analyzers.diagnosis.hardware.places import Places
from analyzers.knowledge import Knowledge, xids
from analyzers.model.finding import Finding, Suspect
from analyzers.model.window import Window
from collectors.records import LogEvent, StackDump, Steps

STRENGTH = 0.6
DEVICES_NAMED, EVIDENCE_LIMIT = 4, 8
MOMENT_SECONDS = 600.0  # a day's log holds the faults of many programs: those of one moment are one program's


def findings(
    occurrences: Sequence[Occurrence], window: Window, places: Places, knowledge: Knowledge
) -> Iterator[Finding]:
    """Yield one finding for all GPUs that report such a fault; none where a clean-up came first, or much lies between."""
    xid = [one for one in occurrences if one.event.event == "xid"]
    own = [one for one in xid if xids.xid(knowledge, one.event.code or 0).role == "application"]
    if not own and {one.event.code for one in xid} == {xids.CHANNEL_RESET}:
        own = xid  # it follows a program's fault; with other codes beside it, those say which
    if not own or own[0] is not xid[0] or not _of_one_moment(own, window):
        return
    devices = sorted({one.device for one in own})
    more = f" and {len(devices) - DEVICES_NAMED} more" if len(devices) > DEVICES_NAMED else ""
    means = " and ".join(
        f"Xid {code}, {xids.xid(knowledge, code).means}" for code in sorted({one.event.code or 0 for one in own})
    )
    evidence = tuple(one.evidence(f"Xid {one.event.code}") for one in own[:EVIDENCE_LIMIT])
    suspect = Suspect(
        kind="code",
        strength=STRENGTH,
        why=f"{means}, on {', '.join(devices[:DEVICES_NAMED])}{more}: the program's own fault first; the same Xid of "
        "several programs on one GPU would point to it",
        ranks=tuple(sorted({rank for one in own for rank in places.ranks_of_process(one.event)})),
        evidence=evidence,
    )
    yield Finding(
        analyzer="hardware",
        family="hardware",
        symptom="crash",
        cause="code",
        fault_class="xid_of_program",
        suspects=(suspect,),
        onset=min((one.event.at for one in own if one.event.at is not None), default=None),
        first_symptom=evidence[0],
    )


def _of_one_moment(own: Sequence[Occurrence], window: Window) -> bool:
    """Whether they came together, beside logs alone, and near what those date."""
    stood = bool(window.dumps) or bool(window.records_of(StackDump)) or bool(window.records_of(Steps))
    if window.live or stood:
        return False
    logged = [event.at for event in window.records_of(LogEvent) if event.at is not None]
    dated = [one.event.at for one in own if one.event.at is not None]
    near = not logged or any(abs(at - other) <= MOMENT_SECONDS for at in dated for other in logged[-64:])
    return near and all(own[-1].at.within(one.at, MOMENT_SECONDS, MOMENT_SECONDS) for one in own)
