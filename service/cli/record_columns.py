"""Columns as what they mean: a ring's or a log's entries, and the readings of each device."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping
from sys import byteorder
from typing import Any

from collectors.records import (
    ARRAY_CODES,
    HASH_COLUMNS,
    NOT_READ,
    OP_COLUMNS,
    OWN_COLUMNS,
    RING_COLUMNS,
    STEP_COLUMNS,
    STRAGGLER_COLUMNS,
    TIMING_COLUMNS,
    CollectiveTimings,
    OpTimings,
    Ring,
    Samples,
    Steps,
    StragglerReports,
)

_TYPES: Mapping[type, Mapping[str, str]] = {
    Ring: RING_COLUMNS,
    Steps: STEP_COLUMNS,
    CollectiveTimings: TIMING_COLUMNS,
    OpTimings: OP_COLUMNS,
    StragglerReports: STRAGGLER_COLUMNS,
}
_TEXTS = ("group", "operation", "phase", "node", "quantity")


def values(data: bytes, type_code: str) -> array[Any]:
    """Return a column's values; what a cut left of the last one is dropped."""
    found: array[Any] = array(ARRAY_CODES[type_code])
    found.frombytes(data[: len(data) - len(data) % found.itemsize])
    if byteorder == "big":
        found.byteswap()
    return found


def rows(columns: Mapping[str, bytes], types: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the entries of columns, as far as all that are there go."""
    present = {name: values(columns[name], types[name]) for name in types if name in columns}
    for entry in zip(*present.values(), strict=False):
        yield dict(zip(present, entry, strict=True))


def decoded(record: object) -> dict[str, Any] | None:
    """Return the fields that stand for a record's columns, None for a record without such."""
    if isinstance(record, Samples):
        return _readings(record)
    if isinstance(record, Ring | Steps | CollectiveTimings | OpTimings | StragglerReports):
        strings = getattr(record, "strings", ())
        found = {"entries": [_entry(row, strings) for row in rows(record.columns, _TYPES[type(record)])]}
        if isinstance(record, Ring):
            more = {"hashes": list(rows(record.hashes, HASH_COLUMNS)), "own": list(rows(record.own, OWN_COLUMNS))}
            found |= {name: entries for name, entries in more.items() if entries}
        return found
    return None


def _entry(row: dict[str, Any], strings: tuple[str, ...]) -> dict[str, Any]:
    known = {name: value for name, value in row.items() if value != -1 and not _missing(value)}
    for name in _TEXTS:
        if name in known:
            known[name] = strings[known[name]] if 0 <= known[name] < len(strings) else str(known[name])
    return known


def _readings(record: Samples) -> dict[str, Any]:
    """Return device → metric → values, one a tick, null where there was no reading."""
    ticks, flat = values(record.ticks, "<f8"), values(record.values, record.type)
    readings: dict[str, dict[str, list[Any]]] = {}
    start = 0
    for device in record.devices:
        for metric in record.metrics:
            part = flat[start : start + len(ticks)]
            readings.setdefault(device, {})[metric] = [None if _missing(value) else value for value in part]
            start += len(ticks)
    return {"ticks": list(ticks), "readings": readings}


def _missing(value: Any) -> bool:
    return bool(value == NOT_READ or (isinstance(value, float) and not math.isfinite(value)))
