"""A text file is a stream of lines, and one file may hold several kinds of evidence: each line goes to who recognises it.

Lines with a kernel log's prefix go to the kernel reader, lines of a stack to the stack readers, every other line to the job log.
In one pass: a chunk of bytes is searched for the words that begin any evidence, and only their lines are looked at, and those
that follow while a traceback, a stack or a launcher's summary is still going on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import BinaryIO

import msgspec

from collectors.formats import Input
from collectors.formats.job_log import log_marks, step_lines
from collectors.formats.job_log.job_lines import peel
from collectors.formats.job_log.job_log import MAX_EVENTS, JobLog
from collectors.formats.job_log.step_series import MAX_STEPS_OF_SERIES, StepSeries
from collectors.formats.kernel_log import kernel_lines, kernel_times
from collectors.formats.kernel_log.kernel_log import EVENTS_LIMIT, Parser
from collectors.formats.stacks import stack_lines
from collectors.formats.text_lines import LINE_BYTES
from collectors.records import Record, Unread

CHUNK_BYTES = 1 << 20
MAX_SEGMENTS = 8  # of one line: a progress bar rewrites its line with carriage returns
_JOB_SERVICES = ("slurm", "srun", "python", "torchrun", "mpirun", "kubelet", "raylet", "docker", "containerd")
"""Who writes of a job into a machine's log; any other service's trouble is none of the job's."""


def stems(words: tuple[str, ...]) -> dict[bytes, tuple[str, ...]]:
    """Group words by a stem that each contains, so that a chunk is searched for few: a search costs a second a gigabyte."""
    grouped: dict[bytes, tuple[str, ...]] = {}
    for word in words:
        stem = next((stem for stem in _COMMON if stem in word), word)
        grouped[stem.encode()] = (*grouped.get(stem.encode(), ()), word)
    return grouped


_COMMON = (
    "rror", "ailed", "anks", "igna", "illed", "eath", "dead", "died", "rocess", "xception", "imeout", "imed out", "emory", "NCCL",
    "nccl", "istributed", " link", "rank_", "Xid", "EI000", "EZ9999", "stall", "LOCK", "xit", "fallen",
)  # fmt: skip
_FOR_JOB = stems(log_marks.TROUBLE)
_FOR_OTHERS = tuple(word.encode() for word in (*kernel_lines.WORDS, *stack_lines.WORDS))
_FOR_STEPS = tuple(word.encode() for word in (*step_lines.WORDS, *log_marks.NO_NUMBER, "Loss", "loss"))


def read(input: Input, *, of_machine: bool = False) -> Iterator[Record]:
    """Yield what the lines of a text report. ``of_machine``: it is a machine's log, in which only some lines are of a job."""
    reader = _Reader(input, of_machine=of_machine)
    for number, text, words in lines_of_interest(input.stream, reader.wants_next):
        yield from reader.take(number, text, words)
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
        self.of_machine = of_machine
        self.kernel_events = 0
        self.at_line = 0

    @property
    def full(self) -> bool:
        """Whether a limit of events was reached."""
        return self.job.full or self.kernel_events >= EVENTS_LIMIT

    def wants_next(self) -> bool:
        """Whether something is going on, so that the next line counts whatever its words are."""
        return bool(self.job.open) or self.stacks.busy or self.kernel.busy

    def take(self, number: int, text: str, words: tuple[str, ...]) -> Iterator[Record]:
        """Read one line."""
        self.at_line = number
        if self.kernel.might_take(text):
            split = kernel_times.split(text)
            yielded = list(self.kernel.feed(number, text))
            self.kernel_events += len(yielded)
            yield from yielded
            if yielded or (split.form and split.tag == kernel_times.KERNEL):
                return
        if self.of_machine and not self._of_job(text):
            return
        if self._is_of_stack(number, text):
            yield from self.stacks.finished()
            return
        *before, last = text.split("\r")[-MAX_SEGMENTS:] if "\r" in text else (text,)
        for segment in before:
            self.job.take(number, segment, words)
        self.job.take(number, last, words, "".join(before))

    def end(self) -> Iterator[Record]:
        """Yield what is left: the file ended, or a limit was reached."""
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
        may_begin = any(word in text for word in stack_lines.WORDS)
        if not may_begin and not self.stacks.busy:
            return False
        line = peel(number, text, numbered=self.job.numbered)
        if not may_begin and not self.stacks.is_open(line.stream):
            return False
        return self.stacks.feed(number, line.stream, line.text, line.rank)


def lines_of_interest(stream: BinaryIO, wants_next: Callable[[], bool]) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Yield (number, text, the words of trouble that its chunk may hold) of each line that may be evidence.

    ``wants_next``: asked after a line, whether the next one is wanted whatever it holds. No more than a chunk is held, and of
    a longer line only its beginning.
    """
    number, held, skipping = 1, b"", False
    while data := stream.read(CHUNK_BYTES):
        if skipping:
            cut = data.find(b"\n")
            if cut < 0:
                continue
            data, skipping = held + data[cut:], False
        else:
            data = held + data
        end = data.rfind(b"\n") + 1
        held, data = data[end:], data[:end]
        yield from _within(data, number, wants_next)
        number += data.count(b"\n")
        if len(held) > LINE_BYTES:
            held, skipping = held[:LINE_BYTES], True
    if held:
        yield from _within(held + b"\n", number, wants_next)


def _within(data: bytes, number: int, wants_next: Callable[[], bool]) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    starts: set[int] = set()
    words: tuple[str, ...] = ()
    for stem, grouped in _FOR_JOB.items():
        if _add_lines(data, stem, starts):
            words += grouped
    for word in (*_FOR_OTHERS, *_FOR_STEPS):
        _add_lines(data, word, starts)
    ordered = sorted(starts)
    ordered.append(len(data))
    position, at = 0, 0
    while wants_next() or ordered[at] < len(data):
        start = position if wants_next() else ordered[at]
        if start >= len(data):
            return
        number += data.count(b"\n", position, start)
        stop = data.find(b"\n", start)
        yield number, data[start : min(stop, start + LINE_BYTES)].decode(errors="replace").rstrip("\r"), words
        position, number = stop + 1, number + 1
        while ordered[at] < position and ordered[at] < len(data):
            at += 1


def _add_lines(data: bytes, word: bytes, starts: set[int]) -> bool:
    """Add where each line begins that holds the word; return whether any does."""
    at = data.find(word)
    some = at >= 0
    while at >= 0:
        starts.add(data.rfind(b"\n", 0, at) + 1)
        stop = data.find(b"\n", at)
        if stop < 0:
            break
        at = data.find(word, stop)
    return some
