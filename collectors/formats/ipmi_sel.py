"""The event log of a machine's management controller (IPMI SEL): uncorrectable memory, processors and buses that failed.

Forms: ``ipmitool sel list`` and ``sel elist`` of 1.8, and ``ipmi-sel`` of FreeIPMI. The log keeps a machine's whole life, and its
times are of no stated zone: read as UTC. One power supply of several that fails stops no machine, and is no event.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from collectors.formats import Input, reader
from collectors.formats.text_lines import lines, local_seconds
from collectors.records import KernelEvent

SAME_DAY_SECONDS = 86_400.0
SNIFF_LINES = 50
_ENTRY = re.compile(
    r"^\s*[0-9a-fA-F]{1,5}\s*\|\s*(?P<date>\d\d/\d\d/\d{2,4}|[A-Z][a-z]{2}-\d\d-\d{4})\s*\|"
    r"\s*(?P<time>\d\d:\d\d:\d\d)(?: UTC)?\s*\|"
    r"(?P<said>.{1,400})$"
)
_UNDATED = re.compile(r"^\s*[0-9a-fA-F]{1,5}\s*\|\s*Pre-Init\s*\||^ID\s*\|\s*Date\s*\|")
_PROMPT = re.compile(r"^\[?\w{1,40}@(?P<node>[\w-]{1,80})[:~ ].{0,80}?[#$] .{0,40}(?:ipmitool|ipmi-sel)\b")
_FORMS = ("%m/%d/%Y %H:%M:%S", "%m/%d/%y %H:%M:%S", "%b-%d-%Y %H:%M:%S")
_EVENTS = (  # what an entry says, the event and its severity; the first that fits
    (re.compile(r"uncorrectable (?:ecc|memory error)", re.IGNORECASE), "mce", "uncorrected"),
    (re.compile(r"\bIERR\b|machine check exception|thermal trip", re.IGNORECASE), "mce", "fatal"),
    (re.compile(r"bus (?:fatal|uncorrectable) error|\bPCI SERR\b", re.IGNORECASE), "aer", "fatal"),
)


def sniff(head: bytes, _source: str) -> int:
    """Be certain where most lines are entries."""
    found = [line for line in head[:16384].decode(errors="replace").splitlines()[:SNIFF_LINES] if line.strip()]
    entries = sum(1 for line in found if _ENTRY.match(line))
    others = sum(1 for line in found if not (_ENTRY.match(line) or _UNDATED.match(line)))
    return 95 if entries and others <= max(entries, 2) else 0


@reader("ipmi_sel", made_by="ipmitool sel elist", gives="uncorrectable errors of a host's hardware", sniff=sniff)
def read(input: Input) -> Iterator[KernelEvent]:
    """Yield an event for each entry about a failure that stops a machine, of the last day that the log has."""
    node, newest, found = input.node, 0.0, list[KernelEvent]()
    for number, line in lines(input.stream):
        if prompt := _PROMPT.match(line):
            node = prompt["node"]
        if (entry := _ENTRY.match(line)) is None or (at := _seconds(entry)) is None:
            continue
        newest = max(newest, at)
        said = entry["said"].lower()
        kind = next(((event, severity) for form, event, severity in _EVENTS if form.search(said)), None)
        if kind is not None and "deasserted" not in said:
            source = f"{input.source}:{number}"
            found.append(
                KernelEvent(event=kind[0], severity=kind[1], text=line.strip(), source=source, node=node, at=at)
            )
    yield from (event for event in found if (event.at or 0.0) >= newest - SAME_DAY_SECONDS)


def _seconds(entry: re.Match[str]) -> float | None:
    stamp = f"{entry['date']} {entry['time']}"
    return next((at for form in _FORMS if (at := local_seconds(stamp, form)) is not None), None)
