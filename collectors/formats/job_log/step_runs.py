"""How each process of a log goes on with its steps: whether it did so after a line that only its end could explain."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from collectors.formats.job_log.job_lines import Line

STEPS_AFTER, NEWEST_STEPS = 4, 16  # so many steps after a failure of the network or an exception, it had passed
LONG_SECONDS = 30.0
"""So long torchrun waits for the other processes when one has failed; without it none of them ends many steps."""
HELD_BACK_SECONDS = 1500.0
"""By so much may steps that a program wrote when it ended be older than its failure; time zones lie further apart."""
MAX_RUNS = 20_000  # as of streams
BUFFER_BYTES, LONG_LINES = 8192, 512
"""A program that prints into a file writes so much at a time, and the last of it when it ends."""


@dataclass(slots=True)
class _Run:
    """A stream's steps in a row, each with a higher number than the one before."""

    began: Line
    newest: deque[Line] = field(default_factory=lambda: deque(maxlen=STEPS_AFTER))
    step: int = -1

    @property
    def is_stamped(self) -> bool:
        """Whether its newest steps are several, all with their time."""
        return len(self.newest) == STEPS_AFTER and all(line.at for line in self.newest)


class StepRuns:
    """The newest steps of a log and of each of its streams."""

    def __init__(self, head: bytes) -> None:
        self._runs: dict[str, _Run] = {}
        self._began_anew = 0  # the newest line on which a stream counts anew, after higher steps
        self._stamped_since = 0  # the newest line from which a stream reports so many stamped steps
        self._printed_at_once = head.count(b"\n", 0, BUFFER_BYTES)  # a step in so many first lines was not held back
        self._newest: OrderedDict[int, Line] = OrderedDict()  # step → the line that reports it first

    def take(self, step: int, line: Line) -> None:
        """Take a step and the line that reports it; one without a number comes after those before it."""
        run = self._runs.get(line.stream)
        if step < 0:
            step = run.step + 1 if run is not None else 0
        if (run is None and len(self._runs) < MAX_RUNS) or (run is not None and 0 <= step < run.step):
            self._began_anew = self._began_anew if run is None else line.number
            run = self._runs[line.stream] = _Run(line)
        if run is not None and step > run.step:
            run.step = step
            run.newest.append(line)
            if run.is_stamped:
                self._stamped_since = max(self._stamped_since, run.newest[0].number)
        if step not in self._newest:
            self._newest[step] = line
            if len(self._newest) > NEWEST_STEPS:
                self._newest.popitem(last=False)

    def after(self, number: int) -> list[Line]:
        """Return the lines below this one that report the newest steps."""
        return [line for line in self._newest.values() if line.number > number]

    def are_older_than(self, line: Line) -> bool:
        """Whether steps stand above a line, and the stamps of both show that it was written after them."""
        written = [step.at for step in self._newest.values() if step.number < line.number]
        stamped = [at for at in written if at is not None]
        return line.at is not None and bool(stamped) and max(stamped) < line.at

    @property
    def seen(self) -> bool:
        """Whether any step was reported."""
        return bool(self._runs)

    def begins_after(self, number: int, own: str | None, ends: Sequence[tuple[int, float | None]] = ()) -> bool:
        """Whether a process counts anew below this line, or goes on there by its stamps: that of ``own``, or any for long.

        ``ends``: lines that report ends, with their times. Steps from shortly before one that stands above them were held back,
        and written when their process ended.
        """
        if self._began_anew > number:
            return True
        if self._stamped_since <= number:
            return False
        lasts = self.lasts(number)
        runs = (run for name, run in self._runs.items() if lasts or name == own)
        return any(
            run.is_stamped and run.newest[0].number > number and not _is_held_back(run.newest[0], number, ends)
            for run in runs
        )

    def lasts(self, number: int) -> bool:
        """Whether the job reports so many steps below a line, or over so long, as none does that has lost a process."""
        after = self.after(number)
        if len(after) < STEPS_AFTER:
            return False
        begins, ends = after[0].at, after[-1].at
        return len(after) >= NEWEST_STEPS or (begins is not None and ends is not None and ends - begins >= LONG_SECONDS)

    def go_on_shortly(self, number: int) -> bool:
        """Whether no process counts anew below a line, and only few steps follow."""
        return self._began_anew <= number and len(self.after(number)) < NEWEST_STEPS

    def outlive(self, since: int) -> bool:
        """Whether steps that were reported before a line go on for long after it, of whichever process: none was lost."""
        return self.lasts(since) and any(self.goes_on(stream, since) for stream in self._runs)

    def goes_on(self, stream: str, since: int, *, is_own: bool = True) -> bool:
        """Whether a process that reported steps before a line reports several after it, in a row, and not when it ended.

        Not ``is_own``: several processes may print the lines of the stream, and only many steps show that all went on.
        """
        run = self._runs.get(stream)
        if run is None or len(run.newest) < STEPS_AFTER or not run.began.number < since < run.newest[0].number:
            return False
        if not is_own and not self.lasts(since):
            return False
        at_once = run.began.number <= self._printed_at_once or run.newest[-1].number - since > LONG_LINES
        return at_once or all(line.at is not None for line in run.newest)


def _is_held_back(step: Line, number: int, ends: Sequence[tuple[int, float | None]]) -> bool:
    """Whether a step is older than an end above it, from this line on, or of the same second: launchers cut fractions off."""
    return any(
        at is not None and step.at is not None and at - HELD_BACK_SECONDS <= step.at < at + 1.0
        for line, at in ends
        if number <= line < step.number
    )
