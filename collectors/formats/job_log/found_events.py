"""The events that a log's lines report: repeats are folded, and what the job outlived is left out."""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from operator import itemgetter

from collectors.formats.job_log.attempts import ENDS, FATAL, OUTLIVED, STALLS
from collectors.formats.job_log.requests import Requests, is_of_request
from collectors.formats.job_log.shapes import identity
from collectors.formats.job_log.statements import STATED, listed
from collectors.formats.job_log.step_runs import STEPS_AFTER, StepRuns
from collectors.records import UNIT_STARTED, LogEvent

MAX_EVENTS = 20_000  # of one file; a 16,384-rank job whose every rank reports once fits
_READY, _OF_NETWORK = "fabric_ready", frozenset({"fabric_error", "fabric_warned", "nccl_warned", "nccl_error"})
_STEP_CANCELLED = "step_cancelled"
_HANDLED = re.compile(
    r"(?i)\b(?:caught|catching|retry(?:ing)?|retried|trying again|skipp(?:ed|ing)|(?:fall(?:ing|s)?|fell) back|"
    r"recover(?:ed|ing)|halv(?:ed|ing)|ignor(?:ed|ing))\b"
)
"""What a program writes of an error that it goes on after. It may write it of a device's fault, too: that stays one."""


def without_mere_readiness(events: Iterable[LogEvent]) -> list[LogEvent]:
    """Leave out that a network is ready where no line says that one was missing: every healthy run of NCCL begins so."""
    found = list(events)
    if any(event.event in _OF_NETWORK for event in found):
        return found
    return [event for event in found if event.event != _READY]


