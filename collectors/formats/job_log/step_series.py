"""The steps that one log reports: bounded, a series for each process and layout, written as columns."""

from __future__ import annotations

import math
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from collectors.formats.job_log.job_lines import Line
from collectors.formats.job_log.step_lines import Step
from collectors.records import ARRAY_CODES, STEP_COLUMNS, Steps, column_bytes

MAX_STEPS_OF_SERIES = 4096  # of a file; the newest, and the step at which a NaN began that they do not reach back to
MAX_SERIES = 20_000
MAX_STEPS = 200_000  # of one file, all series together


class Place(NamedTuple):
    """What a line's prefixes give of a process whose rank they do not name; two processes share no place."""

    task: int | None = None  # srun's label
    local_rank: int | None = None  # torchrun's
    node: str | None = None


BAR = "bar"  # the layout of steps that only a progress bar shows
NO_PLACE = Place()
Key = tuple[str, int | None, Place]  # layout, rank, the place where the line names no rank


@dataclass(slots=True)
class StepSeries:
    """Collects steps in the order of their lines. A step that comes again, as after a restart, replaces the earlier one."""

    most_of_series: int = MAX_STEPS_OF_SERIES
    series: dict[Key, OrderedDict[int, Step]] = field(default_factory=dict)
    onsets: dict[Key, Step] = field(default_factory=dict)  # where a NaN began, in what a series no longer holds
    count: int = 0

    def add(self, step: Step, line: Line) -> None:
        """Add the step that a line reports."""
        place = NO_PLACE if step.rank is not None else Place(line.task, line.local_rank, line.node)
        key = (step.layout, step.rank, place)
        if key not in self.series and len(self.series) >= MAX_SERIES:
            return
        steps = self.series.setdefault(key, OrderedDict())
        number = step.step
        if number < 0:  # without a number each is a step of its own
            number = min(next(reversed(steps), 0), 0) - 1
        if step.null and number in steps:
            return  # a further row of that step, with other values
        self.count += steps.pop(number, None) is None
        steps[number] = step
        if len(steps) > self.most_of_series or self.count > MAX_STEPS:
            self._drop_oldest(key, steps)

    def _drop_oldest(self, key: Key, steps: OrderedDict[int, Step]) -> None:
        _, oldest = steps.popitem(last=False)
        self.count -= 1
        if oldest.nan or oldest.loss_is_none:
            self.onsets.setdefault(key, oldest)
        elif not oldest.skipped:
            self.onsets.pop(key, None)

    def instants(self) -> Iterator[float]:
        """Yield the stamps of the lines."""
        return (step.at for steps in self.series.values() for step in steps.values() if not math.isnan(step.at))

    def records(
        self,
        source: str,
        rank_of: Callable[[Place], int | None],
        *,
        shift_seconds: float = 0.0,
        written_at: float = math.nan,
    ) -> Iterator[Steps]:
        """Yield a record for each series, without an instant of its own.

        ``rank_of``: the rank of lines that name none, by their place. ``shift_seconds`` is added to the stamps;
        ``written_at`` stands for the newest step's where its line has none.
        """
        said = any(layout != BAR and len(steps) > 1 for (layout, _, _), steps in self.series.items())
        for key, steps in self.series.items():
            layout, rank, place = key
            if said and layout == BAR:
                continue  # lines that report the steps say more of them
            rows = [*([self.onsets[key]] if key in self.onsets else []), *steps.values()]
            if not rows:
                continue
            rows = [replace(row, at=row.at + shift_seconds) for row in rows]
            if math.isnan(rows[-1].at):
                rows[-1] = replace(rows[-1], at=written_at)
            yield Steps(
                source=source,
                rank=rank if rank is not None else rank_of(place),
                node=place.node,
                step=rows[-1].step if rows[-1].step >= 0 else None,
                told_by=layout,
                count=len(rows),
                columns={
                    name: column_bytes(array(ARRAY_CODES[kind], [getattr(row, name) for row in rows]))
                    for name, kind in STEP_COLUMNS.items()
                },
            )
