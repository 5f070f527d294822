"""Records on one clock: the instants of a node whose clock is ahead or behind are moved to the service's.

Crashes are ordered, stacks go out of date and waits get their age by instants of several nodes. Seconds between two clocks
would reverse such an order, so they are removed first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec
import numpy as np

from collectors.records import (
    DIRECTORY,
    CollectiveTimings,
    Coverage,
    FlightRecorderDump,
    KernelEvent,
    Placement,
    ProcessState,
    Record,
    Ring,
    RoleState,
    Samples,
    Steps,
)

MOST_SECONDS = 10 * 366 * 86_400.0  # a clock further off was never set: its instants stay as they are
R = TypeVar("R", bound=Record)
ZONES = tuple(3_600.0 * hours for hours in range(1, 15))  # what stamps of two logs may differ by that name no zone
LATEST_NS = 1 << 62  # a later instant is noise, and what is taken from it would not fit

_INSTANTS: dict[type[Record], tuple[str, ...]] = {
    ProcessState: ("started_at",),
    Coverage: ("started_at", "dropped_from", "dropped_until"),
    KernelEvent: ("yearless_at",),
    RoleState: ("phase_since", "waiting_since", "last_token_at", "last_step_at", "renewed_at"),
}
_COLUMNS: dict[type[Record], tuple[str, ...]] = {
    FlightRecorderDump: ("created_ns", "started_ns", "completed_ns"),
    Ring: ("entered_ns", "left_ns"),
    Steps: ("at",),
    CollectiveTimings: ("started_ns", "at"),
}


def aligned(records: Iterable[Record], offsets: Mapping[str, float]) -> Iterator[Record]:
    """Yield the records by the service's clock. ``offsets``: node → seconds by which its own clock is ahead."""
    usable = {node: ahead for node, ahead in offsets.items() if math.isfinite(ahead) and abs(ahead) <= MOST_SECONDS}
    for record in records:
        if isinstance(record, RoleState) and record.source == DIRECTORY:
            yield record  # its instants are the service's, whatever node it is of
            continue
        ahead = usable.get(record.node, 0.0) if record.node is not None else 0.0
        yield moved(record, ahead) if ahead else record


def moved(record: R, ahead: float) -> R:
    """Return a record with all its instants earlier by so much."""
    kind = type(record)
    changes: dict[str, Any] = {}
    for name in ("at", *_INSTANTS.get(kind, ())):
        value = getattr(record, name)
        if value is not None:
            changes[name] = value - ahead
    if kind in _COLUMNS:
        columns: dict[str, bytes] = getattr(record, "columns")  # noqa: B009 the types that have it are in the table
        changes["columns"] = columns | {
            name: _earlier(columns[name], name, ahead) for name in _COLUMNS[kind] if name in columns
        }
    for name in ("hashes", "own") if isinstance(record, Ring) else ():
        found: dict[str, bytes] = getattr(record, name)
        if "ended_ns" in found:
            changes[name] = found | {"ended_ns": _earlier(found["ended_ns"], "ended_ns", ahead)}
    if isinstance(record, Placement):
        changes["started_ats"] = tuple(at - ahead for at in record.started_ats)
    if isinstance(record, Samples):
        changes["ticks"] = _earlier(record.ticks, "at", ahead)
    return msgspec.structs.replace(record, **changes)


def _earlier(data: bytes, name: str, ahead: float) -> bytes:
    """Move a column of instants; one that is unset (-1) stays unset, one that was cut stays as it is."""
    if len(data) % 8:
        return data
    if not name.endswith("_ns"):
        return (np.frombuffer(data, "<f8") - ahead).astype("<f8").tobytes()
    instants = np.frombuffer(data, "<i8")
    possible = (instants > 0) & (instants < LATEST_NS)
    return np.where(possible, instants - round(ahead * 1e9), instants).astype("<i8").tobytes()
