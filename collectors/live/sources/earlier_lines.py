"""Lines that were in a log before the processes that write it now were started: those of an earlier run of the same file.

How long a file was at the start of a process is known where its first look came right after that. Most lines have no time, so
else an exception of the last run would be one of the run that loads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from collectors.live.sources.host import Host
from collectors.live.sources.ranks import TrainingProcess
from collectors.live.sources.tailing import Chunk, Tails

SOON_SECONDS = 3.0  # after its start a process of a training job still loads its libraries
BEFORE_SECONDS = 2.0  # by which the lines of an earlier run are dated before this one: clocks and starts differ by one


@dataclass(frozen=True, slots=True)
class _Start:
    size: int
    at: float  # UTC seconds


@dataclass(slots=True)
class EarlierLines:
    """How long each file was when the first of its present processes was started."""

    host: Host
    _starts: dict[str, _Start] = field(default_factory=dict)  # by key of the file
    _seen: frozenset[tuple[int, int]] = frozenset()

    def look(self) -> None:
        """Take over what the first looks at processes show that are new since."""
        looks = self.host.first_looks.all(self.host.clock.monotonic())
        passed = self.host.clock.now() - self.host.clock.monotonic()
        for look in looks:
            process = look.process
            is_new = (process.pid, process.start_ticks) not in self._seen
            if not is_new or process.started_at is None or look.at + passed - process.started_at > SOON_SECONDS:
                continue
            for (key, _), size in zip(look.outputs, look.sizes, strict=True):
                start = self._starts.get(key)
                if start is None or process.started_at > start.at + SOON_SECONDS:
                    self._starts[key] = _Start(size, process.started_at)
                elif process.started_at >= start.at - SOON_SECONDS:
                    self._starts[key] = _Start(min(size, start.size), min(process.started_at, start.at))
        self._seen = frozenset((look.process.pid, look.process.start_ticks) for look in looks)

    def forget(self, tails: Tails) -> None:
        """Keep what is known of open files alone."""
        self._starts = {key: start for key, start in self._starts.items() if key in tails.files}

    def split(self, chunk: Chunk, processes: Sequence[TrainingProcess], tails: Tails) -> tuple[Chunk, bool]:
        """Return the lines that were there before, and the rest for the next run; or all, where none were."""
        start = self._starts.get(chunk.key)
        began = min((one.started_at for one in processes if one.started_at is not None), default=None)
        if start is None or began is None or began < start.at - SOON_SECONDS:
            return chunk, False  # another process wrote it before
        begin = tails.positions[chunk.key].offset - len(chunk.data)
        end = chunk.data.rfind(b"\n", 0, max(0, start.size - begin)) + 1
        if not end:
            return chunk, False
        if end < len(chunk.data):
            tails.hold(chunk, end)
            tails.positions[chunk.key].held = False
        at = min(chunk.written_at, start.at - BEFORE_SECONDS)
        return replace(chunk, data=chunk.data[:end], written_at=at), True
