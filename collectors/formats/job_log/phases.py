"""What a process of a post-training job does now, by its own log: slime's timers, and what NeMo-RL's controller begins.

``Timer update_weights start`` and ``Timer update_weights end (elapsed: 1.2s)`` nest; ``▶ Training policy...`` ends what was begun
before it. Only lines that no launcher has prefixed count: a driver's log repeats those of its actors, wherever they run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from collectors.formats.job_log.job_lines import Line

WORDS = ("Timer ", "▶ ")
MAX_NESTED = 16
_TIMER = re.compile(
    r"(?:^|[\s\]-])Timer (?P<name>[A-Za-z_]\w{0,63}) (?:(?P<start>start)|end \(elapsed: [\d.]{1,12}m?s\))$"
)
_BEGUN = re.compile(
    r"▶ (?P<what>Preparing batch|Generating responses|Processing rewards|Computing \w+|Preparing for \w+|Training policy"
    r"|Refitting|Starting validation)"
)


@dataclass(slots=True)
class Phases:
    """The phases that a process is inside of, the innermost last. ``known``: it has reported any."""

    open: list[tuple[str, float | None]] = field(default_factory=list)
    known: bool = False

    def take(self, line: Line) -> None:
        """Take a line that holds one of ``WORDS``."""
        if line.stream:
            return
        if (timer := _TIMER.search(line.text)) is not None:
            names = [name for name, _ in self.open]
            if timer["start"]:
                self.open = [*self.open, (timer["name"], line.at)][-MAX_NESTED:]
            elif timer["name"] in names:
                del self.open[len(names) - 1 - names[::-1].index(timer["name"]) :]
            self.known = True
        elif (begun := _BEGUN.match(line.text.lstrip())) is not None:
            self.open, self.known = [(begun["what"].lower(), line.at)], True

    def newest(self) -> tuple[str, float | None] | None:
        """Return the innermost phase and when it began; "" between two of them, None where no line reports any."""
        return None if not self.known else self.open[-1] if self.open else ("", None)
