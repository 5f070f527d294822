"""NCCL RAS as JSON (2.28.7 and later), communicator by communicator, and the PEER_DEAD events of its monitor.

NCCL 2.28.9 leaves out the comma before ``"status"`` in ``missing_ranks``; such a communicator is read once more by a
lenient parser to which commas are blanks and a brace too many is nothing. What stays unreadable is said, with its
offset, and the next communicator is read.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from typing import Any

from collectors.formats import Input, reader
from collectors.formats.text_lines import local_seconds
from collectors.records import RasCommunicator, RasPeerDead, RasRank, Record, Unread

MAX_BYTES = 256 << 20
MAX_DEPTH = 32
MAX_COMMUNICATORS = 200_000
MAX_BROKEN = 100
"""Broken communicators after which a file is given up: it is not RAS's."""
STAMP_DISTANCE = 512
"""How far before a report's version line its timestamp may stand, in characters."""
EVENT_DISTANCE = 65_536
"""How far before its ``event`` key an event's object may begin, in characters."""

_START = re.compile(r'(?<![\s{,])[\s{,]+"hash"\s*:')  # begins at the start of a run: no run is looked at twice
_EVENT = re.compile(r'"event"\s*:\s*"PEER_DEAD"')
_TIMESTAMP = re.compile(r'"timestamp"\s*:\s*"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)"')
_REPORT = re.compile(r'"(?:communicators_count|nccl_version|rccl_version)"\s*:')
_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*+)(?:"|\Z)(\s*:)?|([{}\[\]])|(-?\d+(?:\.\d+)?)|(true|false|null)')
_DECODER = json.JSONDecoder()


def sniff(head: bytes, _source: str) -> int:
    """Know a report by its own words."""
    if b'"communicators"' in head and (b'"communicators_count"' in head or b'"secondary_hash"' in head):
        return 98
    if b'"secondary_hash"' in head and b'"collective_counts"' in head:
        return 90
    return 90 if re.search(rb'"group"\s*:\s*"LIFECYCLE"', head) and b'"peer"' in head else 0


@reader(
    "nccl_ras_json",
    made_by="ncclras -f json; ncclras -f json -m",
    gives="communicators, operation counts per rank, missing and dead ranks",
    sniff=sniff,
)
def read(input: Input) -> Iterator[Record]:
    """Yield one record per communicator and per dead process."""
    data = input.stream.read(MAX_BYTES + 1)
    text = data[:MAX_BYTES].decode("utf-8", "replace")
    yield from _communicators(input, text)
    yield from _events(input, text)
    if len(data) > MAX_BYTES:
        reason = f"more than {MAX_BYTES} bytes of RAS JSON: the rest is not read, split it by report"
        yield Unread(source=input.source, reason=reason, outcome="limit", offset=MAX_BYTES)


def _communicators(input: Input, text: str) -> Iterator[Record]:
    starts = list(islice(_starts(text), MAX_COMMUNICATORS))
    reports = [found.start() for found in islice(_REPORT.finditer(text), MAX_COMMUNICATORS)]
    stamps = [
        (found.start(), local_seconds(found.group(1))) for found in islice(_TIMESTAMP.finditer(text), MAX_COMMUNICATORS)
    ]
    broken = 0
    if not starts and '"communicators"' in text and not re.search(r'"communicators"\s*:\s*\[\s*\]', text):
        reason = "RAS JSON without a readable communicator: take the report again with `ncclras -f json`"
        yield Unread(source=input.source, reason=reason, outcome="damaged", offset=0)
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else len(text)
        raw = _object(text, start, end)
        if raw is None or not isinstance(raw.get("hash"), str):
            broken += 1
            if broken > MAX_BROKEN:
                reason = f"{MAX_BROKEN} broken RAS communicators: the rest is not read, take the report again"
                yield Unread(source=input.source, reason=reason, outcome="limit", offset=start)
                return
            reason = f"the RAS communicator at character {start} is broken beyond repair: it is skipped"
            yield Unread(source=input.source, reason=reason, outcome="damaged", offset=start)
            continue
        yield _communicator(input, raw, _at(input, start, reports, stamps), f"{input.source}:{number + 1}")


def _starts(text: str) -> Iterator[int]:
    """Yield where the object of each communicator begins."""
    for found in _START.finditer(text):
        if (start := text.find("{", found.start(), found.end())) >= 0:
            yield start


def _events(input: Input, text: str) -> Iterator[Record]:
    found = [(one.start(), one.end()) for one in islice(_EVENT.finditer(text), MAX_COMMUNICATORS)]
    before = 0
    for number, (key, key_end) in enumerate(found, 1):
        end = found[number][0] if number < len(found) else len(text)
        start = text.rfind("{", max(before, key - EVENT_DISTANCE), key)
        before = key_end
        if start < 0:
            continue
        raw = _object(text, start, min(end, key + EVENT_DISTANCE)) or {}
        peer = raw.get("peer")
        peer = peer if isinstance(peer, dict) else {}
        devices = peer.get("cuda_devs")
        yield RasPeerDead(
            source=f"{input.source}:{number}",
            at=local_seconds(_text(raw.get("timestamp"))),
            host=_text(peer.get("host")),
            pid=_integer(peer.get("pid")),
            gpus=tuple(one for one in devices if isinstance(one, int)) if isinstance(devices, list) else (),
        )


def _at(input: Input, start: int, reports: list[int], stamps: list[tuple[int, float | None]]) -> float | None:
    """Return the instant of the report that this communicator is in: its own timestamp, else the file's time."""
    report = bisect_left(reports, start)
    begin = reports[report - 1] if report else 0
    stamp = bisect_left(stamps, start, key=lambda one: one[0]) - 1
    own = stamp >= 0 and stamps[stamp][0] >= begin - STAMP_DISTANCE
    return stamps[stamp][1] if own else input.at


def _object(text: str, start: int, end: int) -> dict[str, Any] | None:
    """Decode the object at ``start``, strictly if possible; nothing beyond ``end`` is looked at."""
    text = text[start:end]
    try:
        raw, _ = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        raw = lenient(text)
    return raw if isinstance(raw, dict) else None


def lenient(text: str) -> dict[str, Any] | None:
    """Parse the first object in the text, taking commas for blanks and ignoring braces that open or close nothing."""
    stack: list[tuple[dict[str, Any] | list[Any], str | None]] = []
    root: dict[str, Any] | None = None
    key: str | None = None
    for found in _TOKEN.finditer(text):
        string, colon, brace, number, word = found.groups()
        container = stack[-1][0] if stack else None
        if brace and brace in "{[":
            if isinstance(container, dict) and key is None:
                continue
            opened: dict[str, Any] | list[Any] = {} if brace == "{" else []
            if len(stack) >= MAX_DEPTH or (root is None and not isinstance(opened, dict)):
                return None
            root = opened if root is None and isinstance(opened, dict) else root
            _put(container, key, opened)
            stack.append((opened, key))
            key = None
        elif brace:
            if stack and isinstance(container, dict) == (brace == "}"):
                stack.pop()
                key = None
            if not stack:
                return root
        elif colon:
            key = string
        else:
            _put(container, key, _value(string, number, word))
            key = None
    return root


def _put(container: dict[str, Any] | list[Any] | None, key: str | None, value: object) -> None:
    if isinstance(container, list):
        container.append(value)
    elif isinstance(container, dict) and key is not None:
        container[key] = value


def _value(string: str | None, number: str | None, word: str | None) -> object:
    if string is not None:
        return string
    if number is not None:
        return float(number) if "." in number else int(number[:18])
    return {"true": True, "false": False, "null": None}[word or "null"]


def _communicator(input: Input, raw: dict[str, Any], at: float | None, source: str) -> RasCommunicator:
    size = _integer(raw.get("size")) or 0
    present, missing = raw.get("ranks"), raw.get("missing_ranks")
    ranks = [_rank(one, missing=False) for one in (present if isinstance(present, list) else [])]
    ranks += [_rank(one, missing=True) for one in (missing if isinstance(missing, list) else [])]
    known = [one for one in ranks if one is not None and (not size or 0 <= one.rank < size)]
    return RasCommunicator(
        source=source,
        at=at,
        node=input.node,
        hash=_text(raw.get("hash")),
        secondary_hash=_text(raw.get("secondary_hash")),
        size=size,
        errors="INCOMPLETE" if any(one.missing for one in known) else None,
        ranks=tuple(sorted(known, key=lambda one: one.rank)),
    )


def _rank(raw: object, *, missing: bool) -> RasRank | None:
    if not isinstance(raw, dict) or _integer(raw.get("rank")) is None:
        return None
    status = raw.get("status")
    status = status if isinstance(status, dict) else {}
    counts = raw.get("collective_counts")
    counts = counts if isinstance(counts, dict) else {}
    return RasRank(
        rank=_integer(raw.get("rank")) or 0,
        host=_text(raw.get("host")),
        pid=_integer(raw.get("pid")),
        gpu=_integer(raw.get("cuda_dev")),
        init_state=_integer(status.get("init_state")),
        async_error=_integer(status.get("async_error")),
        aborted=status.get("abort_flag") is True,
        counts={str(name): count for name, count in counts.items() if isinstance(count, int)},
        missing=missing,
        # Early releases put the two flags beside `status` instead of in it.
        unresponsive=missing and (status.get("unresponsive") is True or raw.get("unresponsive") is True),
        dead=missing and (status.get("considered_dead") is True or raw.get("considered_dead") is True),
    )


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
