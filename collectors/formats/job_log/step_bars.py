"""Steps that a progress bar shows: tqdm's, Lightning's and rich's, on lines of their own or redrawn on one.

A bar's rate is smoothed or a mean, and what has elapsed is in whole seconds: the pace is what elapsed between two drawings
that lie SPAN_SECONDS or more apart. A bar without a description may be an evaluation's: it is a training's where it shows a
loss, and else only gives the dict that transformers' Trainer prints below it its number and pace.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from collectors.formats.job_log import bars
from collectors.formats.job_log.job_lines import ANSI, Line
from collectors.formats.job_log.step_lines import NO_NUMBER, Step, dated, step_from
from collectors.formats.job_log.step_series import BAR

SPAN_SECONDS = 30.0  # of which a second more or less is a thirtieth
MAX_DRAWN = 4096  # drawings of a bar in a span
MAX_BARS = 4096  # of a log
HEAD_CHARACTERS = 400  # before a bar's count

OF_LOSS, OF_WORDS = 1, 2  # how a bar claims to be the training's
WORDS = ("it/s", "s/it", "batch/s", "s/batch", "step/s", "s/step")
_UNIT = r"(?:it|batch|step)"
_BAR = re.compile(
    rf"(?<![\d.])(?P<done>\d{{1,15}})(?:/(?P<total>\d{{1,15}}|\?)|{_UNIT})"
    rf"(?: \[(?P<elapsed>\d\d:[\d:]{{2,12}}|\d{{1,6}}:\d\d:\d\d)(?:<[\d:? a-z]{{1,24}})?,"
    rf" {{1,6}}[\d.?]{{1,12}} ?(?:{_UNIT}/s|s/{_UNIT})(?P<more>[^\]\r\n]{{0,400}})"
    rf"| (?P<clock>\d{{1,6}}:\d\d:\d\d) • {{1,16}}(?:[\d:-]{{4,12}} {{1,9}})?[\d.]{{1,12}}{_UNIT}/s(?P<metrics>[^\r\n]{{0,400}}))"
)
_LOSS = re.compile(
    r"(?<![\w./-])(?:(?:train|training|step|tr|avg|avr|mean|total|running)[_/ ])?loss(?:_step)?\s?[=:]\s?"
    r"([-+]?(?:\d{1,20}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,4})?|nan|inf))(?![\w.])",
    re.IGNORECASE,
)
_EPOCH = re.compile(r"\bepoch\W{0,3}(\d{1,9})(?: ?/ ?(\d{1,9}))?", re.IGNORECASE)
_CELLS = re.compile(r"[━╸╺ ]{2,}$")  # rich's
_OWN_PACE = re.compile(r"'(?:step_)?(?:time|seconds)':")
_EPOCHS = re.compile(r"epochs?\W*", re.IGNORECASE)


def may_hold(text: str) -> bool:
    """Whether a text can hold a bar, quickly."""
    return any(word in text for word in WORDS)


@dataclass(slots=True)
class _Bar:
    """A bar of a process. ``before``: the steps of the epochs before it; ``drawn``: (count, seconds elapsed) of a span."""

    claim: int  # to be the training's: OF_WORDS, OF_LOSS, or none
    epoch: int | None = None
    first: int | None = None  # the number with which epochs begin
    done: int = -1
    before: int = 0
    seconds: float = math.nan
    drawn: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=MAX_DRAWN))

    def draw(self, done: int, total: int | None, elapsed: float, epoch: int | None) -> None:
        """Take a drawing."""
        if done < self.done or epoch != self.epoch:
            self._begin(total, epoch)
        if done == self.done:
            return
        if self.done < 0 and done == total:
            self.drawn.append((0, 0.0))  # it is drawn at its end alone
        self.done, self.seconds = done, self._pace(done, elapsed)

    def _begin(self, total: int | None, epoch: int | None) -> None:
        """Begin an epoch; a bar that falls before its end, without a number of its epoch, is of a restart."""
        if epoch is not None and total is not None:
            self.first = min(epoch, 1) if self.first is None else self.first
            self.before = max(epoch - self.first, 0) * total
        elif self.done >= (total or 0):
            self.before += self.done
        self.epoch, self.done = epoch, -1
        self.drawn.clear()

    def _pace(self, done: int, elapsed: float) -> float:
        """Return the seconds a step over the shortest span that is long enough; behind a pause a span begins anew."""
        drawn = self.drawn
        if drawn and elapsed - drawn[-1][1] >= SPAN_SECONDS:
            begun, since = drawn[-1]
            drawn.clear()
        else:
            while len(drawn) > 1 and elapsed - drawn[1][1] >= SPAN_SECONDS:
                drawn.popleft()
            begun, since = drawn[0] if drawn else (done, elapsed)
        drawn.append((done, elapsed))
        return (elapsed - since) / (done - begun) if elapsed - since >= SPAN_SECONDS else math.nan


class StepBars:
    """The bars of a log."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], _Bar] = {}  # by stream, description and total; the newest by stream
        self._training: dict[str, tuple[int, str, str]] = {}  # of each stream: claim, description and total

    @property
    def seen(self) -> bool:
        """Whether any bar was drawn."""
        return bool(self._known)

    def steps(self, line: Line, text: str) -> Iterator[Step]:
        """Yield the steps that the bars of a text show, a part of this line that its process has written."""
        text, end = ANSI.sub("", text) if "\x1b" in text else text, 0
        for found in _BAR.finditer(text):
            begin = max(end, text.rfind("\r", end, found.start()) + 1, found.start() - HEAD_CHARACTERS)
            of, end = _description(text[begin : found.start()]), found.end()
            if _counts_epochs(of, found):
                continue
            values = found["more"] or found["metrics"] or ""
            loss = _LOSS.search(values) or _LOSS.search(of)
            key = (line.stream, re.sub(r"\d[\d.]*", "0", of), found["total"] or "")
            bar = self._drawn(key, found, _EPOCH.search(of), has_loss=loss is not None)
            if bar.done > 0 and self._is_training(key, bar.claim):
                given = {"seconds": bar.seconds} | ({"loss": float(loss[1])} if loss else {})
                yield dated(step_from(BAR, bar.before + bar.done, given), line)

    def complete(self, step: Step, line: Line) -> None:
        """Give a step of which its line reports neither number nor duration those of the newest bar above it."""
        bar = self._known.get((line.stream,))
        if bar is None or bar.done < 0 or step.step not in {NO_NUMBER, bar.done}:
            return
        step.step = bar.done
        if not _OWN_PACE.search(line.text):
            step.seconds = bar.seconds

    def _drawn(
        self, key: tuple[str, str, str], found: re.Match[str], epoch: re.Match[str] | None, *, has_loss: bool
    ) -> _Bar:
        stream, of, total = key
        bar = self._known.get(key)
        if bar is None:
            bar = self._known[key] = _Bar(OF_WORDS if bars.is_of_training(of) and not bars.is_of_others(of) else 0)
        if has_loss and not bar.claim and not bars.is_of_others(of):
            bar.claim = OF_LOSS
        newest = self._known.get((stream,))
        if newest is not None and newest is not bar:
            newest.drawn.clear()  # its clock ran on while the other's steps were taken
        self._known[(stream,)] = bar
        while len(self._known) > MAX_BARS:
            del self._known[next(iter(self._known))]
        elapsed = _seconds(found["elapsed"] or found["clock"])
        bar.draw(
            int(found["done"]), int(total) if total.isdecimal() else None, elapsed, int(epoch[1]) if epoch else None
        )
        return bar

    def _is_training(self, key: tuple[str, str, str], claim: int) -> bool:
        """Whether a bar is the training's: the first of its process that claims it, by words before by a loss.

        A loop of another length under the same description is a validation's.
        """
        stream, of, total = key
        first = self._training.get(stream)
        if claim and (first is None or claim > first[0]) and len(self._training) < MAX_BARS:
            first = self._training[stream] = (claim, of, total)
        if not claim or first is None or first[1] != of:
            return False
        lengths = [int(one) if one.isdecimal() else 0 for one in (total, first[2])]
        return max(lengths) - min(lengths) <= max(lengths) / 10


def _counts_epochs(of: str, found: re.Match[str]) -> bool:
    """Whether what a bar counts is epochs."""
    epoch = _EPOCH.search(of)
    if epoch is None or epoch[2] is None:
        return _EPOCHS.fullmatch(of) is not None
    return epoch[2] == found["total"] and int(epoch[1]) - int(found["done"]) in {0, 1}


def _description(head: str) -> str:
    """Return what stands before a bar's cells and its share."""
    head = head.rstrip()
    if head.endswith("|"):
        head = head[: max(head.rfind("|", 0, len(head) - 1), 0)].rstrip()
    if (cells := _CELLS.search(head)) is not None:
        head = head[: cells.start()].rstrip()
    if head.endswith("%"):
        head = head[:-1].rstrip("0123456789")
    return head.strip(" :")


def _seconds(clock: str) -> float:
    total = 0
    for part in clock.split(":"):
        total = 60 * total + int(part or 0)
    return float(total)
