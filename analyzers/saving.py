"""Whether a job saves a checkpoint now: by the phase that its probe names, and by where its ranks stand in their own code.

To take a node away in the middle of a save costs the checkpoint as well. What does not show itself here is not seen.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from analyzers.frames import Rules
from analyzers.knowledge import Knowledge
from analyzers.pauses import Pauses
from analyzers.standings import Look
from collectors.records import RING_COLUMNS, Record, Ring, StackDump

SEEN_SECONDS = 90.0  # stacks come once a minute; an older one tells nothing of now
PAUSE = "checkpoint"  # of pauses.toml
_PHASE = re.compile(r"check_?point|ckpt|\bsav(e|ing)\b", re.IGNORECASE)


class Saving:
    """The rules by which a save is recognised."""

    def __init__(self, knowledge: Knowledge) -> None:
        self._rules, self._pauses = Rules.of(knowledge), Pauses.of(knowledge)

    def since(self, records: Iterable[Record], now: float) -> float | None:
        """Return since when a rank is known to be saving, by the newest that is known of each; None: none is."""
        dumps: dict[object, list[StackDump]] = defaultdict(list)
        rings: dict[object, Ring] = {}
        for record in records:
            if record.at is None or now - record.at > SEEN_SECONDS:
                continue
            key = (record.node, getattr(record, "pid", None), record.rank)
            if isinstance(record, StackDump) and record.threads:
                dumps[key].append(record)
            elif isinstance(record, Ring) and not record.ended:
                rings[key] = max(record, rings.get(key, record), key=lambda ring: ring.at or 0.0)
        found = [self._by_stack(seen) for seen in dumps.values()] + [_by_phase(ring) for ring in rings.values()]
        return min((since for since in found if since is not None), default=None)

    def _by_stack(self, dumps: list[StackDump]) -> float | None:
        ordered = sorted(dumps, key=lambda dump: dump.at or 0.0)
        pause = self._pauses.seen([Look.of(dump, self._rules) for dump in ordered], (), ())
        return pause.since if pause is not None and pause.kind == PAUSE else None


def _by_phase(ring: Ring) -> float | None:
    """Return when a rank first entered something in the phase that it is in now, if that is a save."""
    phases, entered = _column(ring, "phase"), _column(ring, "entered_ns")
    if not phases or len(phases) != len(entered) or not 0 <= phases[-1] < len(ring.strings):
        return None
    if not _PHASE.search(ring.strings[phases[-1]]):
        return None
    first = len(phases) - 1
    while first and phases[first - 1] == phases[-1]:
        first -= 1
    return entered[first] / 1e9


def _column(ring: Ring, name: str) -> list[int]:
    data, kind = ring.columns.get(name, b""), np.dtype(RING_COLUMNS[name])
    values: list[int] = np.frombuffer(data, kind, len(data) // kind.itemsize).tolist()
    return values
