"""Runs one collector by its own clock, in a thread of its own, whatever the collector does.

A run ends with its yield, with ``NothingToCollect``, with a failure, or past its bound. The next run comes in each case, and
no other collector is delayed. A run that never returns costs its own thread; ``check_limit`` reports it meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from collectors.agent.run_output import EntrySink, RunOutput, Stamp
from collectors.files.patience import BUSY_TIMES
from collectors.live import Collector, NothingToCollect, Request, Run
from collectors.live.sources.host import Host
from collectors.records import CollectorReport, Unread

REQUESTS_MOST = 16
COUNTS = ("runs", "nothing", "failures", "overran", "killed_parses", "records")  # of a CollectorReport
ERROR_CHARACTERS = 500
STAGGER_SECONDS = 5.0  # over which the first runs of the collectors are spread

log = logging.getLogger("faulthound.agent")


class LimitExceeded(Exception):
    """The run was still going at its bound and has been ended."""


@dataclass(slots=True)
class Outcome:
    """How one run ended."""

    name: str
    kind: str  # done nothing failed overran
    text: str = ""
    records: int = 0


@dataclass(slots=True)
class RunRequest:
    """A run that a command waits for; ``done`` is called by the collector's thread."""

    request: Request | None
    done: Callable[[Outcome], None]


@dataclass(slots=True)
class _ActiveRun:
    """The run under way."""

    output: RunOutput
    started_at: float  # time.monotonic()
    overran: bool = False

    def seconds(self) -> float:
        return time.monotonic() - self.started_at


