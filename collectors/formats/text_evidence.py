"""A text file is a stream of lines, and one file may hold several kinds of evidence: each line goes to who recognises it.

Lines with a kernel log's prefix go to the kernel reader, lines of a stack to the stack readers, every other line to the job log.
In one pass. Most lines of a log are of few templates, which differ in their numbers only: which readers a line may concern is
found out once for each template. A line of no concern is looked at only while a traceback, a stack or a summary goes on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from itertools import chain, pairwise
from typing import BinaryIO, TypeVar

import msgspec

from collectors.formats import Input, titles
from collectors.formats.advice import changed_lines, is_advice, is_of_tests
from collectors.formats.job_log import attempts, log_marks, step_lines
from collectors.formats.job_log.job_lines import peel
from collectors.formats.job_log.job_log import MAX_EVENTS, MAX_SEGMENTS, JobLog
from collectors.formats.job_log.late_steps import LateSteps, has_no_number
from collectors.formats.job_log.step_series import MAX_STEPS_OF_SERIES, StepSeries
from collectors.formats.kernel_log import kernel_lines, kernel_times
from collectors.formats.kernel_log.kernel_log import ANYONES, EVENTS_LIMIT, OF_JOBS, Parser
from collectors.formats.kernel_log.mcelog import HEADINGS
from collectors.formats.markup import Margin, is_literal, unmarked
from collectors.formats.nvidia_smi.nvidia_smi import HEADING, SmiLines
from collectors.formats.reports import reported
from collectors.formats.stacks import stack_lines
from collectors.formats.stacks.pyspy_text import LABEL
from collectors.formats.text_lines import LINE_BYTES
from collectors.records import KernelEvent, LogEvent, Record, StackDump, Steps, Unread

CHUNK_BYTES, LABEL_BYTES = 1 << 20, 32
MAX_ATTEMPTS = 64  # of one log; a job that is started again and again is judged by its newest
MAX_WRAPPED = 8  # lines of one step that was broken into several
MAX_TEMPLATES, MAX_TEMPLATE_BYTES = 20_000, 400
SHOWS = (KernelEvent, LogEvent, StackDump, Steps)
"""The title of a text that has one of these is not read."""
_JOB_SERVICES = ("slurm", "srun", "python", "torchrun", "mpirun", "kubelet", "raylet", "docker", "containerd")
"""Who writes of a job into a machine's log; any other service's trouble is none of the job's."""

_BARE_EVENTS = frozenset({"cuda_error", "oom", "oom_kill", "fatal_python", "traceback"})
_OF_CHANGES = _BARE_EVENTS | {"evicted", "pod_waits"}
"""In a text that describes a change to a program, what a scheduler's tools print is an example, too."""
_PROMPT = re.compile(rb"^[ \t]{0,16}>>> ", re.MULTILINE)

JOB, KERNEL, STACK, STEP, LOSS, NO_NUMBER, SMI, ATTEMPT = 1, 2, 4, 8, 16, 32, 64, 128
ALL = JOB | KERNEL | STACK | STEP | LOSS | NO_NUMBER | ATTEMPT
_BLANKED = bytes.maketrans(b"123456789", b"0" * 9)
_RUNS = re.compile(rb"\b[a-fA-F]{0,40}0[0a-fA-F]*|0{2,}")
"""Numbers of any length, and hexadecimal ones: what of a template differs between lines that say the same."""
Key = TypeVar("Key", str, bytes)
Concern = tuple[int, tuple[str, ...]]
"""Which readers a line may concern, and the words of trouble that it may hold."""


def _general(line: bytes) -> str:
    """Return a line with 0 for each number; a text, for a search in bytes takes twice as long."""
    return _RUNS.sub(b"0", line.translate(_BLANKED)).decode("latin-1")


