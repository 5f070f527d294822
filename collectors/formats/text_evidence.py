"""A text file is a stream of lines, and one file may hold several kinds of evidence: each line goes to who recognises it.

Lines with a kernel log's prefix go to the kernel reader, lines of a stack to the stack readers, every other line to the job log.
In one pass. Which readers a line may concern is found out once for each template (``text_concerns``). A line of no concern is
looked at only while a traceback, a stack or a summary goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise

from collectors.formats import Input, own_gpus, wrapped_cells
from collectors.formats.job_log import found_events, statements, step_bars
from collectors.formats.job_log.attempt_logs import AttemptLogs
from collectors.formats.job_log.broken_steps import BrokenStep, is_broken
from collectors.formats.job_log.families import daemons
from collectors.formats.job_log.job_lines import peel
from collectors.formats.job_log.job_log import MAX_SEGMENTS
from collectors.formats.job_log.late_steps import LateSteps, has_no_number
from collectors.formats.job_log.step_columns import StepColumns
from collectors.formats.kernel_log import kernel_lines, kernel_times
from collectors.formats.kernel_log.kernel_log import ANYONES, EVENTS_LIMIT, OF_JOBS, Parser
from collectors.formats.markup import Margin, is_literal, unmarked
from collectors.formats.nvidia_smi.nvidia_smi import SmiLines
from collectors.formats.prose import accounts, test_runs, titles, watch_rules
from collectors.formats.prose.advice import changed_lines
from collectors.formats.prose.good_ends import lines_of_earlier_attempts
from collectors.formats.prose.reports import reported
from collectors.formats.stacks import stack_lines
from collectors.formats.tables import cells_of
from collectors.formats.text_concerns import (
    ATTEMPT,
    BLANKED,
    COLUMNS,
    JOB,
    KERNEL,
    LOSS,
    NO_NUMBER,
    SERVER,
    SMI,
    STACK,
    STEP,
    STRAGGLER,
    Concerns,
    is_label,
)
from collectors.formats.text_examples import ExampleText
from collectors.formats.text_lines import chunks, shown
from collectors.records import KernelEvent, LogEvent, Record, StackDump, Unread

NO_WORD = "\n"
"""What no line holds."""
OF_TABLE = "table"
"""Whose the rows of a table of steps are."""
SHOWS = (KernelEvent, LogEvent, StackDump)
"""Beside one of these a title and a person's words are read as words alone; steps show no error, as they may."""
_JOB_SERVICES = (
    "slurm", "srun", "python", "torchrun", "mpirun", "mpiexec", "prun", "kubelet", "raylet", "ray", "docker", "containerd",
    "deepspeed", "accelerate", "vllm", "sglang", "tritonserver", "trtllm", "text-generation",
)  # fmt: skip
"""Who writes of a job into a machine's log; any other service's trouble is none of the job's."""


def read(input: Input, *, of_machine: bool = False) -> Iterator[Record]:
    """Yield what the lines of a text report. ``of_machine``: it is a machine's log, in which only some lines are of a job."""
    reader = _Reader(input, of_machine=of_machine)
    shown: set[str] = set()
    of_others = False
    if reader.example.is_test_run:
        yield Unread(source=input.source, reason=test_runs.WHY)
        yield from (record for record in reader.records() if isinstance(record, KernelEvent))
        return
    if reader.example.is_task:
        yield Unread(source=input.source, reason=watch_rules.WHY)
        return
    for record in reader.records():
        if isinstance(record, SHOWS):
            shown.add(record.source if _is_placed(record) else "")
            of_others = of_others or not isinstance(record, LogEvent)
        yield record
    titled = [] if reader.example.is_one else list(titles.events(input))
    if shown:
        reports = () if of_others or of_machine else accounts.beside(input, titled)
        yield from (each for each in reports if each.source not in shown)
        yield from reader.own_gpus.records(input.source)
        return
    yield from titled
    if not titled:
        yield from accounts.events(input)


def _marker(line: bytes) -> tuple[str, ...]:
    """Return the word by which a line may state an error, or none that it holds: it is read, for something goes on."""
    return (statements.marker_of(shown(line)) or NO_WORD,)


