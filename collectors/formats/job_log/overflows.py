"""Steps that DeepSpeed skips: it says so of a step on a line of its own, above what the program prints of that step.

[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 32768, reducing to 16384
"""

from __future__ import annotations

import re
from collections import deque

from collectors.formats.job_log.job_lines import Line
from collectors.formats.job_log.megatron_lines import APPLIED
from collectors.formats.job_log.step_lines import Step

MAX_STREAMS, MOST_OF_STREAM = 64, 4096  # rank 0 alone says so; as many as steps wait unread
_SKIPPED = re.compile(r"\bOVERFLOW! .{0,40}Skipping step\. Attempted loss scale: ([\d.e+]{1,24})")


class Overflows:
    """The lines that say so, of each stream. Lines of steps may wait unread for longer than these."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[tuple[int, bool]]] = {}  # their numbers, and whether the loss scale is the lowest

    def take(self, line: Line) -> None:
        """Take a line that reports no step."""
        if "OVERFLOW! " not in line.text or (found := _SKIPPED.search(line.text)) is None:
            return
        if line.stream in self._lines or len(self._lines) < MAX_STREAMS:
            of_stream = self._lines.setdefault(line.stream, deque(maxlen=MOST_OF_STREAM))
            of_stream.append((line.number, found[1].rstrip(".,") in {"1", "1.0"}))

    def mark(self, step: Step, line: Line) -> None:
        """Mark a step that was skipped: such a line stands above it, below the step before."""
        of_stream = self._lines.get(line.stream)
        while of_stream and of_stream[0][0] < line.number:
            step.skipped = 1
            step.nan |= APPLIED * of_stream.popleft()[1]