class FoundEvents:
    """Events and the streams that they are of, in the order of their lines, bounded."""

    def __init__(self) -> None:
        self.of_streams: list[tuple[str, LogEvent]] = []
        self._seen: dict[tuple[object, ...], int] = {}  # what an event says → the newest line that says it
        self._ends: list[tuple[int, float | None]] = []  # the lines that report ends, in order, with their times
        self._exits: list[LogEvent] = []  # what launchers report of single processes' ends
        self.failed = False  # whether something has ended a process so far
        self.full = False
        self.resumed = 0  # the newest line on which a process says that it resumes after a failure

    def __iter__(self) -> Iterator[LogEvent]:
        return (event for _, event in self.of_streams)

    def add(self, name: str, event: LogEvent, runs: StepRuns) -> bool:
        """Keep an event of a stream, and return whether it is a new one: an error that a loop prints is one event.

        What is said again after an end and further steps is of the next attempt, whose processes may have the same numbers.
        """
        since = self._seen.get(key := identity(name, event))
        if since is not None and not self._begins_between(since, int(event.source), name, runs):
            self._seen[key] = int(event.source)
            return False
        if len(self.of_streams) >= MAX_EVENTS:
            self.full = True
            return False
        self._seen[key] = int(event.source)
        if event.event in ENDS:
            insort(self._ends, (int(event.source), event.at), key=itemgetter(0))
        if event.event in {"exit", "torchrun_failure"}:
            self._exits.append(event)
        self.failed = self.failed or event.event in FATAL | ENDS
        self.of_streams.append((name, event))
        return True

    def _begins_between(self, since: int, line: int, name: str, runs: StepRuns) -> bool:
        """Whether an end and further steps, or a process that resumes, came after one line and before another.

        A traceback is whole only with its stream's next line: further ends of its own attempt may have been read by then.
        """
        if since < self.resumed < line:
            return True
        place = bisect_left(self._ends, since, key=itemgetter(0))
        end = self._ends[place][0] if place < len(self._ends) else line
        return end < line and runs.begins_after(end, name or None, self._ends)

    def stayed(self, runs: StepRuns, requests: Requests, own_rank: int | None) -> list[tuple[str, LogEvent]]:
        """Return the events that no list holds, and the job's steps or a server's answers did not outlive.

        ``own_rank``: which the file is of.
        """
        left_out = listed(self) | self._up_again()
        return [
            (name, event)
            for name, event in self.of_streams
            if int(event.source) not in left_out
            and not self._has_passed(name, event, runs, own_rank)
            and not self._is_of_request(name, event, requests, own_rank)
        ]

    def _up_again(self) -> set[int]:
        """Return the lines of daemons that systemd started after the newest line that says it, and of starts that none needed."""
        starts = {int(each.source): each.operation for each in self if each.event == UNIT_STARTED}
        ended = {
            int(event.source): min(after)
            for name, event in self.of_streams
            if starts and (after := self._starts_after(self._seen[identity(name, event)], event, starts))
        }
        return set(ended) | (set(starts) - set(ended.values()))

    @staticmethod
    def _starts_after(since: int, event: LogEvent, starts: dict[int, str | None]) -> list[int]:
        return [
            at for at, unit in starts.items() if at > since and event.text.startswith((f"{unit}.service", f"{unit}: "))
        ]

    def _has_passed(self, name: str, event: LogEvent, runs: StepRuns, own_rank: int | None) -> bool:
        """Whether training went on for several steps: links recover, and a program handles what it logs and goes on.

        Of an exception only stamped steps of its own stream count: lines that a program prints may be written when it ends.
        Where a stream may be of several processes, few steps may be the others'.
        """
        since = self._seen[identity(name, event)]
        is_own = _is_own(name, own_rank)
        if (
            event.event in FATAL
            and runs.goes_on(name, since, is_own=is_own)
            and not self._has_ended(event, since, own_rank)
        ):
            return True
        if _says_handled(event) and runs.outlive(since) and not self._has_ended(event, since, own_rank):
            return True
        if event.event in STALLS:
            return runs.outlive(since)
        after = runs.after(since)
        if event.event == STATED:
            return bool(after) and not self._has_ended(event, since, own_rank)
        if event.event == "traceback":
            own = [line for line in after if line.stream == name and line.is_stamped]
            many = len(own) >= STEPS_AFTER and (is_own or runs.lasts(since))
            return many and not self._has_ended(event, since, own_rank)
        return (event.event in OUTLIVED or event.operation == "daemon") and len(after) >= STEPS_AFTER

    def _is_of_request(self, name: str, event: LogEvent, requests: Requests, own_rank: int | None) -> bool:
        """Whether a server failed one request, and answered others after it; an end by a signal is another story."""
        since = self._seen[identity(name, event)]
        ended = self._has_ended(event, since, own_rank, by_signal=False)
        return is_of_request(event) and requests.go_on(name, since, ended=ended)

    def _has_ended(self, event: LogEvent, since: int, own_rank: int | None, *, by_signal: bool = True) -> bool:
        """Whether a launcher reports after it that its process failed; one that names no rank may be about it."""
        rank = own_rank if event.rank is None else event.rank
        return any(
            int(each.source) > since and each.rank in {rank, None}
            for each in self._exits
            if by_signal or not each.signal
        )

    @property
    def ended(self) -> bool:
        """Whether a launcher or the scheduler has reported an end."""
        return bool(self._ends)

    def ended_before(self, runs: StepRuns, own_rank: int | None) -> int:
        """Return the line of the newest end after which the job's steps went on: it was started again; 0 for none.

        Slurm's step that is cancelled soon after an end is the one in which it was: srun does so when a task has failed.
        """
        cancelled = max((int(event.source) for event in self if event.event == _STEP_CANCELLED), default=0)
        ends = ((int(event.source), name) for name, event in self.of_streams if event.event in ENDS)
        own = ((line, name if _is_own(name, own_rank) else None) for line, name in sorted(ends, reverse=True))
        return next(
            (
                line
                for line, stream in own
                if runs.begins_after(line, stream, self._ends) and not (line < cancelled and runs.go_on_shortly(line))
            ),
            0,
        )


def _says_handled(event: LogEvent) -> bool:
    """Whether the line of an error says that the program goes on: another process may report the steps."""
    return event.event in {"oom", "traceback"} and _HANDLED.search(event.text) is not None


def _is_own(name: str, own_rank: int | None) -> bool:
    """Whether the lines of a stream are all of one process: of the one that its name shows, or that the file is of."""
    return bool(name) or own_rank is not None
