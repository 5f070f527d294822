"""Runs one collector by its own clock, in a thread of its own, whatever it does.

A run ends with what it yielded, with ``NothingToCollect``, with a failure, or past its bound. Whichever: the next one
comes, and no other collector notices. A run that never returns costs its own thread; ``look`` tells of it meanwhile.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from collectors.agent.gathering import Gathering, Keeps, Stamp
from collectors.live import Asked, Collector, NothingToCollect, Run
from collectors.live.sources.host import Host
from collectors.records import CollectorReport, Unread

QUESTIONS_MOST = 16
ERROR_CHARACTERS = 500
STAGGER_SECONDS = 5.0  # over which the first runs of the collectors are spread

log = logging.getLogger("faulthound.agent")


class Overran(Exception):
    """The run was still going at its bound and has been ended."""


@dataclass(slots=True)
class Outcome:
    """What became of one run."""

    name: str
    kind: str  # done nothing failed overran
    text: str = ""
    records: int = 0


@dataclass(slots=True)
class Question:
    """A run that somebody waits for; ``done`` is called by the collector's thread."""

    asked: Asked | None
    done: Callable[[Outcome], None]


@dataclass(slots=True)
class Tally:
    """A collector's account since its start."""

    runs: int = 0
    nothing: int = 0
    failures: int = 0
    overran: int = 0
    records: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class _Going:
    """The run at hand."""

    gathering: Gathering
    started_at: float  # time.monotonic()
    overran: bool = False


