"""Sends and receives of NCCL Inspector: what a transfer takes itself, and how long each side waited for the other.

The side that comes late to a transfer does not wait in it: of a send and its receive, the shorter is the transfer.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analyzers.diagnosis.slow.arrivals import span_of, times_of
from analyzers.diagnosis.slow.grouping import Floats, Ints
from analyzers.diagnosis.slow.paths import SlowCell
from collectors.records import TIMING_COLUMNS, CollectiveTimings

_PAIR = re.compile(r"(send|recv) (\d{1,7})(?:->|<-)(\d{1,7})", re.IGNORECASE)
FEWEST = 5  # transfers of a path
_Path = tuple[str, int, int, int]  # communicator, sender and receiver in it, bytes


@dataclass(frozen=True)
class PeerTransfers:
    """``seconds``: of a transfer of the largest size, by (sender, receiver) as indices of processes; ``bytes``: that size.

    ``total``: of all those transfers. ``waits``: (who, for whom) → seconds in total. ``span``: seconds from a process's first
    transfer to its last; NaN: not known.
    """

    seconds: dict[tuple[int, int], float]
    bytes: dict[tuple[int, int], int]
    total: dict[tuple[int, int], float]
    waits: dict[tuple[int, int], float]
    sources: dict[int, str]
    span: float

    def extra_share(self, slow: Sequence[SlowCell]) -> float:
        """Return which part of the time the slowest path takes more than others like it; NaN where that is not known."""
        extra = (self.total[one.source, one.target] * (1 - 1 / one.times) for one in slow)
        return min(max(extra, default=0.0) / self.span, 0.999)


def pair_up(records: Sequence[CollectiveTimings], number: Mapping[tuple[str, int], int]) -> PeerTransfers:
    """Match sends with receives by their order. ``number``: communicator and rank in it → the index of the process."""
    sides: dict[tuple[_Path, str], list[tuple[Ints, Floats]]] = defaultdict(list)
    sources: dict[int, str] = {}
    for record in records:
        for path, side, sequence, seconds in _sides(record):
            sides[path, side].append((sequence, seconds))
            own = number.get((record.communicator, path[1] if side == "send" else path[2]))
            if own is not None:
                sources.setdefault(own, record.source)
    largest: dict[tuple[int, int], tuple[int, float, float]] = {}
    waits: dict[tuple[int, int], float] = defaultdict(float)
    scale = max((record.every for record in records), default=1)
    for path in sorted({path for path, _ in sides}):
        ends = number.get((path[0], path[1])), number.get((path[0], path[2]))
        sent, received = _ordered(sides.get((path, "send"))), _ordered(sides.get((path, "recv")))
        count = min(len(sent), len(received))
        if ends[0] is None or ends[1] is None or count < FEWEST:
            continue
        sent, received = sent[-count:], received[-count:]
        itself = np.minimum(sent, received)
        waits[ends[0], ends[1]] += float((sent - itself).sum()) * scale
        waits[ends[1], ends[0]] += float((received - itself).sum()) * scale
        if path[3] >= largest.get((ends[0], ends[1]), (-1, 0.0, 0.0))[0]:
            largest[ends[0], ends[1]] = (path[3], float(np.median(itself)), float(itself.sum()) * scale)
    usual, sizes, totals = ({cell: row[place] for cell, row in largest.items()} for place in (1, 0, 2))
    return PeerTransfers(
        usual, {cell: int(size) for cell, size in sizes.items()}, totals, dict(waits), sources, _span(records)
    )


def _span(records: Sequence[CollectiveTimings]) -> float:
    """Return the median of what processes' records of transfers span, by their own clocks."""
    rows: dict[tuple[str, int], list[tuple[Floats, Floats, Floats]]] = defaultdict(list)
    for record in records:
        if any(_PAIR.fullmatch(text) for text in record.strings):
            owner = (record.node or record.source, -1 if record.pid is None else record.pid)
            rows[owner].append(times_of(record))
    spans = [span_of(*(np.concatenate(column) for column in zip(*parts, strict=True))) for parts in rows.values()]
    known = [one for one in spans if np.isfinite(one)]
    return float(np.median(known)) if known else float("nan")


def _ordered(parts: list[tuple[Ints, Floats]] | None) -> Floats:
    if not parts:
        return np.zeros(0)
    sequence, seconds = np.concatenate([one for one, _ in parts]), np.concatenate([one for _, one in parts])
    return seconds[np.argsort(sequence, kind="stable")]


def _sides(record: CollectiveTimings) -> list[tuple[_Path, str, Ints, Floats]]:
    """Return a record's sends and receives, by path: sequence and seconds of each."""
    named = {code: match for code, text in enumerate(record.strings) if (match := _PAIR.fullmatch(text))}
    if not named or any(
        len(record.columns.get(name, b"")) != record.count * np.dtype(code).itemsize
        for name, code in TIMING_COLUMNS.items()
        if name in ("operation", "sequence", "bytes", "seconds")
    ):
        return []
    operation, sequence, size, seconds = (
        np.frombuffer(record.columns[name], TIMING_COLUMNS[name])
        for name in ("operation", "sequence", "bytes", "seconds")
    )
    sound = np.isfinite(seconds) & (seconds > 0) & (seconds < 1e6)
    found = []
    for code, match in named.items():
        side, own, peer = match[1].lower(), int(match[2]), int(match[3])
        ends = (own, peer) if side == "send" else (peer, own)
        mine = sound & (operation == code)
        for each in np.unique(size[mine]).tolist():
            kept = mine & (size == each)
            path = (record.communicator, *ends, int(each))
            found.append((path, side, sequence[kept].astype(np.int64), seconds[kept].astype(np.float64)))
    return found
