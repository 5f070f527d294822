"""What happened when, in lanes: the kernel's log, the recorder's oldest unfinished calls, the stacks, the job's log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from collectors.records import KernelEvent, LogEvent, ProcessState, StackDump
from service.reports.instants import seconds
from service.reports.waits import Wait

LANES = ("kernel log", "job log", "operations still open", "stacks and processes")
BINS = 220  # marks that fit side by side
BEFORE_SECONDS, AFTER_SECONDS = 3600.0, 7200.0  # shown around the onset where the records reach further
MOST_WAITS = 4000


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """One thing that happened, ``at`` in UTC seconds."""

    lane: str
    at: float
    text: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class TimelineMark:
    """What one bin of one lane holds. ``place`` in 0..1 from left to right."""

    lane: str
    place: float
    at: float
    count: int
    text: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """The marks, the span that is shown, and how many events lie outside it."""

    marks: tuple[TimelineMark, ...]
    events: tuple[TimelineEvent, ...]
    begin: float
    end: float
    outside: int
    pinned: float | None  # where the first symptom lies, 0..1

    def place(self, at: float) -> float:
        """Return an instant's place in 0..1."""
        return (at - self.begin) / max(1e-9, self.end - self.begin)


def timeline(verdict: Verdict, window: Window, waits: Iterable[Wait]) -> Timeline | None:
    """Return the lanes around the onset, None where no record has a time."""
    events = sorted(_events(window, waits), key=lambda event: (event.at, event.lane, event.source))
    pinned = seconds(verdict.first_symptom.at if verdict.first_symptom else None) or seconds(verdict.onset)
    if not events:
        return None
    shown = [event for event in events if pinned is None or -BEFORE_SECONDS <= event.at - pinned <= AFTER_SECONDS]
    instants = [event.at for event in shown] + ([pinned] if pinned is not None else [])
    margin = max(0.05, (max(instants) - min(instants)) * 0.02)
    begin, end = min(instants) - margin, max(instants) + margin
    empty = Timeline((), tuple(shown), begin, end, len(events) - len(shown), None)
    marks = tuple(_marks(shown, empty))
    return Timeline(marks, tuple(shown), begin, end, empty.outside, None if pinned is None else empty.place(pinned))


def _events(window: Window, waits: Iterable[Wait]) -> Iterator[TimelineEvent]:
    for wait in list(waits)[:MOST_WAITS]:
        if wait.since_ns > 0:
            which = f" {wait.sequence}" if wait.sequence is not None else f" by rank {wait.entered[0]}"
            yield TimelineEvent(
                LANES[2], wait.since_ns / 1e9, f"{wait.operation}{which} of {wait.group} begins, never ends"
            )
    for record in window.records:
        if record.at is None:
            continue
        if isinstance(record, KernelEvent):
            yield TimelineEvent(LANES[0], record.at, record.text or record.event, record.source)
        elif isinstance(record, LogEvent):
            yield TimelineEvent(LANES[1], record.at, record.text or record.message or record.event, record.source)
        elif isinstance(record, StackDump | ProcessState):
            of_rank = f" of rank {record.rank}" if record.rank is not None else ""
            yield TimelineEvent(
                LANES[3],
                record.at,
                f"{'stacks' if isinstance(record, StackDump) else 'state'}{of_rank} read",
                record.source,
            )


def _marks(events: list[TimelineEvent], span: Timeline) -> Iterator[TimelineMark]:
    bins: dict[tuple[str, int], list[TimelineEvent]] = {}
    for event in events:
        bins.setdefault((event.lane, int(span.place(event.at) * BINS)), []).append(event)
    for (lane, _), inside in sorted(bins.items()):
        yield TimelineMark(lane, span.place(inside[0].at), inside[0].at, len(inside), inside[0].text)