def _is_placed(record: Record) -> bool:
    """Whether a record is of a process that its line names: no person's words."""
    return not isinstance(record, LogEvent) or {record.rank, record.local_rank, record.node, record.pid} != {None}


class _Reader:
    """One pass over one file."""

    def __init__(self, input: Input, *, of_machine: bool) -> None:
        self.input = input
        self.attempts = AttemptLogs(input)
        self.job = self.attempts.newest
        self.kernel = Parser(input)
        self.stacks = stack_lines.StackLines(input)
        self.smi = SmiLines(input)
        self.own_gpus = own_gpus.OwnGpus()
        self.late = LateSteps(self._take_step)
        self.columns = StepColumns()
        self.of_machine = of_machine
        self.concerns = Concerns()
        self.kernel_events = 0
        self.bare: list[tuple[int, KernelEvent]] = []  # of lines without a stamp: a job's texts may hold them
        self.at_line = 0
        self.broken = BrokenStep()
        self.example = ExampleText(input.head)
        head = input.head.decode(errors="replace")
        self.of_others = changed_lines(head) | lines_of_earlier_attempts(head)
        self.cells = cells_of(input.head.decode(errors="replace"))
        margin = Margin.of(input.head.decode(errors="replace"))
        self.margin = margin if margin.is_there else None

    @property
    def full(self) -> bool:
        """Whether a limit of events was reached."""
        return self.job.full or self.kernel_events >= EVENTS_LIMIT

    def records(self) -> Iterator[Record]:
        """Read the file."""
        number = 1
        for lines, after in pairwise(chain(chunks(self.input.stream), [[b""]])):
            yield from self.take_all(number, lines, after[0])
            number += len(lines)
            if self.full:
                break
        self.job.last_number = number
        yield from self.end()

    def wants_next(self) -> bool:
        """Whether something is going on, so that the next line counts whatever its words are."""
        return bool(self.job.open) or self.stacks.busy or self.kernel.busy or self.smi.busy or bool(self.broken.parts)

    def take_all(self, number: int, lines: list[bytes], after: bytes) -> Iterator[Record]:
        """Read the lines of a chunk, of which ``number`` is the first. ``after``: the line that follows them."""
        whole = b"\n".join(lines)
        if wrapped_cells.CONTINUED in whole:
            lines = wrapped_cells.joined(lines)
            whole = b"\n".join(lines)
        if own_gpus.WORD in whole:
            self.own_gpus.take(shown(line) for line in lines if own_gpus.WORD in line)
        blanked = whole.translate(BLANKED).split(b"\n")
        known, open_, columns = self.concerns.of_template, self.wants_next(), self.columns
        for at, template in enumerate(blanked):
            if columns.header is not None and columns.holds(template):
                row = shown(lines[at])
                if open_:
                    self.late.flush()
                    self._take_step(number + at, row)
                else:
                    self.late.add(number + at, row, is_number=not has_no_number(row), key=OF_TABLE)
                continue
            mask, words = known.get(template) or self.concerns.learn(template)
            if open_:
                mask |= JOB | (STACK if self.stacks.busy else 0) | (KERNEL if self.kernel.busy else 0)
                words = words or _marker(lines[at])
                self.late.flush()  # the steps below are read at once
            elif not mask or (mask == LOSS and not self.job.lost):
                continue
            elif mask == SERVER and not self.job.found.of_streams and self.job.streams.last_line is None:
                continue  # nothing has failed that a server could have survived
            if mask & COLUMNS:
                self.late.flush()
                columns.begin(shown(lines[at]))
            text = shown(lines[at]) if self.margin is None else self.margin.off(shown(lines[at]))
            below = lines[at + 1] if at + 1 < len(lines) else after
            if (
                not open_
                and not words
                and mask & STEP
                and not mask & (KERNEL | STACK | ATTEMPT | STRAGGLER)
                and not self.job.lost
                and "\r" not in text
                and not is_broken(text, below)
                and not self._is_of_bar(text)
            ):
                self.late.add(number + at, text, is_number=not mask & NO_NUMBER)
                continue
            if mask & STEP and step_bars.may_hold(text):
                self.late.flush_of(text)
                self.job.take_bars(number + at, lines[at].decode(errors="replace"))
            yield from self._take(number + at, text, mask, words, below)
            open_ = self.wants_next()
            if self.full:
                return

    def _is_of_bar(self, text: str) -> bool:
        """Whether the bars above a line give its step the number: they are read before it."""
        return self.job.bars.seen and "{'" in text

    def _take_step(self, number: int, text: str) -> None:
        if self.columns.header is not None and self.columns.holds(text.encode().translate(BLANKED)):
            line = peel(number, text, numbered=self.job.numbered, seen_at=self.input.dated_by)
            if (step := self.columns.step(line)) is not None:
                self.job.take_step(step, line)
            return
        if step_bars.may_hold(text):
            self.job.take_bars(number, text)
        self.job.take(number, text, ())

    def _take(self, number: int, text: str, mask: int, words: tuple[str, ...], below: bytes) -> Iterator[Record]:
        for cell in self.cells.get(number, (text,)):
            yield from self._take_one(number, cell, mask, words, below)

    def _take_one(self, number: int, text: str, mask: int, words: tuple[str, ...], below: bytes) -> Iterator[Record]:
        self.at_line = number
        if self.broken.parts and not self.broken.goes_on(number, text):
            self._take_broken()
        elif self.broken.parts or number in self.of_others or kernel_lines.is_example(text):
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
            if split.form not in {"", kernel_times.ODD} and not self.example.of_tests:
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
        if mask & ATTEMPT and self.attempts.begin_after_failure(number, text, self.late.flush):
            self.job = self.attempts.newest
        elif mask & ATTEMPT:
            self.job.take_announcement(number, text, self.late.flush)
        if mask & STRAGGLER:
            self.job.take_stragglers([(number, text)])
        if mask & SERVER:
            self.job.take_answers([(number, text)])
        if mask & STEP and is_broken(text, below):
            self.broken.begin(number, text)
            return
        if mask & STEP or self.job.streams.quotes_texts:
            self.late.flush_of(text)
        if mask & NO_NUMBER or self._is_of_bar(text):
            self.late.flush()
        *before, last = text.split("\r")[-MAX_SEGMENTS:] if "\r" in text else (text,)
        for segment in before:
            self.job.take(number, segment, words)
        self.job.take(number, last, words, "".join(before))

    def _take_broken(self) -> None:
        number, text = self.broken.end()
        self.late.flush_of(text)
        self.job.take(number, text)

    def end(self) -> Iterator[Record]:
        """Yield what is left: the file ended, or a limit was reached."""
        if self.broken.parts:
            self._take_broken()
        self.late.flush()
        if self.bare and not self.example.is_one:
            yield from (event for line, event in self.bare if not self.attempts.goes_on(line))
        yield from self.smi.finished()
        yield from self.kernel.end() if not self.example.of_tests else ()
        yield from self.stacks.end()
        yield from self.attempts.records(self.example.has_as_example)
        if self.full:
            most = found_events.MAX_EVENTS if self.job.full else EVENTS_LIMIT
            reason = f"more than {most:,} events: what follows line {self.at_line} was not read; split the log"
            yield Unread(source=self.input.source, reason=reason, outcome="limit")

    def _of_job(self, text: str) -> bool:
        split = kernel_times.split(text)
        if not split.form or split.tag.startswith(_JOB_SERVICES) or daemons.PROGRAMS.fullmatch(split.tag):
            return True
        return "fabricmanager" in text or (split.tag == "systemd" and daemons.UNIT.search(text) is not None)

    def _is_of_stack(self, number: int, text: str) -> bool:
        may_begin = any(word in text for word in stack_lines.WORDS) or is_label(text)
        if not may_begin and not self.stacks.busy:
            return False
        line = peel(number, text, numbered=self.job.numbered)
        if not may_begin and not self.stacks.is_open(line.stream):
            return False
        return self.stacks.feed(number, line.stream, line.text, line.rank)
