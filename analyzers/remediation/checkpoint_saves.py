"""Whether a job saves a checkpoint now: by the phase that its probe reports, and by the stacks of its ranks.

An eviction in the middle of a save costs the checkpoint as well.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from analyzers.knowledge import Knowledge
from analyzers.model.frames import FrameRules
from analyzers.model.rings import ring_values
from analyzers.model.standings import Observation
from analyzers.verdict.pauses import Pauses
from collectors.records import Record, Ring, StackDump

SEEN_SECONDS = 90.0  # stacks come once a minute; an older one is no evidence of a save now
LONGEST_SECONDS = 1_800.0  # a save that takes longer is stuck, or its clock is wrong
PAUSE = "checkpoint"  # of pauses.toml
_PHASE = re.compile(r"check_?point|ckpt|\bsav(e|ing)\b", re.IGNORECASE)


class SaveDetector:
    """The rules by which a save is recognised."""

    def __init__(self, knowledge: Knowledge) -> None:
        self._rules, self._pauses = FrameRules.from_knowledge(knowledge), Pauses.from_knowledge(knowledge)

    def since(self, records: Iterable[Record], now: float) -> float | None:
        """Return since when the last of the saving ranks is known to save; None: no rank does.

        ``now`` is by the clock of the records' sender. No save began after now. Of several ranks the last counts, so that a
        wrong clock of one does not end the wait for all.
        """
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
        return max((min(since, now) for since in found if since is not None), default=None)

    def _by_stack(self, dumps: list[StackDump]) -> float | None:
        ordered = sorted(dumps, key=lambda dump: dump.at or 0.0)
        pause = self._pauses.seen([Observation.from_dump(dump, self._rules) for dump in ordered], (), ())
        return pause.since if pause is not None and pause.kind == PAUSE else None


def _by_phase(ring: Ring) -> float | None:
    """Return since when a rank is in its phase, if that is a save: from its first operation in it, or its last one before."""
    if ring.phase is None or not _PHASE.search(ring.phase):
        return None
    inside = ring.strings.index(ring.phase) if ring.phase in ring.strings else None
    since, before = ring.at, None
    columns = [ring_values(ring, name) for name in ("phase", "entered_ns", "left_ns")]
    for phase, entered, left in zip(*columns, strict=False):
        if phase != inside:
            since = max(entered, left) / 1e9
        elif before != inside:
            since = entered / 1e9
        before = phase
    return since
