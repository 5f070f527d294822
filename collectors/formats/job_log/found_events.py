"""The events that a log's lines report: repeats are folded, and what the job outlived is left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from collectors.formats.job_log.attempts import ENDS, FATAL, OUTLIVED
from collectors.formats.job_log.requests import Requests, is_of_request
from collectors.formats.job_log.shapes import identity
from collectors.formats.job_log.statements import STATED, listed
from collectors.formats.job_log.step_runs import STEPS_AFTER, StepRuns
from collectors.records import UNIT_STARTED, LogEvent

MAX_EVENTS = 20_000  # of one file; a 16,384-rank job whose every rank reports once fits
_READY, _OF_NETWORK = "fabric_ready", frozenset({"fabric_error", "fabric_warned", "nccl_warned", "nccl_error"})


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
        self.full = False

    def __iter__(self) -> Iterator[LogEvent]:
        return (event for _, event in self.of_streams)

    def add(self, name: str, event: LogEvent) -> bool:
        """Keep an event of a stream, and return whether it is a new one: an error that a loop prints is one event."""
        if (key := identity(name, event)) in self._seen:
            self._seen[key] = int(event.source)
            return False
        if len(self.of_streams) >= MAX_EVENTS:
            self.full = True
            return False
        self._seen[key] = int(event.source)
        self.of_streams.append((name, event))
        return True

    def stayed(self, runs: StepRuns, requests: Requests, own_rank: int | None) -> list[tuple[str, LogEvent]]:
        """Return the events that no list holds, and the job's steps or a server's answers did not outlive.

        ``own_rank``: which the file is of.
        """
        lists, again = listed(self), self._up_again()
        return [
            (name, event)
            for name, event in self.of_streams
            if int(event.source) not in lists | again
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
        """
        since = self._seen[identity(name, event)]
        if event.event in FATAL and runs.goes_on(name, since) and not self._has_ended(event, since, own_rank):
            return True
        after = runs.after(since)
        if event.event == STATED:
            return bool(after) and not self._has_ended(event, since, own_rank)
        if event.event == "traceback":
            own = [line for line in after if line.stream == name and line.is_stamped]
            return len(own) >= STEPS_AFTER and not self._has_ended(event, since, own_rank)
        return (event.event in OUTLIVED or event.operation == "daemon") and len(after) >= STEPS_AFTER

    def _is_of_request(self, name: str, event: LogEvent, requests: Requests, own_rank: int | None) -> bool:
        """Whether a server failed one request, and answered others after it."""
        since = self._seen[identity(name, event)]
        ended = self._has_ended(event, since, own_rank)
        return is_of_request(event) and requests.go_on(name, since, ended=ended)

    def _has_ended(self, event: LogEvent, since: int, own_rank: int | None) -> bool:
        """Whether a launcher reports after it that its process failed; one that names no rank may be about it."""
        rank = own_rank if event.rank is None else event.rank
        return any(
            each.event in {"exit", "torchrun_failure"} and int(each.source) > since and each.rank in {rank, None}
            for each in self
        )

    @property
    def failed(self) -> bool:
        """Whether something has ended a process so far."""
        return any(each.event in FATAL | ENDS for each in self)

    @property
    def ended(self) -> bool:
        """Whether a launcher or the scheduler has reported an end."""
        return any(each.event in ENDS for each in self)

    def ended_before(self, runs: StepRuns) -> int:
        """Return the line of the newest end after which the job's steps went on: it was started again; 0 for none."""
        ends = (int(each.source) for each in self if each.event in ENDS)
        return max((line for line in ends if runs.begins_after(line)), default=0)
