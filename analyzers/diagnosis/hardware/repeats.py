"""Application Xids that keep coming back on one GPU: perhaps the GPU, worth a probe, never an eviction."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from analyzers.diagnosis.hardware.faults import Fault
from analyzers.diagnosis.hardware.occurrences import Occurrence
from analyzers.knowledge import Knowledge, xids

APART_SECONDS = 60.0  # faults of one failing program come in a burst and count once
PROCESSES = 3
ELSEWHERE = 1 / 3  # on other GPUs at most this share of the occasions: a faulty program faults wherever it runs
CODES = (31, 13)

_PLACE = re.compile(r"\bGPC ?(\d+),? TPC ?(\d+)|\bGPC(\d+)[ ,_]TPC(\d+)", re.IGNORECASE)


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
                says = f"Xid {code}{where} on this GPU in {len(processes)} processes, {elsewhere} times on others"
                yield Fault(seen[0], f"xid_{code}_repeated", says, 0.4, 0, beside=tuple(seen[1:]))


def _occasions(occurrences: Sequence[Occurrence]) -> dict[tuple[str, str, str], list[Occurrence]]:
    """Group by GPU (for Xid 13 also by the place within it) and keep one of each burst."""
    grouped: dict[tuple[str, str, str], list[Occurrence]] = defaultdict(list)
    for occurrence in occurrences:
        seen = grouped[*occurrence.key, _place(occurrence)]
        gap = occurrence.at.after(seen[-1].last_at) if seen else None
        same_process = bool(seen) and occurrence.pids <= seen[-1].pids
        if not seen or (gap is not None and gap >= APART_SECONDS and not same_process):
            seen.append(occurrence)
    return grouped


def _place(occurrence: Occurrence) -> str:
    if occurrence.event.code != 13 or (found := _PLACE.search(occurrence.event.text)) is None:
        return ""
    return f"GPC {found[1] or found[3]}, TPC {found[2] or found[4]}"
