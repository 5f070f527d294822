"""The training's progress bar of each log, and which step it shows.

Of several bars the first is the training's until it is full: an evaluation begins within it. A further one, as of the next epoch,
goes on from there.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import nan
from typing import Any

from collectors.records import ARRAY_CODES, STEP_COLUMNS, Steps, column_bytes

MOST_BARS = 1024  # logs


@dataclass(slots=True)
class _Training:
    """The training bar of a log. ``before``: the steps of the bars before it."""

    whose: str
    of: str
    total: int
    done: int
    before: int = 0


class Bars:
    """The training bar of each log."""

    def __init__(self) -> None:
        self._of: dict[str, _Training] = {}  # by key of the file

    def step(self, key: str, whose: str, shown: Iterable[tuple[str, int, int]]) -> int | None:
        """Return the step that the training bar shows newly, None where it shows none. ``shown``: description, count, total."""
        newest: int | None = None
        for of, done, total in shown:
            known = self._of.pop(key, None)
            if known is None or known.whose != whose:
                known = _Training(whose, of, total, 0)
            elif known.done >= known.total and done < known.done:
                known = _Training(whose, of, total, 0, known.before + known.total)
            self._of[key] = known
            if (of, total) == (known.of, known.total) and done > known.done:
                known.done = done
                newest = known.before + known.done
        while len(self._of) > MOST_BARS:
            del self._of[next(iter(self._of))]
        return newest

    def cursor(self, positions: Mapping[str, Any]) -> dict[str, list[Any]]:
        """Return what a later agent needs to go on counting."""
        return {
            key: [one.whose, one.of, one.total, one.done, one.before]
            for key, one in self._of.items()
            if key in positions
        }

    def resume(self, kept: Any) -> None:
        """Take up a cursor."""
        rows = kept.items() if isinstance(kept, Mapping) else ()
        self._of = {
            str(key): _Training(str(row[0]), str(row[1]), *map(int, row[2:])) for key, row in rows if len(row) == 5
        }


def steps_of(number: int, source: str, rank: int | None, at: float) -> Steps:
    """Return the step that a bar shows: of the time it was written at, and no other value."""
    given: dict[str, float] = {"step": number, "at": at}
    columns = {
        name: column_bytes(array(ARRAY_CODES[kind], [given.get(name, nan if kind == "<f8" else 0)]))
        for name, kind in STEP_COLUMNS.items()
    }
    return Steps(source=source, rank=rank, step=number, told_by="bar", count=1, columns=columns, at=at)
