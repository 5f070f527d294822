"""Which readers a line of a text may concern, found out once for all lines that differ in their numbers only."""

from __future__ import annotations

import re
from typing import TypeVar

from collectors.formats.job_log import (
    attempts,
    components,
    log_marks,
    requests,
    statements,
    step_bars,
    step_blocks,
    step_columns,
    step_lines,
    stragglers,
)
from collectors.formats.job_log.late_steps import has_no_number
from collectors.formats.kernel_log import kernel_lines
from collectors.formats.kernel_log.mcelog import HEADINGS
from collectors.formats.nvidia_smi.nvidia_smi import HEADING
from collectors.formats.stacks import stack_lines
from collectors.formats.stacks.pyspy_text import LABEL
from collectors.formats.text_lines import LINE_BYTES

MAX_TEMPLATES, MAX_TEMPLATE_BYTES, LABEL_BYTES = 20_000, 400, 32

JOB, KERNEL, STACK, STEP, LOSS, NO_NUMBER, SMI, ATTEMPT, STRAGGLER, SERVER = 1, 2, 4, 8, 16, 32, 64, 128, 256, 512
COLUMNS = 1024  # it names the columns of a table of steps
ALL = JOB | KERNEL | STACK | STEP | LOSS | NO_NUMBER | ATTEMPT | STRAGGLER | SERVER
BLANKED = bytes.maketrans(b"123456789", b"0" * 9)
"""Turns a line into its template."""
_RUNS = re.compile(rb"\b[a-fA-F]{0,40}0[0a-fA-F]*|0{2,}")
"""Numbers of any length, and hexadecimal ones: what of a template differs between lines that say the same."""
Key = TypeVar("Key", str, bytes)
Concern = tuple[int, tuple[str, ...]]
"""Which readers a line may concern, and the words of trouble that it may hold."""


def _general(line: bytes) -> str:
    """Return a line with 0 for each number; a text, for a search in bytes takes twice as long."""
    return _RUNS.sub(b"0", line.translate(BLANKED)).decode("latin-1")


def _blanked(words: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((_general(word.encode()), word) for word in words)


TROUBLE = _blanked(log_marks.TROUBLE)
"""Words of trouble as they stand in a template, and as they are."""
_WORDS = tuple(
    (mask, tuple(word for word, _ in _blanked(words)))
    for mask, words in (
        (KERNEL, (*kernel_lines.WORDS, *HEADINGS, "last message repeated", "-- Boot", '"MESSAGE":[', '"MESSAGE" : [')),
        (STACK, stack_lines.WORDS),
        (STEP, (*step_lines.WORDS, *step_bars.WORDS, *step_blocks.WORDS)),
        (JOB, log_marks.NO_NUMBER),
        (LOSS, ("loss", "Loss")),
        (SMI, (HEADING,)),
        (ATTEMPT, attempts.WORDS),
        (STRAGGLER, stragglers.WORDS),
        (SERVER, requests.WORDS),
    )
)


_COMMON = ("rror", "rocess", "emory", "illed", "igna", "istribut", "nccl", "NCCL", "imed out", "ailed", "anks",
           "Thread ", "oss", "tep", "link ", "died", "_STAT", "SIG", "evice", "nan", " node")  # fmt: skip


def _stems() -> tuple[str, ...]:
    """Return few texts of which each word of the tables holds one: a line with none of them concerns no reader."""
    every = (
        *statements.MARKERS,
        *statements.PROGRAMS,
        *(word for word, _ in TROUBLE),
        *(word for _, group in _WORDS for word in group),
        *step_columns.WORDS,
    )
    return tuple(dict.fromkeys(next((stem for stem in _COMMON if stem in word), word) for word in every))


_STEMS = _stems()


def _holds_any(line: str) -> bool:
    for stem in _STEMS:  # a third of the cost of any() with a generator, a tenth of one expression's  # noqa: SIM110
        if stem in line:
            return True
    return False


class Concerns:
    """What was found so far of the templates of one file, bounded.

    Most lines of a log are of few templates: each is looked at once.
    """

    def __init__(self) -> None:
        self.of_template: dict[bytes, Concern] = {}  # a line with 0 for each digit
        self._of_general: dict[str, Concern] = {}  # with 0 for each number

    def learn(self, template: bytes) -> Concern:
        """Return which readers a line and all that differ from it in numbers may concern."""
        general = _general(template[:LINE_BYTES])
        found = self._of_general.get(general)
        if found is None:
            found = _concern(general)
            _remember(self._of_general, general, found)
        _remember(self.of_template, template, found)
        return found


def _concern(blanked: str) -> Concern:
    if not _holds_any(blanked):
        return (STACK, ()) if is_label(blanked) else (0, ())
    words = tuple(word for shown, word in TROUBLE if shown in blanked)
    if not words and (statements.may_state(blanked) or components.may_state(blanked)):
        words = (statements.marker_of(blanked),)
    mask = JOB if words else 0
    for bit, group in _WORDS:
        if any(word in blanked for word in group):
            mask |= bit
    if is_label(blanked):
        mask |= STACK
    if any(word in blanked for word in step_columns.WORDS):
        named = blanked.encode("latin-1").decode(errors="replace")  # rich draws bars between the names
        mask |= COLUMNS if step_columns.header_of(named) is not None else 0
    if mask & (JOB | STEP) and has_no_number(blanked):
        mask |= NO_NUMBER
    return mask, words


def is_label(line: str) -> bool:
    """Whether it is "Rank 3:", above the stack that it is of."""
    return len(line) <= LABEL_BYTES and LABEL.match(line) is not None


def _remember(known: dict[Key, Concern], template: Key, found: Concern) -> None:
    if len(template) <= MAX_TEMPLATE_BYTES:
        if len(known) >= MAX_TEMPLATES:
            known.clear()
        known[template] = found