def _blanked(words: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((_general(word.encode()), word) for word in words)


_TROUBLE = _blanked(log_marks.TROUBLE)
_WORDS = tuple(
    (mask, tuple(word for word, _ in _blanked(words)))
    for mask, words in (
        (KERNEL, (*kernel_lines.WORDS, *HEADINGS, "last message repeated", "-- Boot", '"MESSAGE":[', '"MESSAGE" : [')),
        (STACK, stack_lines.WORDS),
        (STEP, step_lines.WORDS),
        (JOB, log_marks.NO_NUMBER),
        (LOSS, ("loss", "Loss")),
        (SMI, (HEADING,)),
        (ATTEMPT, attempts.WORDS),
    )
)


_COMMON = ("rror", "rocess", "emory", "illed", "igna", "istribut", "nccl", "NCCL", "imed out", "ailed", "anks",
           "Thread ", "oss", "tep", "link ", "died", "_STAT", "SIG", "evice", "nan", " node")  # fmt: skip


def _stems() -> tuple[str, ...]:
    """Return few texts of which each word of the tables holds one: a line with none of them concerns no reader."""
    every = (*(word for word, _ in _TROUBLE), *(word for _, group in _WORDS for word in group))
    return tuple(dict.fromkeys(next((stem for stem in _COMMON if stem in word), word) for word in every))


_STEMS = _stems()


def _holds_any(line: str) -> bool:
    for stem in _STEMS:  # a third of the cost of any() with a generator, a tenth of one expression's  # noqa: SIM110
        if stem in line:
            return True
    return False


def concern_of(line: bytes, known: dict[str, Concern]) -> Concern:
    """Return which readers a line and all that differ from it in numbers may concern. ``known``: what was found so far."""
    general = _general(line)
    found = known.get(general)
    if found is None:
        found = _concern(general)
        _remember(known, general, found)
    return found


def _concern(blanked: str) -> Concern:
    if not _holds_any(blanked):
        return (STACK, ()) if _is_label(blanked) else (0, ())
    words = tuple(word for shown, word in _TROUBLE if shown in blanked)
    mask = JOB if words else 0
    for bit, group in _WORDS:
        if any(word in blanked for word in group):
            mask |= bit
    if _is_label(blanked):
        mask |= STACK
    if mask & (JOB | STEP) and has_no_number(blanked):
        mask |= NO_NUMBER
    return mask, words


def _is_label(line: str) -> bool:
    """Whether it is "Rank 3:", above the stack that it is of."""
    return len(line) <= LABEL_BYTES and LABEL.match(line) is not None


def read(input: Input, *, of_machine: bool = False) -> Iterator[Record]:
    """Yield what the lines of a text report. ``of_machine``: it is a machine's log, in which only some lines are of a job."""
    reader = _Reader(input, of_machine=of_machine)
    shows = False
    for record in reader.records():
        shows = shows or isinstance(record, SHOWS)
        yield record
    if not shows and not reader.is_example:
        yield from titles.events(input)


class _Reader:
    """One pass over one file."""

    def __init__(self, input: Input, *, of_machine: bool) -> None:
        self.input = input
        self.job = JobLog(input, StepSeries(MAX_STEPS_OF_SERIES))
        self.earlier: list[JobLog] = []  # attempts of the job that this log holds, before the newest
        self.kernel = Parser(input)
        self.stacks = stack_lines.StackLines(input)
        self.smi = SmiLines(input)
        self.late = LateSteps(self._take_step)
        self.of_machine = of_machine
        self._known: dict[bytes, Concern] = {}  # by a line with 0 for each digit
        self._general: dict[str, Concern] = {}  # with 0 for each number
        self.kernel_events = 0
        self.bare: list[tuple[int, KernelEvent]] = []  # of lines without a stamp: a job's texts may hold them
        self.at_line = 0
        self.wrapped: list[tuple[int, str]] = []  # of a step's line that was broken, what came so far
        self.changed = changed_lines(input.head.decode(errors="replace"))
        margin = Margin.of(input.head.decode(errors="replace"))
        self.margin = margin if margin.is_there else None

    @property
    def full(self) -> bool:
        """Whether a limit of events was reached."""
        return self.job.full or self.kernel_events >= EVENTS_LIMIT

    @property
    def is_example(self) -> bool:
        """Whether the text advises, or shows what a program is tested with."""
        return self._advises or self._of_tests

    def records(self) -> Iterator[Record]:
        """Read the file."""
        number = 1
        for lines, after in pairwise(chain(_chunks(self.input.stream), [[b""]])):
            yield from self.take_all(number, lines, after[0])
            number += len(lines)
            if self.full:
                break
        self.job.last_number = number
        yield from self.end()

    def wants_next(self) -> bool:
        """Whether something is going on, so that the next line counts whatever its words are."""
        return bool(self.job.open) or self.stacks.busy or self.kernel.busy or self.smi.busy or bool(self.wrapped)

    def take_all(self, number: int, lines: list[bytes], after: bytes) -> Iterator[Record]:
        """Read the lines of a chunk, of which ``number`` is the first. ``after``: the line that follows them."""
        blanked = b"\n".join(lines).translate(_BLANKED).split(b"\n")
        known, open_ = self._known, self.wants_next()
        for at, template in enumerate(blanked):
            mask, words = known.get(template) or self._learn(template)
            if open_:
                mask, words = ALL, log_marks.TROUBLE
            elif not mask or (mask == LOSS and not self.job.lost):
                continue
            text = _text(lines[at]) if self.margin is None else self.margin.off(_text(lines[at]))
            below = lines[at + 1] if at + 1 < len(lines) else after
            if (
                not words
                and mask & STEP
                and not mask & (KERNEL | STACK | ATTEMPT)
                and not self.job.lost
                and "\r" not in text
                and not _is_broken(text, below)
            ):
                self.late.add(number + at, text, is_number=not mask & NO_NUMBER)
                continue
            yield from self._take(number + at, text, mask, words, below)
            open_ = self.wants_next()
            if self.full:
                return

    def _learn(self, template: bytes) -> Concern:
        found = concern_of(template[:LINE_BYTES], self._general)
        _remember(self._known, template, found)
        return found

    def _take_step(self, number: int, text: str) -> None:
        self.job.take(number, text, ())

    def _take(self, number: int, text: str, mask: int, words: tuple[str, ...], below: bytes) -> Iterator[Record]:
        self.at_line = number
        if self.wrapped and not self._goes_on(number, text):
            self._unwrap()
        elif self.wrapped or number in self.changed or kernel_lines.is_example(text):
            return
        literal = bool(mask & KERNEL) and is_literal(text)
        text = text if literal else reported(unmarked(text))
        if self.smi.busy or mask & SMI:
            if self.smi.feed(text):
                return
            yield from self.smi.finished()
        of_program = any(mark in text for mark in OF_JOBS)
        if mask & KERNEL and not of_program and not literal and self.kernel.might_take(text):
            split = kernel_times.split(text)
            yielded = list(self.kernel.feed(number, text))
            self.kernel_events += len(yielded)
            if split.form and not self._of_tests:
                yield from yielded
            else:
                self.bare += [(number, event) for event in yielded]
            if yielded or (split.form not in ANYONES and split.tag == kernel_times.KERNEL):
                return
        if self.of_machine and not of_program and not self._of_job(text):
            return
        if mask & STACK and self._is_of_stack(number, text):
            yield from self.stacks.finished()
            return
        if mask & ATTEMPT:
            self._note_attempt(number, text)
        if mask & STEP and _is_broken(text, below):
            self.wrapped = [(number, text)]
            return
        if mask & STEP or self.job.quotes_texts:
            self.late.flush_of(text)
        if mask & NO_NUMBER:
            self.late.flush()
        *before, last = text.split("\r")[-MAX_SEGMENTS:] if "\r" in text else (text,)
        for segment in before:
            self.job.take(number, segment, words)
        self.job.take(number, last, words, "".join(before))

    def _goes_on(self, number: int, text: str) -> bool:
        """Add a line to the step that was broken, if it is a part of it."""
        before = self.wrapped[-1][1].rstrip()
        if not before.endswith("|") or len(self.wrapped) >= MAX_WRAPPED or not step_lines.goes_on(text):
            return False
        self.wrapped.append((number, text))
        return True

    def _unwrap(self) -> None:
        """Read the parts of a step's line as the line that they were."""
        (number, _), *_ = self.wrapped
        text = " ".join(part.strip() for _, part in self.wrapped)
        self.wrapped = []
        self.late.flush_of(text)
        self.job.take(number, text)

    def _note_attempt(self, number: int, text: str) -> None:
        """Begin a new log where the job begins anew after a failure; of the earliest of very many attempts nothing is kept."""
        line = peel(number, text, numbered=self.job.numbered)
        launched = attempts.by_launcher(line.text)
        if not (launched or attempts.by_program(line.text)) or not self.job.failed:
            return
        self.late.flush()
        if launched or self.job.ended or self.job.runs.seen:
            self.earlier = [*self.earlier, self.job][-MAX_ATTEMPTS:]
            self.job = JobLog(self.input, StepSeries(MAX_STEPS_OF_SERIES))

    def _of_jobs(self) -> Iterator[Record]:
        """Yield what each attempt reported, numbered where there are several."""
        numbered: list[tuple[int, Record]] = []
        attempt = 0
        for job in (*self.earlier, self.job):
            before = job.ended_before()
            again = attempt + (before > 0)
            for event in job.events():
                if _is_bare(event, _OF_CHANGES if self._of_tests else _BARE_EVENTS) and (
                    self._advises or self._of_tests
                ):
                    continue
                line = int(event.source.rpartition(":")[2])
                numbered.append((attempt if line <= before else again, event))
            own = job.steps.records(self.input.source, job.rank_of)
            numbered += ((again, msgspec.structs.replace(each, node=each.node or self.input.node)) for each in own)
            attempt = again + 1
        several = len({number for number, _ in numbered}) > 1
        for number, record in numbered:
            yield msgspec.structs.replace(record, attempt=number) if several else record

    def end(self) -> Iterator[Record]:
        """Yield what is left: the file ended, or a limit was reached."""
        if self.wrapped:
            self._unwrap()
        self.late.flush()
        jobs = (*self.earlier, self.job)
        if self.bare and not self._advises and not self._of_tests:
            yield from (event for line, event in self.bare if not any(job.runs.goes_on("", line) for job in jobs))
        yield from self.smi.finished()
        yield from self.kernel.end() if not self._of_tests else ()
        yield from self.stacks.end()
        yield from self._of_jobs()
        if self.full:
            most = MAX_EVENTS if self.job.full else EVENTS_LIMIT
            reason = f"more than {most:,} events: what follows line {self.at_line} was not read; split the log"
            yield Unread(source=self.input.source, reason=reason, outcome="limit")

    @cached_property
    def _advises(self) -> bool:
        """Whether the text is about jobs: it advises, or shows an interpreter's prompts."""
        return _PROMPT.search(self.input.head) is not None or is_advice(self.input.head.decode(errors="replace"))

    @cached_property
    def _of_tests(self) -> bool:
        """Whether the lines in it are what a change to a program is about, or is tested with."""
        return is_of_tests(self.input.head.decode(errors="replace"))

    def _of_job(self, text: str) -> bool:
        split = kernel_times.split(text)
        return not split.form or split.tag.startswith(_JOB_SERVICES) or "fabricmanager" in text

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


def _text(line: bytes) -> str:
    return line[:LINE_BYTES].decode(errors="replace").rstrip("\r")


def _is_broken(text: str, below: bytes) -> bool:
    """Whether a step's line goes on in the line below it."""
    return text.endswith("|") and step_lines.is_wrapped(text) and step_lines.goes_on(_text(below))


def _is_bare(event: LogEvent, kinds: frozenset[str]) -> bool:
    """Whether nothing but its words shows an event: no process, no time, no frames. In a text about jobs it is an example."""
    whose = (event.rank, event.local_rank, event.node, event.pid, event.at)
    frames = {frame.file for frame in event.frames} - {"<stdin>"}
    return event.event in kinds and not frames and set(whose) == {None}


def _remember(known: dict[Key, Concern], template: Key, found: Concern) -> None:
    if len(template) <= MAX_TEMPLATE_BYTES:
        if len(known) >= MAX_TEMPLATES:
            known.clear()
        known[template] = found


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
