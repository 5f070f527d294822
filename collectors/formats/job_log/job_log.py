"""A job's log: what the ranks and their launcher printed, one file a rank or all interleaved.

Every line is peeled of its prefixes (``job_lines``) and offered to the trainers' reports of steps (``step_lines``); one that may
belong to trouble goes to its process (``streams``). At the end the streams whose rank only became known later get it, and repeats
are folded: an error that a loop prints is one event. Files and the logs that an agent follows are read by the same ``scan``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain

import msgspec

from collectors.formats import Input, reader
from collectors.formats.job_log import attempts, found_events, log_marks, requests, rl_steps
from collectors.formats.job_log.between_steps import BetweenSteps
from collectors.formats.job_log.escaped import lines_of
from collectors.formats.job_log.found_events import FoundEvents, without_mere_readiness
from collectors.formats.job_log.job_lines import Line, numbers_of, peel
from collectors.formats.job_log.local_ranks import LocalRanks
from collectors.formats.job_log.loss_column import LossColumn, has_number
from collectors.formats.job_log.lost_losses import LostLosses
from collectors.formats.job_log.recognition import sniff
from collectors.formats.job_log.revealed_ranks import with_ranks
from collectors.formats.job_log.statements import STATED
from collectors.formats.job_log.step_bars import StepBars
from collectors.formats.job_log.step_blocks import StepBlocks, may_begin
from collectors.formats.job_log.step_lines import Step, may_report, read_step
from collectors.formats.job_log.step_runs import StepRuns
from collectors.formats.job_log.step_series import MAX_STEPS_OF_SERIES, Place, StepSeries
from collectors.formats.job_log.stragglers import Stragglers, names_stragglers
from collectors.formats.job_log.streams import Streams
from collectors.formats.job_log.traceback_events import alone, in_title, may_stand
from collectors.formats.text_lines import lines
from collectors.records import LogEvent, Record, Unread

LAST_WORDS_LINES = 200  # an exception of which one line is left stands so near the end of its log
BATCH_LINES, BATCH_CHARACTERS = 512, 1 << 16
MAX_SEGMENTS = 8  # of one line: a progress bar rewrites its line with carriage returns
OF_LAUNCHERS = frozenset({
    "torchrun_failure", "closing_signal", "terminated", "preempted", "cancelled", "step_cancelled", "time_limit", "node_failure",
    "daemon_lost",
})  # fmt: skip
"""Events that a launcher or the scheduler reports: the rank of the file is not theirs."""


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
    for record in chain(log.steps.records(input.source, log.rank_of), log.stragglers.records(input.source)):
        yield msgspec.structs.replace(record, node=record.node or input.node)
    if log.full:
        reason = f"more than {found_events.MAX_EVENTS:,} events: what follows line {log.last_number} was not read; split the log"
        yield Unread(source=input.source, reason=reason, outcome="limit")


def scan(input: Input, most_steps: int = MAX_STEPS_OF_SERIES) -> JobLog:
    """Read a log's lines up to MAX_EVENTS events; of each series of steps, the newest ``most_steps`` are kept."""
    log = JobLog(input, StepSeries(most_steps))
    for batch in _batches(lines(input.stream)):
        # Nearly all words of trouble are absent from nearly all batches: only those present are looked for in each line.
        whole = "\n".join([text for _, text in batch])
        words = tuple(word for word in log_marks.OF_STATEMENTS if word in whole)
        if names_stragglers(whole):
            log.take_stragglers(batch)
        for number, text in batch:
            *before, last = text.split("\r")[-MAX_SEGMENTS:] if "\r" in text else (text,)
            for segment in before:
                log.take(number, segment, words)
            log.take(number, last, words, "".join(before))
            if log.full:
                return log
        if requests.may_hold(whole):
            log.take_answers(batch)
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
        self.numbered = numbers_of(input.head.decode(errors="replace"))
        self.streams = Streams(self._add)
        self.open = self.streams.open
        self.found = FoundEvents()
        self.lost_losses = LostLosses()
        self.lost = self.lost_losses.streams
        self.runs = StepRuns(input.head)
        self.last_number = 0
        self.step: int | None = None  # that the newest line reports
        self.ranks = LocalRanks(input)
        self.losses = LossColumn()
        self.between = BetweenSteps()
        self.step_blocks = StepBlocks()
        self.bars = StepBars()
        self.phases = rl_steps.Phases()
        self.stragglers = Stragglers()
        self.requests = requests.Requests()
        self.announced = 0  # the newest line that says that the job goes on after a failure

    def take(self, number: int, text: str, words: tuple[str, ...] = log_marks.OF_STATEMENTS, before: str = "") -> None:
        """Read one line; ``before``: what a bar wrote on it and wiped off. Without ``words`` it came before what is open."""
        self.last_number = number
        trouble = bool(words) and _has(text, words)
        if "Timer " in text or "▶ " in text:
            self.phases.take(peel(number, text, numbered=self.numbered, seen_at=self.input.dated_by))
        begins = trouble or _has(text, log_marks.NO_NUMBER)
        reports = may_report(text) or bool(self.step_blocks) or may_begin(text)
        lost = bool(self.lost) and ("loss" in text or "Loss" in text)
        if not begins and not reports and not self.open and not lost:
            return
        line = self.streams.continued(peel(number, text, numbered=self.numbered, seen_at=self.input.dated_by))
        step = (read_step(line, before) or self.step_blocks.read(line)) if reports else None
        self.step = None if step is None or step.step < 0 else step.step
        if step is not None:
            if step.layout == "transformers":
                self.bars.complete(step, line)
            self.take_step(step, line)
            begins = trouble or step.loss_is_none
        else:
            self.between.take(line)
            if begins:
                self.ranks.take(line, line.rank)
        if lost and line.stream in self.lost and has_number(line, step):
            self.lost_losses.end(line.stream)
        if words if line.stream in self.open else begins:
            for each in lines_of(line.text) if trouble else (line.text,):
                own = line if each is line.text else replace(line, text=each)
                self.streams.take(own, words if trouble else ())

    def take_step(self, step: Step, line: Line) -> None:
        """Take a step that a line reports."""
        self.between.mark(step, line)
        self.steps.add(self.losses.checked(step, line), line)
        self.runs.take(step.step, line)
        self.streams.end_quotation(line.stream)
        self.ranks.take(line, step.rank)

    def take_bars(self, number: int, text: str) -> None:
        """Take the steps that progress bars show on a line, however often it was redrawn."""
        first, _, redrawn = text.partition("\r")
        line = peel(number, first, numbered=self.numbered, seen_at=self.input.dated_by)
        for part in (line.text, redrawn):
            for step in self.bars.steps(line, part):
                self.take_step(step, line)

    def take_announcement(self, number: int, text: str, flush: Callable[[], None]) -> None:
        """Read a line that may say that the job goes on after what has failed. ``flush`` reads the steps that wait."""
        if not attempts.is_announced(text) or not self.failed:
            return
        self.announced = number
        if attempts.is_resumed(text):
            flush()
            if self.runs.are_older_than(peel(number, text, numbered=self.numbered, seen_at=self.input.dated_by)):
                self.found.resumed = number

    def take_stragglers(self, numbered: list[tuple[int, str]]) -> None:
        """Read the lines that report stragglers."""
        for number, text in numbered:
            if names_stragglers(text):
                self.stragglers.take(peel(number, text, numbered=self.numbered, seen_at=self.input.dated_by))

    def take_answers(self, numbered: list[tuple[int, str]]) -> None:
        """Read the lines with which a server answers, begins or ends, once something may have failed in it."""
        if not (self.open or self.found.of_streams or self.streams.last_line):
            return
        for number, text in numbered:
            if requests.may_hold(text):
                self.requests.take(peel(number, text, numbered=self.numbered, seen_at=self.input.dated_by))

    def events(self) -> list[LogEvent]:
        """Close what is open, give each stream its rank, and return the events by their lines."""
        self.streams.close()
        stayed = self.found.stayed(self.runs, self.requests, self.ranks.own_rank)
        every = [*stayed, *self.lost_losses.lasting(), *self._exception_alone()]
        resolved = with_ranks(every, is_torchrun=self.streams.is_torchrun)
        reported = without_mere_readiness(resolved)
        return [self._placed(event) for event in sorted(reported, key=lambda each: int(each.source))]

    def _exception_alone(self) -> Iterator[tuple[str, LogEvent]]:
        """Yield an exception of which a log holds the last line alone, without a step after it: others may be handled."""
        found = [each for each in self.found if each.event != STATED]
        line = in_title(self.input.head, found) or self.streams.last_line
        if (
            line is None
            or not may_stand(line, found)
            or self.runs.after(line.number)
            or self.requests.go_on(line.stream, line.number)
            or self.last_number - line.number > LAST_WORDS_LINES
        ):
            return
        said = "\n".join((line.text, *self.streams.last_message)) if line is self.streams.last_line else line.text
        yield from ((line.stream, each) for each in alone(replace(line, text=said)))

    @property
    def full(self) -> bool:
        """Whether the limit of events was reached."""
        return self.found.full

    @property
    def failed(self) -> bool:
        """Whether something has ended a process so far; what is being printed ends here."""
        self.streams.close()
        return self.found.failed

    def ended_before(self) -> int:
        """Return the line of the newest end after which the job's steps went on: it was started again; 0 for none.

        Where a line says that the job goes on, what failed before it was the end, if steps follow for long. A process that says
        later than the newest step that it resumes has begun already: it may fail before its first step.
        """
        again = self.announced if self.announced and self.runs.lasts(self.announced) else 0
        return max(again, self.found.resumed, self.found.ended_before(self.runs, self.ranks.own_rank))

    def rank_of(self, place: Place) -> int | None:
        """Return the rank of lines that name none: srun's task, unless srun started torchrun, or the file's or local rank."""
        if place.task is not None and place.local_rank is None and not self.streams.is_torchrun:
            return place.task
        return self.ranks.rank_of(place.local_rank)

    def _add(self, name: str, found: Iterable[LogEvent]) -> None:
        for each in found:
            if each.event == "nan":
                self.lost_losses.take(name, msgspec.structs.replace(each, step=self.step))
            elif self.found.add(name, each, self.runs) and each.event == "torchrun_failure":
                self.ranks.compare(each.rank, each.local_rank)

    def _placed(self, found: LogEvent) -> LogEvent:
        rank = found.rank
        if rank is None and found.event not in OF_LAUNCHERS and found.pid is None:
            rank = self.ranks.rank_of(found.local_rank)
        elif rank is None and found.local_rank is not None:
            rank = self.ranks.rank_of_local(found.local_rank)
        return msgspec.structs.replace(
            found,
            source=f"{self.input.source}:{found.source}",
            rank=rank,
            node=found.node or self.input.node,
            group=None if found.group == "task" else found.group,
        )