@dataclass(slots=True, eq=False)
class Runner:
    """One collector's thread, its clock and its counts."""

    collector: Collector
    make: Callable[[Host], Run]
    host: Host
    stamp: Stamp
    sink: EntrySink
    every_seconds: float
    total: Counter[str] = field(default_factory=Counter)  # by the name in COUNTS, since the start
    seconds: float = 0.0  # of all runs
    error: str = ""  # of the newest run; empty: it succeeded
    _reported: Counter[str] = field(default_factory=Counter)
    _reported_seconds: float = 0.0
    _longest_seconds: float = 0.0
    _run: Run | None = None
    _active: _ActiveRun | None = None
    _requests: deque[RunRequest] = field(default_factory=deque)
    _faster: tuple[float, float] | None = None  # seconds, until when (time.monotonic())
    _logged: str = ""
    _stopped: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def start(self) -> None:
        """Start the thread. The first runs of the collectors are spread over some seconds, the same at every start."""
        share = zlib.crc32(self.collector.name.encode()) / 2**32
        first_at = time.monotonic() + share * min(self.every_seconds, STAGGER_SECONDS)
        threading.Thread(target=self._loop, args=(first_at,), name=self.collector.name, daemon=True).start()

    def stop(self) -> None:
        """Begin no further run; one that hangs is left behind."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def ask(self, request: RunRequest) -> bool:
        """Run at once; False where too many requests wait already."""
        with self._changed:
            if len(self._requests) >= REQUESTS_MOST:
                return False
            self._requests.append(request)
            self._changed.notify_all()
            return True

    def run_every(self, seconds: float, for_seconds: float) -> None:
        """Run at another rate for a while."""
        with self._changed:
            self._faster = seconds, time.monotonic() + for_seconds
            self._changed.notify_all()

    # The loop

    def _loop(self, first_at: float) -> None:
        due_at = first_at
        while True:
            with self._changed:
                while not (self._stopped or self._requests or due_at <= time.monotonic()):
                    planned_at, every = due_at, self._interval()
                    self._changed.wait(max(0.0, due_at - time.monotonic()))
                    if self._interval() < every:  # it was made faster meanwhile
                        due_at = min(planned_at, time.monotonic() + self._interval())
                if self._stopped:
                    return
                request = self._requests.popleft() if self._requests else None
            if request is None:
                self.run_once(None)
                # By the clock and not after the run; runs that a slow one missed are not made up for.
                due_at += max(1.0, (time.monotonic() - due_at) // self._interval() + 1) * self._interval()
            else:
                request.done(self.run_once(request.request))

    def _interval(self) -> float:
        if self._faster is not None:
            seconds, until = self._faster
            if time.monotonic() < until:
                return seconds
            self._faster = None
        return self.every_seconds

    # One run

    def run_once(self, request: Request | None) -> Outcome:
        """Run the collector once and count the outcome."""
        output = RunOutput(self.collector.name, self.stamp, self.sink, self.host, urgent=request is not None)
        active = _ActiveRun(output, time.monotonic())
        with self._changed:
            self._active = active
        kind, text = self._outcome(active, request)
        self._count(active, kind, text)
        if kind == "done" and output.unread:
            kind, text = "nothing" if len(output.unread) == output.records else "done", _reasons(output.unread)
        return Outcome(self.collector.name, kind, text, output.records - len(output.unread))

    def _outcome(self, active: _ActiveRun, request: Request | None) -> tuple[str, str]:
        try:
            try:
                self._collect(active, request)
            finally:
                active.output.hand_over()  # what it yielded before it failed is still true
        except NothingToCollect as nothing:
            return "nothing", _short(nothing)
        except LimitExceeded as overran:
            return "overran", _short(overran)
        except BaseException as error:  # noqa: BLE001 (MemoryError, SystemExit: a collector's failure stays its own)
            return "failed", f"{type(error).__name__}: {_short(error)}"
        return "done", ""

    def _collect(self, active: _ActiveRun, request: Request | None) -> None:
        if self._run is None:
            self._run = self.make(self.host)
        # A process of its own is bounded where it is waited for, and may be late on a busy node.
        limit_seconds = self.collector.limit_seconds * (BUSY_TIMES if self.collector.own_process else 1.0)
        for yielded in self._run(request) or ():
            active.output.take(yielded)
            if active.seconds() > limit_seconds:
                raise LimitExceeded(f"ended at its bound of {limit_seconds:g} s")

    def _count(self, active: _ActiveRun, kind: str, text: str) -> None:
        seconds = active.seconds()
        with self._changed:
            self._active = None
            late = kind == "overran" or seconds > self.collector.limit_seconds
            self.total["runs"] += 1
            self.total["nothing"] += kind == "nothing"
            self.total["failures"] += kind == "failed"
            self.total["overran"] += late and not active.overran
            self.total["killed_parses"] = self.host.apart.kills(self.collector.name)
            self.total["records"] += active.output.records
            self.seconds += seconds
            self._longest_seconds = max(self._longest_seconds, seconds)
            self.error = text
        self._log(kind, text)

    def _log(self, kind: str, text: str) -> None:
        """Log an outcome that differs from the one before."""
        line = f"{kind} {text}"
        if line == self._logged:
            return
        if kind in {"failed", "overran"}:
            log.warning("collector_%s name=%s reason=%r", kind, self.collector.name, text)
        elif self._logged.startswith(("failed", "overran")):
            log.info("collector_recovered name=%s outcome=%s", self.collector.name, kind)
        self._logged = line

    # Seen from outside

    def check_limit(self) -> None:
        """Count a run that is past its bound while it lasts, and save what it has yielded so far."""
        with self._changed:
            active = self._active
            if active is None or active.overran or active.seconds() <= self.collector.limit_seconds:
                return
            active.overran = True
            self.total["overran"] += 1
        self._log("overran", f"still going after its bound of {self.collector.limit_seconds:g} s")
        with contextlib.suppress(Exception):
            active.output.hand_over()

    def report(self) -> CollectorReport:
        """Return the counts since the last report."""
        with self._changed:
            report = self._since(self._reported, self._reported_seconds)
            self._reported, self._reported_seconds, self._longest_seconds = self.total.copy(), self.seconds, 0.0
            return report

    def since_start(self) -> CollectorReport:
        """Return the counts since the start; ``longest_seconds`` is since the last report."""
        with self._changed:
            return self._since(Counter(), 0.0)

    def _since(self, before: Counter[str], before_seconds: float) -> CollectorReport:
        counts = {name: self.total[name] - before[name] for name in COUNTS}
        error, longest_seconds = self.error, self._longest_seconds
        if self._active is not None and self._active.overran:
            seconds = self._active.seconds()
            longest_seconds = max(longest_seconds, seconds)
            error = f"still going after {seconds:.0f} s, its bound is {self.collector.limit_seconds:g} s"
            counts["overran"] = counts["overran"] or 1  # counted in an earlier report, and still true
        return CollectorReport(
            name=self.collector.name,
            every_seconds=self._interval(),
            seconds=round(self.seconds - before_seconds, 6),
            longest_seconds=round(longest_seconds, 6),
            error=error,
            **counts,
        )


def _reasons(unread: Sequence[Unread]) -> str:
    """Return what was not read and why, each reason once with its ranks, with their roles where there are several."""
    several = len({one.role for one in unread if one.rank is not None}) > 1
    ranks: dict[str, dict[str, list[int]]] = {}
    for one in unread:
        of = ranks.setdefault(one.reason, {})
        if one.rank is not None:
            of.setdefault((one.role or "") if several else "", []).append(one.rank)
    named = {
        reason: ", ".join(f"{role} rank {','.join(map(str, sorted(of[role])))}".strip() for role in sorted(of))
        for reason, of in ranks.items()
    }
    return "not read: " + "; ".join(f"{who}: {reason}" if who else reason for reason, who in named.items())


def _short(error: BaseException) -> str:
    try:
        return str(error)[:ERROR_CHARACTERS]
    except Exception:  # noqa: BLE001 (the exception of a foreign library may fail to print itself)
        return "an error without a readable message"
