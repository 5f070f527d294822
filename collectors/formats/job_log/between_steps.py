"""What lines between two steps say of the second: that it is skipped, or that an evaluation has ended before it.

    [deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 32768, reducing to 16384
    2026-11-28 10:26:00 INFO validation loss 2.41 at step 1500

A step without a duration of its own began when an evaluation's result was printed, and not with the line of the step before it;
but not where such lines stand between nearly all steps: then they show no pause.
"""

from __future__ import annotations

import math
import re
from collections import deque
from typing import NamedTuple

from collectors.formats.job_log.job_lines import Line
from collectors.formats.job_log.megatron_lines import APPLIED
from collectors.formats.job_log.step_lines import Step

MAX_STREAMS, MOST_OF_STREAM = 4096, 4096  # as many as steps wait unread
_SKIPPED = re.compile(r"\bOVERFLOW! .{0,40}Skipping step\. Attempted loss scale: ([\d.e+]{1,24})")
FEWEST_BETWEEN = 10  # steps from one evaluation to the next
_EVALUATED = re.compile(  # at the beginning of what is said, behind a stamp and a level
    r"^[\W\dTZ]{0,60}(?:(?:INFO|info)\b\W{0,4})?(?:(?:step|iter(?:ation)?|epoch) \d{1,18}\W{1,3})?"
    r"(?i:val|valid|validation|eval|evaluation|test)[ _/](?i:loss|acc|accuracy|ppl|perplexity)"
    r"(?:'?[:= ]{1,3}| at (?:step|iteration) )\d"
)


class _Said(NamedTuple):
    """A line of either kind: ``ended``: when an evaluation had ended; of others whether the loss scale is the lowest."""

    number: int
    ended: float | None = None
    lowest: bool = False


class BetweenSteps:
    """The lines of either kind, of each stream. Lines of steps may wait unread for longer than these."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[_Said]] = {}
        self._since: dict[str, int] = {}  # evaluation: steps

    def take(self, line: Line) -> None:
        """Take a line that reports no step."""
        found = _SKIPPED.search(line.text) if "OVERFLOW! " in line.text else None
        if found is not None:
            self._add(line, _Said(line.number, lowest=found[1].rstrip(".,") in {"1", "1.0"}))
        elif _EVALUATED.search(line.text) is not None and (at := line.at) is not None:
            self._add(line, _Said(line.number, at))

    def _add(self, line: Line, said: _Said) -> None:
        if line.stream in self._lines or len(self._lines) < MAX_STREAMS:
            self._lines.setdefault(line.stream, deque(maxlen=MOST_OF_STREAM)).append(said)

    def mark(self, step: Step, line: Line) -> None:
        """Mark a step below such a line, which stands below the step before."""
        of_stream = self._lines.get(line.stream)
        began, since = math.nan, self._since.get(line.stream, FEWEST_BETWEEN)
        while of_stream and of_stream[0].number < line.number:
            said = of_stream.popleft()
            if said.ended is None:
                step.skipped = 1
                step.nan |= APPLIED * said.lowest
            else:
                began = said.ended
        if of_stream is not None:
            self._since[line.stream] = since + 1 if math.isnan(began) else 1
        if since >= FEWEST_BETWEEN and math.isnan(step.seconds) and step.at >= began:
            step.seconds = step.at - began