@dataclass(slots=True, eq=False)
class Runner:
    """One collector's thread, its clock and its account."""

    collector: Collector
    make: Callable[[Host], Run]
    host: Host
    stamp: Stamp
    spool: Keeps
    every_seconds: float
    total: Tally = field(default_factory=Tally)
    error: str = ""  # of the newest run; empty: it went well
    _reported: Tally = field(default_factory=Tally)
    _longest_seconds: float = 0.0
    _run: Run | None = None
    _going: _Going | None = None
    _questions: deque[Question] = field(default_factory=deque)
    _faster: tuple[float, float] | None = None  # seconds, until when (time.monotonic())
    _said: str = ""
    _stopped: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def start(self) -> None:
        """Begin to run. The first runs of the collectors are spread over some seconds, the same at every start."""
        share = zlib.crc32(self.collector.name.encode()) / 2**32
        first_at = time.monotonic() + share * min(self.every_seconds, STAGGER_SECONDS)
        threading.Thread(target=self._loop, args=(first_at,), name=self.collector.name, daemon=True).start()

    def stop(self) -> None:
        """Begin no further run; one that hangs is left behind."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def ask(self, question: Question) -> bool:
        """Run at once, for somebody who waits; False where too many wait already."""
        with self._changed:
            if len(self._questions) >= QUESTIONS_MOST:
                return False
            self._questions.append(question)
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
                while not (self._stopped or self._questions or due_at <= time.monotonic()):
                    began_at, every = due_at, self._interval()
                    self._changed.wait(max(0.0, due_at - time.monotonic()))
                    if self._interval() < every:  # it was made faster meanwhile
                        due_at = min(began_at, time.monotonic() + self._interval())
                if self._stopped:
                    return
                question = self._questions.popleft() if self._questions else None
            if question is None:
                self.run_once(None)
                # By the clock and not after the run; what a slow run missed is not made up for.
                due_at += max(1.0, (time.monotonic() - due_at) // self._interval() + 1) * self._interval()
            else:
                question.done(self.run_once(question.asked))

    def _interval(self) -> float:
        if self._faster is not None:
            seconds, until = self._faster
            if time.monotonic() < until:
                return seconds
            self._faster = None
        return self.every_seconds

    # One run

    def run_once(self, asked: Asked | None) -> Outcome:
        """Run the collector once and account for it."""
        gathering = Gathering(self.collector.name, self.stamp, self.spool, self.host, asked=asked is not None)
        going = _Going(gathering, time.monotonic())
        with self._changed:
            self._going = going
        kind, text = self._outcome(going, asked)
        self._account(going, kind, text)
        unread = gathering.unread
        if kind == "done" and unread:
            kind, text = "nothing" if len(unread) == gathering.records else "done", _told(unread)
        return Outcome(self.collector.name, kind, text, gathering.records - len(unread))

    def _outcome(self, going: _Going, asked: Asked | None) -> tuple[str, str]:
        try:
            try:
                self._gather(going, asked)
            finally:
                going.gathering.hand_over()  # what it yielded before it failed is as true as ever
        except NothingToCollect as nothing:
            return "nothing", _short(nothing)
        except Overran as overran:
            return "overran", _short(overran)
        except BaseException as error:  # noqa: BLE001 (MemoryError, SystemExit: whatever a collector does, it does to itself)
            return "failed", f"{type(error).__name__}: {_short(error)}"
        return "done", ""

    def _gather(self, going: _Going, asked: Asked | None) -> None:
        if self._run is None:
            self._run = self.make(self.host)
        limit_seconds = self.collector.limit_seconds
        for yielded in self._run(asked) or ():
            going.gathering.take(yielded)
            if time.monotonic() - going.started_at > limit_seconds:
                raise Overran(f"ended at its bound of {limit_seconds:g} s")

    def _account(self, going: _Going, kind: str, text: str) -> None:
        seconds = time.monotonic() - going.started_at
        with self._changed:
            self._going = None
            self.total.runs += 1
            self.total.nothing += kind == "nothing"
            self.total.failures += kind == "failed"
            late = kind == "overran" or seconds > self.collector.limit_seconds
            self.total.overran += late and not going.overran
            self.total.records += going.gathering.records
            self.total.seconds += seconds
            self._longest_seconds = max(self._longest_seconds, seconds)
            self.error = text
        self._say(kind, text)

    def _say(self, kind: str, text: str) -> None:
        """Log an outcome where it is another than the one before."""
        said = f"{kind} {text}"
        if said == self._said:
            return
        if kind in {"failed", "overran"}:
            log.warning("collector_%s name=%s reason=%r", kind, self.collector.name, text)
        elif self._said.startswith(("failed", "overran")):
            log.info("collector_recovered name=%s outcome=%s", self.collector.name, kind)
        self._said = said

    # Seen from outside

    def look(self) -> None:
        """Count a run that is past its bound while it lasts, and save what it has yielded so far."""
        with self._changed:
            going = self._going
            if going is None or going.overran:
                return
            seconds = time.monotonic() - going.started_at
            if seconds <= self.collector.limit_seconds:
                return
            going.overran = True
            self.total.overran += 1
        self._say("overran", f"still going after its bound of {self.collector.limit_seconds:g} s")
        with contextlib.suppress(Exception):
            going.gathering.hand_over()

    def report(self) -> CollectorReport:
        """Return the account since the last report."""
        with self._changed:
            report = self._since(self._reported, self._longest_seconds)
            self._reported, self._longest_seconds = replace(self.total), 0.0
            return report

    def since_start(self) -> CollectorReport:
        """Return the account since the start; ``longest_seconds`` is since the last report."""
        with self._changed:
            return self._since(Tally(), self._longest_seconds)

    def _since(self, before: Tally, longest_seconds: float) -> CollectorReport:
        now, error, lasting = self.total, self.error, 0
        if self._going is not None and self._going.overran:
            running_seconds = time.monotonic() - self._going.started_at
            longest_seconds = max(longest_seconds, running_seconds)
            error = f"still going after {running_seconds:.0f} s, its bound is {self.collector.limit_seconds:g} s"
            lasting = int(now.overran == before.overran)  # counted in an earlier report, and still true
        return CollectorReport(
            name=self.collector.name,
            every_seconds=self._interval(),
            runs=now.runs - before.runs,
            nothing=now.nothing - before.nothing,
            failures=now.failures - before.failures,
            overran=now.overran - before.overran + lasting,
            records=now.records - before.records,
            seconds=round(now.seconds - before.seconds, 6),
            longest_seconds=round(longest_seconds, 6),
            error=error,
        )


def _told(unread: Sequence[Unread]) -> str:
    """Say what was not read and why, each reason once with the ranks that have it."""
    ranks: dict[str, list[int]] = {}
    for one in unread:
        ranks.setdefault(one.reason, []).extend([] if one.rank is None else [one.rank])
    told = (f"rank {','.join(map(str, sorted(who)))}: {reason}" if who else reason for reason, who in ranks.items())
    return "not read: " + "; ".join(told)


def _short(error: BaseException) -> str:
    try:
        return str(error)[:ERROR_CHARACTERS]
    except Exception:  # noqa: BLE001 (an exception of a stranger's library whose own text fails)
        return "an error that cannot say what it is"
