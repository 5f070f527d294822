"""A job's log: what the ranks and their launcher printed, one file a rank or all interleaved.

Every line is peeled of its prefixes (``job_lines``), then offered to the launcher's shapes (``launchers``), to the
traceback that its stream may be printing (``tracebacks``), to the marks of trouble (``log_marks``) and to the trainers'
reports of steps (``step_lines``). At the end the streams whose rank only became known later get it, and repeats are
folded: an error that a loop prints is one event. Files and the logs that an agent follows are read by the same ``scan``.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import msgspec

from collectors.formats import Input, reader
from collectors.formats.job_log import families, log_marks, rl_steps
from collectors.formats.job_log.attempts import ENDS, FATAL, OUTLIVED
from collectors.formats.job_log.job_lines import STAMPED, Line, is_numbered, peel
from collectors.formats.job_log.launchers import Launcher
from collectors.formats.job_log.loss_column import LossColumn, has_number
from collectors.formats.job_log.recognition import sniff
from collectors.formats.job_log.revealed_ranks import with_ranks
from collectors.formats.job_log.shapes import Blocks, identity, without_endless_numbers
from collectors.formats.job_log.step_lines import may_report, read_block, read_step
from collectors.formats.job_log.step_runs import STEPS_AFTER, StepRuns
from collectors.formats.job_log.step_series import MAX_STEPS_OF_SERIES, Place, StepSeries
from collectors.formats.job_log.traceback_events import alone, event_of, in_title, is_cut_of, may_stand, quoted_in
from collectors.formats.job_log.tracebacks import HEADER, LAST_LINE, Assembler
from collectors.formats.quotations import Quotes
from collectors.formats.text_lines import lines
from collectors.records import LogEvent, Record, Unread

MAX_EVENTS = 20_000  # of one file; a 16,384-rank job whose every rank reports once fits
MAX_STREAMS = 20_000  # of one file: tracebacks that are being printed at the same time
LAST_WORDS_LINES = 200  # an exception of which one line is left stands so near the end of its log
BATCH_LINES, BATCH_CHARACTERS = 512, 1 << 16
MAX_SEGMENTS = 8  # of one line: a progress bar rewrites its line with carriage returns


@dataclass(slots=True)
class _Stream:
    """One process's lines: the traceback it may be printing, its launcher's summary, the rank it turned out to have."""

    assembler: Assembler = field(default_factory=Assembler)
    launcher: Launcher = field(default_factory=Launcher)
    blocks: Blocks = field(default_factory=lambda: Blocks(families.BLOCKS))
    head: Line | None = None  # where the current traceback began
    spawned: int | None = None  # "-- Process 3 terminated": the next traceback is that process's
    quotes: Quotes = field(default_factory=Quotes)
    quoted: bool = False  # the traceback that is being printed is a text that was read or written


@dataclass(slots=True)
class _NoNumber:
    """The lines of a stream whose loss is not a number, since the last one that is, and how many there were before it."""

    first: LogEvent | None = None
    count: int = 0
    passed: int = 0

    def take(self, found: LogEvent) -> None:
        self.first = self.first or found
        self.count += 1

    def end(self) -> None:
        self.passed = max(self.passed, self.count)
        self.first, self.count = None, 0


@reader(
    "job_log",
    made_by="python, torchrun, srun or mpirun with their output kept",
    gives="steps with loss and time, exceptions, NCCL watchdog timeouts, CUDA errors and exits, by rank",
    sniff=sniff,
    by_line=True,
)
def read(input: Input) -> Iterator[Record]:
    """Yield the events of a log in the order of its lines, at most MAX_EVENTS, then its steps."""
    log = scan(input)
    yield from log.events()
    for steps in log.steps.records(input.source, log.rank_of):
        yield msgspec.structs.replace(steps, node=steps.node or input.node)
    if log.full:
        reason = f"more than {MAX_EVENTS:,} events: what follows line {log.last_number} was not read; split the log"
        yield Unread(source=input.source, reason=reason, outcome="limit")


def scan(input: Input, most_steps: int = MAX_STEPS_OF_SERIES) -> JobLog:
    """Read a log's lines up to MAX_EVENTS events; of each series of steps, the newest ``most_steps`` are kept."""
    log = JobLog(input, StepSeries(most_steps))
    for batch in _batches(lines(input.stream)):
        # Nearly all words of trouble are absent from nearly all batches: only those present are looked for in each line.
        whole = "\n".join([text for _, text in batch])
        words = tuple(word for word in log_marks.TROUBLE if word in whole)
        for number, text in batch:
            *before, last = text.split("\r")[-MAX_SEGMENTS:] if "\r" in text else (text,)
            for segment in before:
                log.take(number, segment, words)
            log.take(number, last, words, "".join(before))
            if log.full:
                return log
    return log


