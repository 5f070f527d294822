"""The title of a thread that states the error itself: of a text in which nothing else shows one, it is the evidence.

A title that asks, proposes, or is that of a change to a program states nothing; nor does one above an answer that it is solved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from collectors.formats import Input
from collectors.formats.job_log import log_marks
from collectors.formats.job_log.job_log import JobLog
from collectors.formats.job_log.step_series import StepSeries
from collectors.formats.kernel_log import kernel_lines
from collectors.formats.kernel_log.kernel_log import Parser
from collectors.records import KernelEvent, LogEvent

MAX_CHARACTERS, MAX_LINES = 600, 4
_TITLE = re.compile(r"#{1,2} (?P<said>\S.{8,600})$")
_TAGS = re.compile(r"(?:\[(?P<tag>[\w /:.-]{1,24})\]:? {0,2}|(?P<kind>[A-Za-z]{3,12} ?(?:report)?): (?=\S))")
_MAX_TAGS = 3
_WISH = re.compile(
    r"(?i)\b(?:feat\w*|question|docs?|documentation|rfcs?|rfe|request|enhancement|proposal|idea|usage|fix\w*|test\w*|chore|ci)\b"
)
_KINDS = frozenset({"bug", "issue", "error", "help", "problem", "bug report", "runtime", "crash", "subject", "title"})
ASKS = re.compile(
    r"(?i)\b(?:where|how|can|could|is there|is it possible|which)\b[^.?\n]{0,120}\b(?:set|configur\w+|skip\w*|disabl\w+|enabl\w+|"
    r"choos\w+|chang\w+|turn(?:ed)? off|options?|flags?|silenc\w+|ignor\w+|report(?:ed)?|shown?)\b[^.?\n]{0,120}\?"
)
_CHANGE = re.compile(r"(?i)\b(?:pull|merge) request\b")
TALKS = re.compile(
    r"(?i)\?|\b(?:how|why|what|when (?:you|a|an)|should|could|would|can|if|instead|rather|handle[sd]?|catch(?:es)?|support\w*|"
    r"detect(?:s|ion|ing)?|document\w*|improve\w*|add(?:s|ed)?|allow\w*|avoid\w*|show(?:s|n)?|print(?:s|ed)?|confus\w+|mislead\w+|message|wrong(?:ly)?|false)\b"
)
_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w{0,60}\.){0,8}(?:[A-Z]\w{0,60}(?:Error|Exception)|\bException): \S")
_SOLVED = re.compile(
    r"(?i)\b(?:solved|resolved|fixed|no longer (?:happens|occurs)|was replaced|closing (?:this|as)|false alarm|"
    r"works (?:now|again))\b(?![^.?\n]{0,60}\?)"
)


@dataclass(frozen=True, slots=True)
class Title:
    """What a title states, and its line."""

    number: int
    said: str


def events(input: Input) -> Iterator[KernelEvent | LogEvent]:
    """Yield what the title of a text states."""
    title = stated(input.head.decode(errors="replace"))
    if title is None:
        return
    kernel = Parser(input)
    found = [*kernel.feed(title.number, title.said), *kernel.end()]
    yield from found
    if not found:
        job = JobLog(input, StepSeries(1))
        job.take(title.number, title.said)
        yield from job.events()


def stated(head: str) -> Title | None:
    """Return the error that a title begins with, or that a few plain words lead to."""
    above: list[str] = []
    for number, line in enumerate(head[: 4 * MAX_CHARACTERS].splitlines()[:MAX_LINES], 1):
        if found := _TITLE.match(line):
            said = without_tags(found["said"].strip())
            if said is None or any(each.search(head) for each in (_SOLVED, ASKS)) or _CHANGE.search(" ".join(above)):
                return None
            return _error_in(number, said)
        above.append(line)
    return None


def without_tags(said: str) -> str | None:
    """Take off "[Bug]: " and the like; None where they say that it is a wish, a question or a change."""
    for _ in range(_MAX_TAGS):
        found = _TAGS.match(said)
        if found is None or (found["kind"] and found["kind"].strip().lower() not in _KINDS):
            break
        if _WISH.search(found[0]):
            return None
        said = said[found.end() :]
    return None if (first := _TAGS.match(said)) and _WISH.search(first[0]) else said


def _error_in(number: int, said: str) -> Title | None:
    named = _EXCEPTION.search(said)
    places = [said.find(word) for word in (*log_marks.TROUBLE, *kernel_lines.WORDS) if word in said]
    begins = named.start() if named else min(places, default=None)
    if begins is None or said.endswith("?") or TALKS.search(said[:begins]):
        return None
    return Title(number, said[begins:] if named else said)
