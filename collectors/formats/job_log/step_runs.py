"""How each process of a log goes on with its steps: whether it did so after a line that only its end could explain."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from collectors.formats.job_log.job_lines import Line

STEPS_AFTER, NEWEST_STEPS = 4, 16  # so many steps after a failure of the network or an exception, it had passed
MAX_RUNS = 20_000  # as of streams
BUFFER_BYTES, LONG_LINES = 8192, 512
"""A program that prints into a file writes so much at a time, and the last of it when it ends."""


@dataclass(slots=True)
class _Run:
    """A stream's steps in a row, each with a higher number than the one before."""

    began: Line
    anew: bool = False  # the stream has had higher steps before
    newest: deque[Line] = field(default_factory=lambda: deque(maxlen=STEPS_AFTER))
    step: int = -1


class StepRuns:
    """The newest steps of a log and of each of its streams."""

    def __init__(self, head: bytes) -> None:
        self._runs: dict[str, _Run] = {}
        self._printed_at_once = head.count(b"\n", 0, BUFFER_BYTES)  # a step in so many first lines was not held back
        self._newest: OrderedDict[int, Line] = OrderedDict()  # step → the line that reports it first

    def take(self, step: int, line: Line) -> None:
        """Take a step and the line that reports it; one without a number comes after those before it."""
        run = self._runs.get(line.stream)
        if step < 0:
            step = run.step + 1 if run is not None else 0
        if (run is None and len(self._runs) < MAX_RUNS) or (run is not None and 0 <= step < run.step):
            run = self._runs[line.stream] = _Run(line, anew=run is not None)
        if run is not None and step > run.step:
            run.step = step
            run.newest.append(line)
        if step not in self._newest:
            self._newest[step] = line
            if len(self._newest) > NEWEST_STEPS:
                self._newest.popitem(last=False)

    def after(self, number: int) -> list[Line]:
        """Return the lines below this one that report the newest steps."""
        return [line for line in self._newest.values() if line.number > number]

    @property
    def seen(self) -> bool:
        """Whether any step was reported."""
        return bool(self._runs)

    def begins_after(self, number: int) -> bool:
        """Whether a process counts anew below this line, or goes on there by its stamps."""
        return any(
            (run.anew and run.began.number > number)
            or (
                len(run.newest) == STEPS_AFTER and run.newest[0].number > number and all(line.at for line in run.newest)
            )
            for run in self._runs.values()
        )

    def goes_on(self, stream: str, since: int) -> bool:
        """Whether a process that reported steps before a line reports several after it, in a row, and not when it ended."""
        run = self._runs.get(stream)
        if run is None or len(run.newest) < STEPS_AFTER or not run.began.number < since < run.newest[0].number:
            return False
        at_once = run.began.number <= self._printed_at_once or run.newest[-1].number - since > LONG_LINES
        return at_once or all(line.at is not None for line in run.newest)
