"""A text file is a stream of lines, and one file may hold several kinds of evidence: each line goes to who recognises it.

Lines with a kernel log's prefix go to the kernel reader, lines of a stack to the stack readers, every other line to the job log.
In one pass. Most lines of a log are of few templates, which differ in their numbers only: which readers a line may concern is
found out once for each template. A line of no concern is looked at only while a traceback, a stack or a summary goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from collectors.formats import Input
from collectors.formats.job_log import log_marks, step_lines
from collectors.formats.job_log.job_lines import peel
from collectors.formats.job_log.job_log import MAX_EVENTS, MAX_SEGMENTS, JobLog
from collectors.formats.job_log.late_steps import LateSteps, has_no_number
from collectors.formats.job_log.step_series import MAX_STEPS_OF_SERIES, StepSeries
from collectors.formats.kernel_log import kernel_lines, kernel_times
from collectors.formats.kernel_log.kernel_log import EVENTS_LIMIT, Parser
from collectors.formats.stacks import stack_lines
from collectors.formats.stacks.pyspy_text import LABEL
from collectors.formats.text_lines import LINE_BYTES
from collectors.records import Record, Unread

CHUNK_BYTES = 1 << 20
LABEL_BYTES = 32
MAX_TEMPLATES, MAX_TEMPLATE_BYTES = 20_000, 400
_JOB_SERVICES = ("slurm", "srun", "python", "torchrun", "mpirun", "kubelet", "raylet", "docker", "containerd")
"""Who writes of a job into a machine's log; any other service's trouble is none of the job's."""

JOB, KERNEL, STACK, STEP, LOSS, NO_NUMBER = 1, 2, 4, 8, 16, 32
ALL = JOB | KERNEL | STACK | STEP | LOSS | NO_NUMBER
_BLANKED = bytes.maketrans(b"123456789", b"0" * 9)
Concern = tuple[int, tuple[str, ...]]
"""Which readers a line may concern, and the words of trouble that it may hold."""


def _blanked(words: tuple[str, ...]) -> tuple[tuple[bytes, str], ...]:
    return tuple((word.encode().translate(_BLANKED), word) for word in words)


_TROUBLE = _blanked(log_marks.TROUBLE)
_WORDS = tuple(
    (mask, tuple(word for word, _ in _blanked(words)))
    for mask, words in (
        (KERNEL, (*kernel_lines.WORDS, "last message repeated", "-- Boot", '"MESSAGE":[', '"MESSAGE" : [')),
        (STACK, stack_lines.WORDS),
        (STEP, step_lines.WORDS),
        (JOB, log_marks.NO_NUMBER),
        (LOSS, ("loss", "Loss")),
    )
)


def concern(blanked: bytes) -> Concern:
    """Return which readers the lines of a template may concern. ``blanked``: a line with 0 for each digit."""
    words = tuple(word for bytes_of, word in _TROUBLE if bytes_of in blanked)
    mask = JOB if words else 0
    for bit, group in _WORDS:
        if any(word in blanked for word in group):
            mask |= bit
    if len(blanked) <= LABEL_BYTES and LABEL.match(blanked.decode(errors="replace")):
        mask |= STACK  # "Rank 3:", above the stack that it is of
    if mask & (JOB | STEP) and has_no_number(blanked.decode(errors="replace")):
        mask |= NO_NUMBER
    return mask, words


def read(input: Input, *, of_machine: bool = False) -> Iterator[Record]:
    """Yield what the lines of a text report. ``of_machine``: it is a machine's log, in which only some lines are of a job."""
    reader = _Reader(input, of_machine=of_machine)
    number = 1
    for lines in _chunks(input.stream):
        yield from reader.take_all(number, lines)
        number += len(lines)
        if reader.full:
            break
    yield from reader.end()


