"""Steps of a table: a header that names its columns (``step  loss  sec  tok/s``), and rows of numbers below it.

A column of times is of a step, or of all since the beginning: one that rises with each of its first rows is the latter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from collectors.formats.job_log.job_lines import Line
from collectors.formats.job_log.step_lines import MAX_STEP, Step, dated, step_from
from collectors.formats.job_log.work_rates import A_SECOND, SAMPLES, TOKENS

WORDS = ("step", "Step", "STEP", "iter", "Iter", "ITER")
UNDECIDED_ROWS = 5
MAX_HEADER_CHARACTERS, MAX_COLUMNS, MAX_STREAMS, MAX_KNOWN = 400, 32, 4096, 4096

_BEFORE = re.compile(  # a rank's prefix, a stamp, a level; a template has fewer digits
    r"\s{0,16}(?:\[[^\]]{1,60}\]:?\s{1,4})?(?:\d{1,4}-\d\d?-\d\d?[ T]\d\d?:\d\d?:\d\d?[.,\d]{0,10}Z?\s{1,4})?"
    r"(?:[-|]?\s?(?:INFO|DEBUG|NOTICE)\s?[-|:]?\s{1,8})?"
)
_NAME = re.compile(r"[A-Za-z][\w /().%-]{0,31}")
_ROLES = tuple(
    (role, re.compile(pattern))
    for role, pattern in (
        ("step", r"(?:global |train )?(?:steps?|iters?|iterations?|it)"),
        ("loss", r"(?:(?:train|training|lm|total|avg|mean) ?)?loss"),
        ("gradient_norm", r"g(?:rad(?:ient)?)? ?norm|norm"),
        ("tokens_per_second", rf"{TOKENS}{A_SECOND}|tps"),
        ("samples_per_second", rf"{SAMPLES}{A_SECOND}"),
        ("tflops", r"tflops?(?:/s)?"),
        ("rate", r"(?:it|iter|step)s?/s(?:ec)?"),
        ("seconds", r"(?:step|iter|iteration) ?(?:time|duration|seconds|s|ms)(?: ?\(?m?s\)?)?|m?s(?:ec)?/(?:it|iter|step)|dt"),
        ("time", r"(?:total |wall )?(?:time|elapsed|wall)(?: ?\(?m?s(?:ec)?\)?)?|s|secs?|seconds?|ms|msec"),
        ("other", r"ep(?:ochs?)?|lr|learning rate|(?:gpu )?mem(?:ory)?|mfu|acc(?:uracy)?|ppl|tokens|eta"),
    )
)  # fmt: skip
_MILLISECONDS = re.compile(r"(?:^|[ (/])ms(?:ec)?\b")
_OF_OTHERS = re.compile(r"\b(?:val|valid|validation|eval|test)\b")
_CELL = re.compile(
    r"[-+]?(?:\d[\d.,]*(?:[eE][-+]?\d+)?|nan|inf) ?(?:ms|s|%|x|[kKMGT]i?B?|tok/s|it/s)?|-|", re.IGNORECASE
)
_VALUE = re.compile(r"([-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d{1,4})?|nan|inf)) ?(ms)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Header:
    """The columns of a table. ``roles``: of each the value that it is, "" for another."""

    delimiter: str | None  # None: white space
    roles: tuple[str, ...]
    milliseconds: tuple[bool, ...]

    def cells(self, row: str) -> list[str]:
        """Return the cells of a row without what stands before it."""
        if self.delimiter is None:
            return row.split()
        return [cell.strip(" *") for cell in _drawn(row).strip().strip("|").split(self.delimiter)]

    def has_row(self, text: str) -> bool:
        """Whether a text is a row: a number in each column, or nothing, and a whole one where the step is."""
        cells = self.cells(text[_bare(text) :])
        return (
            len(cells) == len(self.roles)
            and cells[self.roles.index("step")].isdecimal()
            and all(_CELL.fullmatch(cell) for cell in cells)
        )


@lru_cache(maxsize=256)
def header_of(text: str) -> Header | None:
    """Return the columns that a line names, None for any other line: a step, and a loss, a time or a throughput."""
    if len(text) > MAX_HEADER_CHARACTERS:
        return None
    row = _drawn(text[_bare(text) :])
    delimiter = next((one for one in "|,\t" if one in row.strip()), None)
    names = Header(delimiter, (), ()).cells(row)
    if not 2 <= len(names) <= MAX_COLUMNS or not all(_NAME.fullmatch(name) for name in names):
        return None
    names = [re.sub(r"[ _-]+", " ", name).lower().strip() for name in names]
    roles = [next((role for role, pattern in _ROLES if pattern.fullmatch(name)), "") for name in names]
    named = {role for role in roles if role not in {"", "other"}}
    of_words = delimiter is None and sum(map(bool, roles)) * 2 <= len(roles)  # a sentence
    if roles.count("step") != 1 or len(named) < 2 or of_words:
        return None
    if "loss" not in named and any(_OF_OTHERS.search(name) for name in names):
        return None
    return Header(delimiter, tuple(roles), tuple(_MILLISECONDS.search(name) is not None for name in names))


def _drawn(row: str) -> str:
    """Return a row with plain bars between its cells, where rich has drawn them."""
    return row.replace("┃", "|").replace("│", "|")


def _bare(text: str) -> int:
    """Return where a row begins."""
    found = _BEFORE.match(text)
    return found.end() if found is not None else 0


@dataclass(slots=True)
class _Course:
    """The rows of one process so far."""

    step: int = -1
    time: float = math.nan
    rises: int = 0  # rows whose time is later; -1: one was not


@dataclass(slots=True)
class StepColumns:
    """The newest table of a log."""

    header: Header | None = None
    _courses: dict[str, _Course] = field(default_factory=dict)
    _known: dict[bytes, bool] = field(default_factory=dict)  # lines, or their templates

    def begin(self, text: str) -> None:
        """Begin a table where a line names its columns."""
        if (header := header_of(text)) is not None:
            self.header, self._courses, self._known = header, {}, {}

    def holds(self, line: bytes) -> bool:
        """Whether a line is a row of the table, or all lines are that differ from it in their digits."""
        if self.header is None or len(line) > MAX_HEADER_CHARACTERS:
            return False
        found = self._known.get(line)
        if found is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            found = self._known[line] = self.header.has_row(line.decode(errors="replace"))
        return found

    def step(self, line: Line) -> Step | None:
        """Return the step of a row; None where its process was further already."""
        header = self.header
        if header is None:
            return None
        values: dict[str, float] = {}
        cells = header.cells(line.text[_bare(line.text) :])
        for role, cell, in_milliseconds in zip(header.roles, cells, header.milliseconds, strict=False):
            found = _VALUE.match(cell.replace(",", "")) if role else None
            if found is not None:
                of_time = role in {"seconds", "time"} and (in_milliseconds or found[2])
                values.setdefault(role, float(found[1]) / (1000 if of_time else 1))
        number = values.pop("step", -1.0)
        course = self._courses.setdefault(line.stream, _Course())
        if not course.step < number < MAX_STEP or len(self._courses) > MAX_STREAMS:
            return None
        seconds = _seconds(course, int(number), values)
        course.step = int(number)
        return dated(step_from("columns", int(number), values | seconds), line)


def _seconds(course: _Course, step: int, values: dict[str, float]) -> dict[str, float]:
    """Return the seconds of a step by its row."""
    if (rate := values.pop("rate", 0.0)) > 0:
        values.setdefault("seconds", 1 / rate)
    time = values.pop("time", math.nan)
    if math.isnan(time) or "seconds" in values:
        return {}
    since, before = course.time, course.step
    course.time = time
    if since >= time:
        course.rises = -1
    elif since < time and course.rises >= 0:
        course.rises += 1
    if course.rises < 0:
        return {"seconds": time}
    return {"seconds": (time - since) / (step - before)} if course.rises >= UNDECIDED_ROWS else {}


def rows_of(text: str) -> Iterator[str]:
    """Yield the rows of the tables of a text."""
    columns = StepColumns()
    for line in text.splitlines():
        if columns.header is not None and columns.holds(line.encode()):
            yield line
        elif any(word in line for word in WORDS):
            columns.begin(line)
