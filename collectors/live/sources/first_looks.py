"""Where a rank writes its output, looked at once as it is first seen: one that raises in its first seconds is gone afterwards.

Processes are looked for every five seconds, and every second for a while after a rank has ended: that is when others begin.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from collectors.live.sources.ranks import TrainingProcess
from collectors.live.sources.tailing import key_of

USUAL_SECONDS, HURRIED_SECONDS = 5.0, 0.9  # for so long one scan of the processes serves all collectors
HURRIES_SECONDS = 300.0  # after an end
KEPT_SECONDS = 30.0  # of a look: its output is read every five
MOST_LOOKS = 1_024


@dataclass(frozen=True, slots=True)
class FirstLook:
    """One rank's process, and the files behind its standard output and error: key and name."""

    process: TrainingProcess
    outputs: tuple[tuple[str, str], ...]
    at: float  # monotonic seconds
    sizes: tuple[int, ...] = ()  # of each output then


@dataclass(slots=True)
class FirstLooks:
    """The newest looks of a node; taken by the collector of processes, used by that of logs."""

    hurried_until: float = float("-inf")
    _looks: tuple[FirstLook, ...] = field(default=())  # replaced whole: every collector has its own thread

    def scan_seconds(self, now: float) -> float:
        """Return how old a scan of the processes may be."""
        return HURRIED_SECONDS if now < self.hurried_until else USUAL_SECONDS

    def hurry(self, now: float) -> None:
        """A rank has ended: another may begin, and end soon."""
        self.hurried_until = now + HURRIES_SECONDS

    def take(self, proc: Path, process: TrainingProcess, now: float) -> None:
        """Look at a process that was not seen before."""
        sizes = dict[tuple[str, str], int]()
        for number in (1, 2):
            path = proc / str(process.pid) / "fd" / str(number)
            with suppress(OSError):
                if (key := key_of(str(path))) is not None:
                    sizes.setdefault((key, str(path.readlink())), path.stat().st_size)
        look = FirstLook(process, tuple(sizes), now, tuple(sizes.values()))
        self._looks = (*self._recent(now), look)[-MOST_LOOKS:]

    def all(self, now: float) -> tuple[FirstLook, ...]:
        """Return the newest looks."""
        return tuple(self._recent(now))

    def gone(self, living: tuple[TrainingProcess, ...], now: float) -> list[FirstLook]:
        """Return the newest looks at processes that have ended since."""
        alive = {(one.pid, one.start_ticks) for one in living}
        return [one for one in self._recent(now) if (one.process.pid, one.process.start_ticks) not in alive]

    def _recent(self, now: float) -> Iterator[FirstLook]:
        return (one for one in self._looks if now - one.at <= KEPT_SECONDS)
