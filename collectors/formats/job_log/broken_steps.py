"""A step's line that was broken into several, as a terminal or a paste does: its parts are read as the line that they were."""

from __future__ import annotations

from collectors.formats.job_log import step_lines
from collectors.formats.text_lines import shown

MAX_PARTS = 8


def is_broken(text: str, below: bytes) -> bool:
    """Whether a step's line goes on in the line below it."""
    return text.endswith("|") and step_lines.is_wrapped(text) and step_lines.goes_on(shown(below))


class BrokenStep:
    """The parts that came so far; none outside such a line."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, str]] = []

    def begin(self, number: int, text: str) -> None:
        """Take the first part, and its line's number."""
        self.parts = [(number, text)]

    def goes_on(self, number: int, text: str) -> bool:
        """Add a line to the step that was broken, if it is a part of it."""
        before = self.parts[-1][1].rstrip()
        if not before.endswith("|") or len(self.parts) >= MAX_PARTS or not step_lines.goes_on(text):
            return False
        self.parts.append((number, text))
        return True

    def end(self) -> tuple[int, str]:
        """Return the number of the first part, and the whole line."""
        (number, _), *_ = self.parts
        text = " ".join(part.strip() for _, part in self.parts)
        self.parts = []
        return number, text