def _batches(numbered: Iterator[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    batch: list[tuple[int, str]] = []
    characters = 0
    for number, text in numbered:
        batch.append((number, text))
        characters += len(text)
        if characters > BATCH_CHARACTERS or len(batch) >= BATCH_LINES:
            yield batch
            batch, characters = [], 0
    yield batch


def _has(text: str, words: tuple[str, ...]) -> bool:
    for word in words:  # half the cost of any() with a generator, and most of the cost of a log  # noqa: SIM110
        if word in text:
            return True
    return False


class JobLog:
    """What one log holds so far, bounded; ranks that only later lines reveal are filled in by ``events``."""

    def __init__(self, input: Input, steps: StepSeries) -> None:
        self.input = input
        self.steps = steps
        self.numbered = is_numbered(input.head.decode(errors="replace"))
        self.streams: OrderedDict[str, _Stream] = OrderedDict()
        self.found: list[tuple[str, LogEvent]] = []
        self.no_number: dict[str, _NoNumber] = {}  # by stream
        self.lost: set[str] = set()  # streams whose newest loss is not a number
        self.seen: dict[tuple[object, ...], int] = {}  # what an event says → the newest line that says it
        self.runs = StepRuns(input.head)
        self.open: set[str] = set()  # streams inside a traceback or a launcher's summary: each of their lines counts
        self.last_line: Line | None = None  # the newest that may be the end of a cut traceback
        self.stamped: str | None = None  # the stream of a traceback whose first line alone has a logger's stamp
        self.last_number = 0
        self.step: int | None = None  # that the newest line reports
        self.full = False
        self.first_place: tuple[str | None, int | None] | None = None  # node, task of the first line with a local rank
        self.many_nodes = False  # lines with local ranks are of several nodes
        self.local_differs = False  # a line's rank is not its local rank: the job has other nodes
        self.local_is_rank = False  # a line's rank is its local rank: this is the job's first node
        self.locals: set[int] = set()  # that print lines of their own
        self.named: set[int] = set()  # ranks that lines name
        self.losses = LossColumn()
        self.quotes_texts = False  # texts of a model were seen: a step ends one
        self.step_blocks = rl_steps.Blocks()
        self.phases = rl_steps.Phases()

    def take(self, number: int, text: str, words: tuple[str, ...] = log_marks.TROUBLE, before: str = "") -> None:
        """Read one line; ``before``: what a bar wrote on it and wiped off. Without ``words`` it came before what is open."""
        self.last_number = number
        trouble = bool(words) and _has(text, words)
        if "Timer " in text or "▶ " in text:
            self.phases.take(peel(number, text, numbered=self.numbered, seen_at=self.input.at))
        begins, reports = trouble or _has(text, log_marks.NO_NUMBER), may_report(text)
        lost = bool(self.lost) and ("loss" in text or "Loss" in text)
        if not begins and not reports and not self.open and not lost:
            return
        line = self._continued(peel(number, text, numbered=self.numbered, seen_at=self.input.at))
        step = (read_step(line, before) or read_block(line, self.step_blocks)) if reports else None
        self.step = None if step is None or step.step < 0 else step.step
        if step is not None:
            self.steps.add(self.losses.checked(step, line), line)
            self.runs.take(step.step, line)
            if self.quotes_texts and (of := self.streams.get(line.stream)) is not None:
                of.quotes.end()
            begins = trouble or step.loss_is_none
            self._note_local(line, step.rank)
        elif begins:
            self._note_local(line, line.rank)
        if lost and line.stream in self.lost and has_number(line, step):
            self.no_number[line.stream].end()
            self.lost.discard(line.stream)
        if not (words if line.stream in self.open else begins):
            return
        stream = self._stream(line.stream)
        self._read(without_endless_numbers(line), stream, words if trouble else ())
        if stream.assembler.busy or stream.launcher.busy or stream.blocks.busy:
            self.open.add(line.stream)
        else:
            self.open.discard(line.stream)

    def _continued(self, line: Line) -> Line:
        """Give a line without a prefix to the traceback that is being printed after a logger's stamp."""
        if line.stream or self.stamped is None:
            return line
        if self.stamped not in self.open:
            self.stamped = None
            return line
        return replace(line, stream=self.stamped)

    def _read(self, line: Line, stream: _Stream, words: tuple[str, ...]) -> None:
        """Read a line of a stream. ``words``: of trouble, some of which it holds."""
        if words and stream.quotes.take(line.number, line.text, words, stamped=line.at is not None):
            self._pass_over(line, stream)
            self.quotes_texts = True
            return
        if HEADER in line.text and line.stream.startswith(STAMPED):
            self.stamped = line.stream
        self._add(line.stream, stream.blocks.feed(line))
        of_launcher = stream.launcher.feed(line)
        if of_launcher is not None:
            if stream.assembler.busy and of_launcher:
                stream.assembler.close()
            self._finished(line.stream, stream)
            self._add(line.stream, of_launcher)
            return
        if found := re.match(r"-- Process (\d{1,6}) terminated with the following", line.text):
            stream.spawned = int(found[1])
        if stream.assembler.feed(line.number, line.text, line.at if HEADER in line.text else None):
            stream.head = stream.head or line
            self._finished(line.stream, stream)
            return
        self._finished(line.stream, stream)
        if LAST_LINE.match(line.text) and not is_cut_of(line, self.last_line):
            self.last_line = line
        self._add(line.stream, log_marks.events_of(line))

    def _pass_over(self, line: Line, stream: _Stream) -> None:
        """Read a quotation: as a part of the traceback that is being printed, or as the first line of one that is no event."""
        begins = HEADER in line.text
        if begins or stream.assembler.busy:
            stream.assembler.feed(line.number, line.text, None)
            self._finished(line.stream, stream)
        stream.quoted = stream.quoted or begins

    def events(self) -> list[LogEvent]:
        """Close what is open, give each stream its rank, and return the events by their lines."""
        for name, stream in list(self.streams.items()):
            self._close(name, stream)
        lasting = [
            (name, lost.first) for name, lost in self.no_number.items() if lost.first and lost.count > lost.passed
        ]
        stayed = [(name, found) for name, found in self.found if not self._has_passed(name, found)]
        resolved = with_ranks([*stayed, *lasting, *self._exception_alone()], is_torchrun=self._is_torchrun())
        return [self._placed(event) for event in sorted(resolved, key=lambda each: int(each.source))]

    def _exception_alone(self) -> Iterator[tuple[str, LogEvent]]:
        """Yield an exception of which a log holds the last line alone, without a step after it: others may be handled."""
        line = self.last_line or in_title(self.input.head, [each for _, each in self.found])
        if (
            line is None
            or not may_stand(line, [each for _, each in self.found])
            or self.runs.after(line.number)
            or self.last_number - line.number > LAST_WORDS_LINES
        ):
            return
        yield from ((line.stream, each) for each in alone(line))

    def _has_passed(self, name: str, found: LogEvent) -> bool:
        """Whether training went on for several steps: links recover, and a program handles what it logs and goes on.

        Of an exception only stamped steps of its own stream count: lines that a program prints may be written when it ends.
        """
        since = self.seen[identity(name, found)]
        if found.event in FATAL and self.runs.goes_on(name, since) and not self._has_ended(found, since):
            return True
        after = self.runs.after(since)
        if found.event == "traceback":
            own = [line for line in after if line.stream == name and line.is_stamped]
            return len(own) >= STEPS_AFTER and not self._has_ended(found, since)
        return (found.event in OUTLIVED or found.operation == "daemon") and len(after) >= STEPS_AFTER

    def _has_ended(self, found: LogEvent, since: int) -> bool:
        """Whether a launcher reports after it that its process failed; one that names no rank may be about it."""
        rank = self._own_rank if found.rank is None else found.rank
        return any(
            each.event in {"exit", "torchrun_failure"} and int(each.source) > since and each.rank in {rank, None}
            for _, each in self.found
        )

    @property
    def failed(self) -> bool:
        """Whether something has ended a process so far; what is being printed ends here."""
        for name, stream in self.streams.items():
            self._close(name, stream)
        self.open.clear()
        return any(found.event in FATAL | ENDS for _, found in self.found)

    @property
    def ended(self) -> bool:
        """Whether a launcher or the scheduler has reported an end."""
        return any(found.event in ENDS for _, found in self.found)

    def ended_before(self) -> int:
        """Return the line of the newest end after which the job's steps went on: it was started again; 0 for none."""
        ends = (int(found.source) for _, found in self.found if found.event in ENDS)
        return max((line for line in ends if self.runs.begins_after(line)), default=0)

    def rank_of(self, place: Place) -> int | None:
        """Return the rank of lines that name none: srun's task, unless srun started torchrun, or the file's or local rank."""
        if place.task is not None and place.local_rank is None and not self._is_torchrun():
            return place.task
        return own if (own := self._own_rank) is not None else self._rank_of_local(place.local_rank)

    @property
    def _own_rank(self) -> int | None:
        """Return the rank that the file is of; the number beside a role may be a node's, whose ranks then name themselves."""
        one = self.named <= {self.input.number} and len(self.locals) < 2
        return self.input.number if self.input.rank is None and one else self.input.rank

    def _rank_of_local(self, local_rank: int | None) -> int | None:
        """Return the rank that a local rank is: where a line shows that they are one, or every local rank prints here.

        None where the job may have a second node. One local rank alone may be of any node.
        """
        several = self.input.node is not None or self.many_nodes or self.local_differs
        if several or local_rank is None:
            return None if several else self.input.local_rank
        every = len(self.locals) > 1 and self.locals == set(range(len(self.locals)))
        return local_rank if self.local_is_rank or (every and local_rank in self.locals) else None

    def _note_local(self, line: Line, rank: int | None) -> None:
        """Learn from a line with a local rank whether the job has several nodes; srun starts one torchrun a node."""
        if line.local_rank is not None:
            place = (line.node, line.task)
            self.first_place = self.first_place or place
            self.many_nodes = self.many_nodes or place != self.first_place
            self.locals.add(line.local_rank)
        local_rank = self.input.local_rank if line.local_rank is None else line.local_rank
        self._compare(rank, local_rank)

    def _compare(self, rank: int | None, local_rank: int | None) -> None:
        if rank is not None:
            self.named.add(rank)
        if rank is not None and local_rank is not None:
            self.local_differs = self.local_differs or local_rank != rank
            self.local_is_rank = self.local_is_rank or local_rank == rank

    def _stream(self, name: str) -> _Stream:
        stream = self.streams.get(name)
        if stream is None:
            stream = self.streams[name] = _Stream()
            if len(self.streams) > MAX_STREAMS:
                oldest, gone = self.streams.popitem(last=False)
                self.open.discard(oldest)
                self._close(oldest, gone)
        return stream

    def _close(self, name: str, stream: _Stream) -> None:
        stream.assembler.close()
        self._finished(name, stream)
        self._add(name, stream.launcher.close())
        self._add(name, stream.blocks.close())

    def _finished(self, name: str, stream: _Stream) -> None:
        for traceback in stream.assembler.finished:
            if stream.head is not None and not stream.quoted:
                whole = event_of(traceback, stream.head, stream.spawned)
                self._add(name, [whole, *quoted_in(whole, stream.head)])
            stream.head, stream.quoted = None, False
        stream.assembler.finished.clear()

    def _add(self, name: str, found: Iterator[LogEvent] | list[LogEvent]) -> None:
        for each in found:
            if each.event == "nan":
                if name in self.no_number or len(self.no_number) < MAX_STREAMS:
                    self.no_number.setdefault(name, _NoNumber()).take(msgspec.structs.replace(each, step=self.step))
                    self.lost.add(name)
                continue
            if (key := identity(name, each)) in self.seen:
                self.seen[key] = int(each.source)
                continue
            if len(self.found) >= MAX_EVENTS:
                self.full = True
                return
            self.seen[key] = int(each.source)
            self.found.append((name, each))
            if each.event == "torchrun_failure":
                self._compare(each.rank, each.local_rank)

    def _is_torchrun(self) -> bool:
        return any(stream.launcher.is_torchrun for stream in self.streams.values())

    def _placed(self, found: LogEvent) -> LogEvent:
        rank = found.rank
        launchers = {"torchrun_failure", "closing_signal", "terminated", "preempted", "cancelled", "step_cancelled",
                     "time_limit", "node_failure", "daemon_lost"}  # fmt: skip
        if rank is None and found.event not in launchers and found.pid is None:
            rank = own if (own := self._own_rank) is not None else self._rank_of_local(found.local_rank)
        elif rank is None and found.local_rank is not None:
            rank = self._rank_of_local(found.local_rank)
        return msgspec.structs.replace(
            found,
            source=f"{self.input.source}:{found.source}",
            rank=rank,
            node=found.node or self.input.node,
            group=None if found.group == "task" else found.group,
        )
