"""How fast counters of a job go on, each compared with its own usual pace: whether it fell, and whether it is back.

A counter's pace is what it gained between two readings, per second. A span that no agent read is no pace: nothing is said of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

APART_SECONDS = 45.0  # between two readings: agents read every ten
FELL_SHARE, BACK_SHARE = 0.25, 0.5  # of the usual pace
STILL_SHARE = 0.01  # slower than this it stands still, and nothing is learned from it
BACK_READINGS = 2  # in a row
FEWEST = 3  # readings before anything is usual
NEWEST = 32
MOST_COUNTERS = 4_096
LEAST_A_SECOND = 1e-3


@dataclass(slots=True)
class _Counter:
    at: float
    value: float
    begin_at: float = 0.0  # of the newest reading
    usual: deque[float] = field(default_factory=lambda: deque(maxlen=NEWEST))
    back: int = 0  # readings in a row at the usual pace
    back_at: float = 0.0  # when the first of them began
    second_at: float = 0.0  # when the reading before the newest began
    fell_at: float | None = None  # the newest reading that was much slower

    @property
    def usual_pace(self) -> float | None:
        """Return the median pace while it moved, None before it is known."""
        ordered = sorted(self.usual)
        return ordered[len(ordered) // 2] if len(ordered) >= FEWEST and ordered[-1] > LEAST_A_SECOND else None


class Paces:
    """The counters of one kind, of one attempt."""

    def __init__(self) -> None:
        self.read_at: float | None = None
        self.moved_at: float | None = None  # the newest reading at which one was not still
        self._counters: dict[object, _Counter] = {}

    def take(self, key: object, at: float, value: float) -> None:
        """Take a reading. A counter that begins anew, and one after a long gap, has no pace."""
        known = self._counters.get(key)
        if known is None:
            if len(self._counters) < MOST_COUNTERS:
                self._counters[key] = _Counter(at, value)
            return
        if at <= known.at:
            return
        begin, known_value = known.at, known.value
        known.second_at, known.begin_at = known.begin_at, begin
        known.at, known.value = at, value
        self.read_at = max(at, self.read_at or 0.0)
        if value < known_value or at - begin > APART_SECONDS:
            known.back = 0
            return
        self._judge(known, at, (value - known_value) / (at - begin))

    def _judge(self, one: _Counter, at: float, pace: float) -> None:
        usual = one.usual_pace
        if pace > max(LEAST_A_SECOND, STILL_SHARE * (usual or 0.0)):
            self.moved_at = max(at, self.moved_at or 0.0)
        if usual is not None and pace < FELL_SHARE * usual:
            one.fell_at, one.back = at, 0
            return
        one.usual.append(pace)
        one.back_at = one.back_at if one.back else one.begin_at
        one.back = one.back + 1 if usual is not None and pace >= BACK_SHARE * usual else 0

    def goes_on(self, since: float) -> bool:
        """Whether most counters have had their usual pace in all of the newest readings, which began after an instant."""
        known = [one for one in self._read() if one.usual_pace is not None]
        return 2 * sum(_is_back(one, since) for one in known) > len(known)

    def all_go_on(self, since: float) -> bool:
        """Whether each counter has had its usual pace in the newest readings, which began after an instant."""
        known = self._read()
        return bool(known) and all(_is_back(one, since) for one in known)

    def may_go_on(self, which: Callable[[Any], bool], since: float) -> bool:
        """Whether one of the counters with such keys has had no slow reading that began after an instant."""
        known = [one for key, one in self._counters.items() if which(key) and one.usual_pace is not None]
        return any(one.begin_at < since or one.fell_at != one.at for one in known if one.at > since - APART_SECONDS)

    def back_at(self, onset: float) -> float | None:
        """Return since when at least half of the counters that fell after the onset are back; None: they are not."""
        fell = [one for one in self._read() if one.fell_at is not None and one.fell_at > onset]
        back = [one.back_at for one in fell if one.back]
        return min(back) if back and 2 * len(back) >= len(fell) else None

    def came_back(self, onset: float, since: float) -> bool:
        """Whether at least half of the counters fell after the onset, and nearly all of those have their usual pace again.

        What never fell proves nothing: a rank that waits in a loop is as busy as one that trains.
        """
        known = [one for one in self._read() if one.usual_pace is not None]
        fell = [one for one in known if one.fell_at is not None and one.fell_at > onset]
        back = sum(_is_back(one, since) for one in fell)
        return bool(fell) and 2 * len(fell) >= len(known) and 10 * back >= 9 * len(fell)

    def _read(self) -> list[_Counter]:
        """Return the counters that are still read: not those of a process that has ended."""
        return [one for one in self._counters.values() if one.at > (self.read_at or 0.0) - 2 * APART_SECONDS]


def _is_back(one: _Counter, since: float) -> bool:
    return one.back >= BACK_READINGS and one.second_at >= since
