"""The kernel's log as it grows: the events in it, from /dev/kmsg or journald, none of them twice.

A flood is bounded three ways, and each loss is reported: the kernel overwrites records that are not read in time, a run reads
a bounded number of records, and events beyond a bound are folded by their content.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from collectors.files.apart import ParsingFailed, ParsingLate
from collectors.live import Cursor, NothingToCollect, Readings, Request, Yielded, collector
from collectors.live.sources.host import Host
from collectors.live.sources.kernel_sources import Journal, Kmsg, Line, Source
from collectors.records import KernelEvent, Record, Unread, block

RECORDS_PER_RUN = 10_000  # 0.2 s of work where every line must be parsed; a buffer of 1 MiB holds about as many
EVENTS_PER_RUN = 100  # of a run, each on its own; the rest is folded
FOLDS_PER_RUN = 100  # different events among the folded ones
LOSS_REPORT_SECONDS = 60.0  # between reports of a flood that goes on; the counters show it at every run
METRICS = ("records_read_total", "records_overwritten_total", "events_total", "events_left_out_total")


class _Flood:
    """The events of one run: the first ones as they are, the others folded by kind and device."""

    def __init__(self) -> None:
        self.kept = 0
        self.left_out = 0
        self._folded: dict[tuple[object, ...], KernelEvent] = {}

    def take(self, event: KernelEvent) -> Iterator[KernelEvent]:
        self.kept += 1
        if self.kept <= EVENTS_PER_RUN:
            yield event
            return
        key = (event.event, event.code, event.pci, event.device, event.severity, event.link, event.pid)
        if (first := self._folded.get(key)) is not None:
            self._folded[key] = msgspec.structs.replace(first, repeats=first.repeats + event.repeats)
        elif len(self._folded) < FOLDS_PER_RUN:
            self._folded[key] = event
        else:
            self.left_out += 1

    def rest(self) -> Iterator[KernelEvent]:
        while self._folded:
            yield self._folded.pop(next(iter(self._folded)))


@collector(
    "kernel",
    gives="the kernel's log as it grows: Xid and SXid, GPUs lost, PCIe, NVLink and port errors, OOM kills, stuck tasks",
    every_seconds=2.0,
    limit_seconds=10.0,
)
class Kernel:
    """Follows the kernel's log from where the last run, or the previous agent, ended."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._boot_id = host.boot_id
        kept = host.cursor("kernel")
        known = isinstance(kept, dict) and kept.get("boot_id") == self._boot_id
        self._cursor: dict[str, Any] = dict(kept) if known else {"boot_id": self._boot_id}
        self._kept = dict(self._cursor)
        self._flood = _Flood()
        self._source: Source | None = None
        self._late: list[Line] = []  # read, and not parsed because the node was busy
        self._found = deque[KernelEvent | Unread]()  # parsed, and not yielded: a run that was cut left them
        self._state = b""  # of the parser: what it must remember from line to line
        self._waits = False  # for the stack of a hung task
        self._newest: int | str = 0  # position of the newest line read
        self._waited = False  # a whole interval for that stack
        self._expected: int | None = None  # number of the next record; a higher one means that some were lost
        self._seen_below = 0  # numbers that were read before the source was opened
        self._reported_until: float | None = None  # seconds since boot: another source gave the events up to here
        self._emptied_at: list[float] = []  # seconds since boot, of the two newest runs that left nothing unread
        self._totals = dict.fromkeys(METRICS, 0)
        self._unreported_losses = 0
        self._loss_reported_at: float | None = None

    def __call__(self, _asked: Request | None) -> Iterator[Yielded]:
        """Yield the new events, the losses, and the position reached."""
        source = self._source or self._open()
        yield from self._flood.rest()  # of a run that failed, or was cut at its bound
        flood = self._flood = _Flood()
        try:
            if not self._found:
                self._found.extend(self._events(source))
        except OSError:
            self._close(source)
            raise
        while self._found:
            event = self._found.popleft()
            yield from flood.take(event) if isinstance(event, KernelEvent) else [event]
        yield from flood.rest()
        self._totals["events_total"] += flood.kept
        self._totals["events_left_out_total"] += flood.left_out
        yield from self._losses(source, flood)
        if self._cursor != self._kept:
            self._kept = dict(self._cursor)
            yield Cursor(self._kept)
        yield Readings("kernel", ("",), METRICS, (tuple(self._totals.values()),), "<i8")
        if source.ended:
            self._close(source)
            raise RuntimeError(f"{source.name}: {source.ended}")

    def close(self) -> None:
        """Close the source."""
        if self._source is not None:
            self._close(self._source)

    def _open(self) -> Source:
        """Open /dev/kmsg, or follow journald where that is not allowed, behind the cursor."""
        position, name = self._cursor.get("position"), self._cursor.get("source")
        kmsg = self._host.roots.dev / "kmsg"
        source: Source
        self._expected, self._seen_below, self._late = None, 0, []
        try:
            source = Kmsg(kmsg)
            if name == source.name and isinstance(position, int):
                self._expected = self._seen_below = position + 1
        except OSError as error:
            source = self._journal(position if name == Journal.name else None, f"{kmsg}: {error.strerror}")
        until = self._cursor.get("event_monotonic_at")
        self._reported_until = until if name != source.name and isinstance(until, float) else None
        self._state, self._waits = b"", False
        self._source = source
        return source

    def _journal(self, after: Any, refused: str) -> Journal:
        files = self._host.roots.files
        folder = self._host.option("kernel", "journal_directory", "")
        if not folder and files != Path("/"):
            folder = str(files / "var/log/journal")
        program = shutil.which(self._host.option("kernel", "journalctl", "journalctl"))
        if program is None or (folder and not Path(folder).is_dir()):
            missing = f"no journal in {folder}" if program else "no journalctl"
            raise NothingToCollect(f"{refused}, and {missing}: give the agent CAP_SYSLOG, or the group systemd-journal")
        return Journal(program, (f"--directory={folder}",) if folder else (), after if isinstance(after, str) else None)

    def _close(self, source: Source) -> None:
        source.close()
        self._source = None

    def _events(self, source: Source) -> Iterator[KernelEvent | Unread]:
        """Read on. The position never passes an event that still waits for its stack: a restart must not lose it."""
        lines, self._late = [*self._late, *islice(self._unseen(source), RECORDS_PER_RUN - len(self._late))], []
        whole = len(lines) < RECORDS_PER_RUN
        end = whole and self._waits and self._waited
        if lines or end:
            yield from self._parsed(source, lines, end=end)
        if whole and not self._late:
            self._waited = self._waits
            self._emptied_at = [*self._emptied_at[-1:], self._host.clock.monotonic()]

    def _parsed(self, source: Source, lines: list[Line], *, end: bool) -> Iterator[KernelEvent | Unread]:
        """Yield the events of these lines; lines that break the parser are passed over."""
        positions = [self._newest, *(position for _, position, _ in lines)]
        texts = [(number, line) for number, _, line in lines]
        try:
            answer = self._host.apart.parse("kernel", texts, self._state, source.name, self._host.node, end)
        except ParsingLate:
            self._late = lines  # nothing is wrong with these lines: the next run parses them
            return
        except ParsingFailed as error:
            answer = [], len(lines), b"", False
            yield Unread(source=source.name, reason=f"{len(lines):,} lines were not parsed: {error}", outcome="limit")
        found, settled, self._state, self._waits = answer
        self._newest = positions[-1]
        for _, data in found:
            yield from self._new(block.decode(data))
        if settled >= 0:
            self._cursor |= {"source": source.name, "position": positions[min(settled + 1, len(lines))]}

    def _unseen(self, source: Source) -> Iterator[Line]:
        """Yield the lines not read before, and count the records that were overwritten unread."""
        for number, position, line in source.lines():
            if number < self._seen_below:
                continue
            if self._expected is not None:
                lost = max(number - self._expected, 0)
                self._unreported_losses += lost
                self._totals["records_overwritten_total"] += lost
            self._expected = number + 1
            self._totals["records_read_total"] += 1
            yield number, position, line

    def _new(self, events: list[Record]) -> Iterator[KernelEvent]:
        for event in events:
            if not isinstance(event, KernelEvent):
                continue
            if self._reported_until is not None and (event.monotonic_at or 0.0) <= self._reported_until:
                continue
            if event.monotonic_at is not None:
                self._cursor["event_monotonic_at"] = event.monotonic_at
            yield msgspec.structs.replace(event, boot_id=self._boot_id, at=self._instant(event))

    def _instant(self, event: KernelEvent) -> float | None:
        """Return the UTC seconds of an event that has only the kernel's own clock.

        That clock is never corrected and drifts by seconds in a month. A line that was not there two runs ago cannot be
        older, which bounds the error where the log is followed; ``monotonic_at`` stays the kernel's value.
        """
        if event.at is not None or event.monotonic_at is None:
            return event.at
        monotonic = self._host.clock.monotonic()
        age = max(monotonic - event.monotonic_at, 0.0)
        if len(self._emptied_at) == 2:
            age = min(age, monotonic - self._emptied_at[0])
        return self._host.clock.now() - age

    def _losses(self, source: Source, flood: _Flood) -> Iterator[Record]:
        if flood.left_out:
            bound = f"(bound {EVENTS_PER_RUN}, folded)"
            reason = f"{flood.left_out:,} of {flood.kept:,} events of one run were left out {bound}"
            yield Unread(source=source.name, reason=reason, outcome="limit")
        now = self._host.clock.monotonic()
        if self._unreported_losses and (
            self._loss_reported_at is None or now - self._loss_reported_at >= LOSS_REPORT_SECONDS
        ):
            lost, self._unreported_losses, self._loss_reported_at = self._unreported_losses, 0, now
            reason = (
                f"{lost:,} records were overwritten before they were read: raise log_buf_len, or quieten what floods"
            )
            yield Unread(source=source.name, reason=reason, outcome="limit")
