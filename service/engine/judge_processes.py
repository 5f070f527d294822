"""Judgements in forked children: one that crashes, uses too much memory or does not end costs an analyzer, not the engine.

    asked ──fork──▶ running ──▶ ended: Judged
      ▲                └── died, or past its deadline: again without the analyzer that ran
      └────────────────────┘   (after that without all that had not ended; at last a verdict that states the failure)

A child is a copy of the engine and so has the records: nothing is sent to it. It never uses the inherited connections to
the database, and exits without running any code of its parent.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from analyzers.diagnosis import every_analyzer
from analyzers.incidents.judgement import failed_analyzers, give_up, left_out
from analyzers.incidents.messages import Judge, Judged
from analyzers.knowledge import Knowledge
from collectors.files.sandbox import how_ended
from service.engine import judge_child
from service.engine.judge_child import HEADER, RUNNING

MOST_RUNNING = 2
MOST_TRIES = 4
THOUSAND_RECORDS_SECONDS = 0.3  # several times what they take: the bound is for what does not end, not for large jobs
PIPE_BYTES = 1 << 20

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JudgeFailure:
    """An analyzer that is missing from a judgement, or ("") a judgement that failed."""

    incident: str
    analyzer: str
    why: str


@dataclass(slots=True)
class _Asked:
    judge: Judge
    tries: int = 0
    began_at: float = 0.0  # the first try, for the metrics


@dataclass(slots=True)
class _Child:
    asked: _Asked
    pid: int
    pipe: int
    deadline: float
    buffer: bytearray = field(default_factory=bytearray)
    running: str = ""  # the analyzer that runs, or ran last
    judged: Judged | None = None
    late: bool = False

    def take(self, data: bytes) -> None:
        """Read the child's output; only whole messages count."""
        self.buffer += data
        at = 0
        while len(self.buffer) >= at + HEADER.size:
            kind, length = HEADER.unpack_from(self.buffer, at)
            end = at + HEADER.size + length
            if len(self.buffer) < end:
                break
            body = bytes(memoryview(self.buffer)[at + HEADER.size : end])
            if kind == RUNNING:
                self.running = body.decode()
            else:
                self.judged = msgspec.msgpack.decode(body, type=Judged)
            at = end
        del self.buffer[:at]


class JudgeProcesses:
    """The judgements that run and wait. Only the process's one thread calls this, because it forks."""

    def __init__(
        self, knowledge: Knowledge, seconds: float, most_bytes: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.count = 0
        self.seconds_total = 0.0
        self._knowledge, self._seconds, self._most_bytes, self._clock = knowledge, seconds, most_bytes, clock
        self._waiting: dict[str, _Asked] = {}  # of an incident the newest
        self._children: list[_Child] = []
        every_analyzer()  # imported here, and not in every child

    def ask(self, judge: Judge) -> None:
        """Judge this as soon as there is room; it replaces a judgement of the same incident that still waits."""
        self._waiting[judge.incident] = _Asked(judge, began_at=self._clock())
        self._fill()

    def forget(self, incident: str) -> None:
        """Judge a closed incident no more; a running judgement ends by itself."""
        self._waiting.pop(incident, None)

    @property
    def pipes(self) -> list[int]:
        """Return the file descriptors to wait on: each is readable once its child has written, or has ended."""
        return [child.pipe for child in self._children]

    def turn(self) -> Iterator[Judged | JudgeFailure]:
        """Yield what has ended or failed since the last call, without waiting."""
        for child in list(self._children):
            ended = self._read(child)
            if not ended and self._clock() >= child.deadline:
                child.late = True
                os.kill(child.pid, signal.SIGKILL)
                ended = True
            if ended:
                yield from self._bury(child)
        self._fill()

    def _allowed(self, judge: Judge) -> float:
        """Return how long a judgement may take: a job of 16,384 ranks has 180,000 records, one of 64 some hundred."""
        return self._seconds + len(judge.records) // 1_000 * THOUSAND_RECORDS_SECONDS

    def close(self) -> None:
        """End all children and forget what waits: the next engine asks again."""
        self._waiting.clear()
        for child in self._children:
            os.kill(child.pid, signal.SIGKILL)
            os.close(child.pipe)
            os.waitpid(child.pid, 0)
        self._children.clear()

    def _read(self, child: _Child) -> bool:
        """Read the pipe; return whether the child has closed its end."""
        while True:
            try:
                data = os.read(child.pipe, PIPE_BYTES)
            except BlockingIOError:
                return False
            if not data:
                return True
            child.take(data)

    def _bury(self, child: _Child) -> Iterator[Judged | JudgeFailure]:
        self._read(child)  # what it wrote before it was ended
        os.close(child.pipe)
        _pid, status = os.waitpid(child.pid, 0)
        self._children.remove(child)
        if child.judged is not None:
            self.count += 1
            self.seconds_total += self._clock() - child.asked.began_at
            yield from (JudgeFailure(child.judged.incident, name, why) for name, why in failed_analyzers(child.judged))
            yield child.judged
            return
        late = f"it had not ended after {self._allowed(child.asked.judge):g} s"
        why = late if child.late else f"its process ended with {how_ended(status)}"
        yield from self._again(child, why)

    def _again(self, child: _Child, why: str) -> Iterator[Judged | JudgeFailure]:
        """Judge once more without the analyzer that ran; if that is not enough, without all that had not ended."""
        judge, tries = child.asked.judge, child.asked.tries + 1
        without = left_out(judge.cut.unfinished, child.running, everything=tries > 1 and child.late)
        _log.error("judgement_failed incident=%s analyzer=%s why=%s", judge.incident, child.running or "-", why)
        yield JudgeFailure(judge.incident, child.running, why)
        if tries >= MOST_TRIES or without == judge.cut.unfinished:
            yield JudgeFailure(judge.incident, "", f"given up after {tries} tries: {why}")
            yield give_up(judge, self._knowledge, why)
            return
        cut = replace(judge.cut, unfinished=without)
        asked = _Asked(replace(judge, cut=cut), tries, child.asked.began_at)
        self._waiting.setdefault(judge.incident, asked)

    def _fill(self) -> None:
        busy = {child.asked.judge.incident for child in self._children}
        for incident in [name for name in self._waiting if name not in busy]:
            if len(self._children) >= MOST_RUNNING:
                return
            self._start(self._waiting.pop(incident))

    def _start(self, asked: _Asked) -> None:
        reading, writing = os.pipe2(os.O_CLOEXEC)
        parent = os.getpid()
        pid = os.fork()
        if not pid:
            os.close(reading)
            judge_child.judge_and_exit(asked.judge, self._knowledge, writing, self._most_bytes, parent)
        os.close(writing)
        os.set_blocking(reading, False)
        with contextlib.suppress(OSError):  # then a whole verdict fits, even if the engine reads it late
            fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._children.append(_Child(asked, pid, reading, self._clock() + self._allowed(asked.judge)))
