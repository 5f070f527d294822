"""Flight Recorder JSON is read whole where it is whole, and entry by entry up to the damage where it is not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from collectors.formats import Input, reader
from collectors.formats.flight_recorder import document as flight_recorder
from collectors.records import FlightRecorderDump, Unread

# The keys are written in alphabetical order, so that entries come before pg_config and may fill the head. "nccl_version"
# is no proof: NCCL RAS writes it too, and no dump has it without pg_config.
_CERTAIN = re.compile(rb'"(?:pg_config|pg_status|comm_lib_version|collective_seq_id|time_created_ns)"\s*:')
_LIKELY = re.compile(rb'\A\s*\{\s*"(?:entries|version)"\s*:')
_OF_A_PROFILER = re.compile(rb'"(?:distributedInfo|traceEvents)"\s*:')  # a profiler's trace describes the groups, too
_SPACE = re.compile(r"[ \t\r\n]*")


def _sniff(head: bytes, _source: str) -> int:
    if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return 0
    if _OF_A_PROFILER.search(head):
        return 0
    return 100 if _CERTAIN.search(head) else 20 if _LIKELY.match(head) else 0


@reader(
    "flight_recorder_json",
    made_by="torch._C._distributed_c10d._dump_fr_trace_json(), or POST /handler/fr_trace_json of a worker server",
    gives="the last collectives of one rank: which group, which operation, how far it came",
    sniff=_sniff,
)
def read(input: Input) -> Iterator[FlightRecorderDump | Unread]:
    """Read one dump; of a damaged one, the entries before the damage."""
    data = flight_recorder.whole(input)
    if isinstance(data, Unread):
        yield data
        return
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError):
        yield from _tolerant(data.decode("utf-8-sig", errors="replace"), input)
    else:
        yield from flight_recorder.record(document, input)


def _tolerant(text: str, input: Input) -> Iterator[FlightRecorderDump | Unread]:
    """Read what the strict decoder will not: NaN, bytes that are no UTF-8, a document that stops."""
    document: dict[str, Any] = {}
    try:
        end = _pairs(text, _after_space(text, 0) + 1, document, 0)
    except _Damage as damage:
        if document:
            yield from flight_recorder.record(document, input, truncated=True)
        entries = document.get("entries")
        kept = (
            f"{len(entries):,} entries before it are used" if isinstance(entries, list) else "no entry comes before it"
        )
        reason = f"the JSON is damaged at character {damage.offset:,} of {len(text):,}; {kept}"
        yield flight_recorder.unread(input, reason, "damaged", damage.offset)
        return
    yield from flight_recorder.record(document, input)
    if _after_space(text, end) < len(text):
        yield flight_recorder.unread(
            input, f"what follows the document at character {end:,} is not read", "damaged", end
        )


class _Damage(Exception):
    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


_decode = json.JSONDecoder().raw_decode


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _value(text: str, at: int) -> tuple[Any, int]:
    """Read one value whole, below the level of pg_config's groups and of single entries."""
    try:
        value, end = _decode(text, _after_space(text, at))
    except (ValueError, RecursionError) as error:
        raise _Damage(getattr(error, "pos", at)) from error
    return value, end


def _fill(text: str, at: int, depth: int, keep: Any) -> int:
    """Read one value and hand it to ``keep``; a container near the top is handed over first and filled afterwards."""
    at = _after_space(text, at)
    first = text[at : at + 1]
    if depth < 1 and first in ("{", "["):
        container: Any = {} if first == "{" else []
        keep(container)
        return (_pairs if first == "{" else _elements)(text, at + 1, container, depth + 1)
    value, end = _value(text, at)
    keep(value)
    return end


def _next(text: str, at: int, closing: str) -> tuple[int, bool]:
    at = _after_space(text, at)
    if text[at : at + 1] == ",":
        return at + 1, False
    if text[at : at + 1] == closing:
        return at + 1, True
    raise _Damage(at)


def _pairs(text: str, at: int, into: dict[str, Any], depth: int) -> int:
    if text[(end := _after_space(text, at)) : end + 1] == "}":
        return end + 1
    done = False
    while not done:
        key, at = _value(text, at)
        at = _after_space(text, at)
        if text[at : at + 1] != ":" or not isinstance(key, str):
            raise _Damage(at)
        at = _fill(text, at + 1, depth, lambda value, key=key: into.__setitem__(key, value))
        at, done = _next(text, at, "}")
    return at


def _elements(text: str, at: int, into: list[Any], depth: int) -> int:
    if text[(end := _after_space(text, at)) : end + 1] == "]":
        return end + 1
    done = False
    while not done:
        at = _fill(text, at, depth, into.append)
        at, done = _next(text, at, "]")
    return at