class _Reader:
    """One pass over one file."""

    def __init__(self, input: Input, *, of_machine: bool) -> None:
        self.input = input
        self.job = JobLog(input, StepSeries(MAX_STEPS_OF_SERIES))
        self.kernel = Parser(input)
        self.stacks = stack_lines.StackLines(input)
        self.late = LateSteps(self._take_step)
        self.of_machine = of_machine
        self._known: dict[bytes, Concern] = {}
        self.kernel_events = 0
        self.at_line = 0

    @property
    def full(self) -> bool:
        """Whether a limit of events was reached."""
        return self.job.full or self.kernel_events >= EVENTS_LIMIT

    def wants_next(self) -> bool:
        """Whether something is going on, so that the next line counts whatever its words are."""
        return bool(self.job.open) or self.stacks.busy or self.kernel.busy

    def take_all(self, number: int, lines: list[bytes]) -> Iterator[Record]:
        """Read the lines of a chunk, of which ``number`` is the first."""
        blanked = b"\n".join(lines).translate(_BLANKED).split(b"\n")
        known, open_ = self._known, self.wants_next()
        for at, template in enumerate(blanked):
            mask, words = known.get(template) or self._learn(template)
            if open_:
                mask, words = ALL, log_marks.TROUBLE
            elif not mask or (mask == LOSS and not self.job.lost):
                continue
            text = lines[at][:LINE_BYTES].decode(errors="replace").rstrip("\r")
            if not words and mask & STEP and not mask & (KERNEL | STACK) and not self.job.lost and "\r" not in text:
                self.late.add(number + at, text, is_number=not mask & NO_NUMBER)
                continue
            yield from self._take(number + at, text, mask, words)
            open_ = self.wants_next()
            if self.full:
                return

    def _learn(self, template: bytes) -> Concern:
        found = concern(template)
        if len(template) <= MAX_TEMPLATE_BYTES:
            if len(self._known) >= MAX_TEMPLATES:
                self._known.clear()
            self._known[template] = found
        return found

    def _take_step(self, number: int, text: str) -> None:
        self.job.take(number, text, ())

    def _take(self, number: int, text: str, mask: int, words: tuple[str, ...]) -> Iterator[Record]:
        self.at_line = number
        if mask & KERNEL and self.kernel.might_take(text):
            split = kernel_times.split(text)
            yielded = list(self.kernel.feed(number, text))
            self.kernel_events += len(yielded)
            yield from yielded
            if yielded or (split.form and split.tag == kernel_times.KERNEL):
                return
        if self.of_machine and not self._of_job(text):
            return
        if mask & STACK and self._is_of_stack(number, text):
            yield from self.stacks.finished()
            return
        if mask & STEP:
            self.late.flush_of(text)
        if mask & NO_NUMBER:
            self.late.flush()
        *before, last = text.split("\r")[-MAX_SEGMENTS:] if "\r" in text else (text,)
        for segment in before:
            self.job.take(number, segment, words)
        self.job.take(number, last, words, "".join(before))

    def end(self) -> Iterator[Record]:
        """Yield what is left: the file ended, or a limit was reached."""
        self.late.flush()
        yield from self.kernel.end()
        yield from self.stacks.end()
        yield from self.job.events()
        for steps in self.job.steps.records(self.input.source, self.job.rank_of):
            yield msgspec.structs.replace(steps, node=steps.node or self.input.node)
        if self.full:
            most = MAX_EVENTS if self.job.full else EVENTS_LIMIT
            reason = f"more than {most:,} events: what follows line {self.at_line} was not read; split the log"
            yield Unread(source=self.input.source, reason=reason, outcome="limit")

    def _of_job(self, text: str) -> bool:
        split = kernel_times.split(text)
        return not split.form or split.tag.startswith(_JOB_SERVICES)

    def _is_of_stack(self, number: int, text: str) -> bool:
        may_begin = any(word in text for word in stack_lines.WORDS) or (
            len(text) <= LABEL_BYTES and LABEL.match(text) is not None
        )
        if not may_begin and not self.stacks.busy:
            return False
        line = peel(number, text, numbered=self.job.numbered)
        if not may_begin and not self.stacks.is_open(line.stream):
            return False
        return self.stacks.feed(number, line.stream, line.text, line.rank)


def _chunks(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Yield whole lines, a chunk at a time; of a line longer than a chunk only the beginning is held."""
    held, skipping = b"", False
    while data := stream.read(CHUNK_BYTES):
        if skipping:
            cut = data.find(b"\n")
            if cut < 0:
                continue
            data, skipping = data[cut:], False
        *lines, held = (held + data).split(b"\n")
        if lines:
            yield lines
        if len(held) > LINE_BYTES:
            held, skipping = held[:LINE_BYTES], True
    if held:
        yield [held]
