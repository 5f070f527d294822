"""The agent's own process parses nothing that a job or another user wrote: it sends the bytes to a process apart.

A parser that hangs is killed at its bound, one that fills the memory fails there, and both cost the one call. On a busy machine
the bound is one of processor time (``collectors.files.patience``), and then comes ``ParsingLate``: the same bytes may be tried
again. Calls follow each other in one process, started by the first and ended when there is none for a minute; while it is busy
for longer than ``WAITING_SECONDS`` another is started beside it, and ended afterwards. A source whose parser was killed twice in
a row is not parsed for 30 s, then for twice as long, up to ten minutes: the calls meanwhile fail at once, with that reason.

    agent → child   [seconds, parser, arguments]           the parser is a module of ``collectors.files.parsers``
    child → agent   ["done", result] or ["failed", why]    each MessagePack behind its length

Nothing that a child sends is unpickled, and no longer answer than ``ANSWER_BYTES`` is taken.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import msgspec

from collectors.files.framing import ANSWER_BYTES, LENGTH, framed
from collectors.files.patience import BUSY_TIMES, RUNS_OR_READS, Busy, Hung, Patience
from faulthound import child_command, child_environment

PARSING_SECONDS = 10.0  # of one call, the wait for a process included
WAITING_SECONDS = 2.0  # a process takes 20 MB, and on a busy node a second to start
FIRST_PAUSE_SECONDS, MOST_PAUSE_SECONDS = 30.0, 600.0
MOST_SOURCES = 1_024
MOST_PROCESSES = 4
DYING_SECONDS = 1.0
READ_BYTES = 1 << 18


class ParsingFailed(Exception):
    """The bytes were not parsed; the message says why, in lower case."""


class ParsingLate(ParsingFailed):
    """The machine was too busy; nothing is known against the bytes or their source."""


class _Left(Exception):
    """The process had ended by itself before it got the question, as one does that had nothing to do or had grown."""


@dataclass(slots=True)
class _Killer:
    """A source whose parser was killed the last time, or several times in a row."""

    kills: int = 0
    paused_until: float = 0.0  # time.monotonic()

    def killed(self, now: float) -> None:
        """Note one more; the first may be a busy node's."""
        self.kills += 1
        pause = FIRST_PAUSE_SECONDS * 2.0 ** min(self.kills - 2, 30)
        self.paused_until = now + (0.0 if self.kills == 1 else min(pause, MOST_PAUSE_SECONDS))

    def refuse(self) -> None:
        """Raise while the source is not to be parsed."""
        if time.monotonic() < self.paused_until:
            raise ParsingFailed(f"its parser was killed {self.kills} times in a row: it is tried again within minutes")


class Apart:
    """The processes that parse; safe for threads."""

    def __init__(self) -> None:
        self._kills = Counter[str]()  # by parser
        self._killers: dict[tuple[str, str], _Killer] = {}  # by parser and source
        self._idle: list[_Child] = []
        self._busy: set[_Child] = set()
        self._running = 0
        self._changed = threading.Condition()

    def parse(self, parser: str, *arguments: Any, seconds: float = PARSING_SECONDS, source: str = "") -> Any:
        """Return what a parser gives for its arguments; raise ``ParsingFailed``, or OSError where no process can be started.

        ``source``: where the bytes are from, to be left alone for a while after it has hung its parser again and again.
        Without one every call is tried.
        """
        key = parser, source
        if source and (killer := self._killers.get(key)) is not None:
            killer.refuse()
        deadline = time.monotonic() + seconds
        question = framed([seconds, parser, arguments])
        while True:
            child = self._take(deadline, seconds)
            whole = False
            try:
                kind, result = child.ask(question, deadline, seconds)
                whole = True
            except _Left:
                continue
            except ParsingFailed as error:
                self._note_kill(key, counts=not isinstance(error, ParsingLate))
                raise
            finally:
                self._give(child, whole=whole)
            self._killers.pop(key, None)
            if kind == "done":
                return result
            raise ParsingFailed(str(result))

    def kills(self, collector: str) -> int:
        """Return how many calls of a collector's parsers have cost a process."""
        with self._changed:
            return sum(count for parser, count in self._kills.items() if parser.partition("_")[0] == collector)

    def _note_kill(self, key: tuple[str, str], *, counts: bool) -> None:
        with self._changed:
            self._kills[key[0]] += 1
            if not counts:
                return
            self._killers.setdefault(key, _Killer()).killed(time.monotonic())
            if len(self._killers) > MOST_SOURCES:
                del self._killers[next(iter(self._killers))]

    def close(self) -> None:
        """End the processes; a call under way fails."""
        with self._changed:
            children, busy, self._idle = self._idle, tuple(self._busy), []
            self._running -= len(children)
        for child in busy:
            child.kill()
        for child in children:
            child.end()

    def __del__(self) -> None:
        """End the processes with their owner."""
        self.close()

    def _take(self, deadline: float, seconds: float) -> _Child:
        with self._changed:
            began_at = time.monotonic()
            while not self._idle:
                most = 1 if time.monotonic() < began_at + WAITING_SECONDS else MOST_PROCESSES
                if self._running < most:
                    self._running += 1
                    break
                until = deadline if most > 1 else min(deadline, began_at + WAITING_SECONDS)
                if not self._changed.wait(max(0.0, until - time.monotonic())) and time.monotonic() >= deadline:
                    raise ParsingLate(f"the processes that parse were busy for {seconds:g} s")
            child = self._idle.pop() if self._idle else None
        try:
            child = child or _Child()
        except BaseException:
            self._give(None, whole=False)
            raise
        with self._changed:
            self._busy.add(child)
        return child

    def _give(self, child: _Child | None, *, whole: bool) -> None:
        with self._changed:
            self._busy -= {child} if child else set()
            kept = whole and child is not None and not self._idle
            if kept and child is not None:
                self._idle.append(child)
            else:
                self._running -= 1
            self._changed.notify()
        if child is not None and not kept:
            child.end()


class _Child:
    """One process and its pipes."""

    def __init__(self) -> None:
        command, environment = child_command("collectors.files.parsers"), child_environment()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd="/"
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)

    def ask(self, question: bytes, deadline: float, seconds: float) -> tuple[str, Any]:
        """Send one question and return its answer."""
        try:
            return self._ask(question, Patience(self._process.pid, deadline, seconds, RUNS_OR_READS))
        except Hung as hung:
            why = f"it was not parsed within {seconds:g} s: the process that parsed it was killed"
            raise ParsingFailed(why) from hung
        except Busy as busy:
            raise ParsingLate(f"it was not parsed within {BUSY_TIMES * seconds:g} s: {busy}") from busy

    def _ask(self, question: bytes, patience: Patience) -> tuple[str, Any]:
        left = memoryview(question)
        while left:
            patience.wait(self._in, select.POLLOUT)
            try:
                left = left[os.write(self._in, left) :]
            except BrokenPipeError:
                break  # its end shows below
        answer = bytearray()
        while (length := _announced(answer)) is None or len(answer) < LENGTH.size + length:
            patience.wait(self._out, select.POLLIN)
            data = os.read(self._out, READ_BYTES)
            if not data:
                self._note_end()
            answer += data
        return msgspec.msgpack.decode(memoryview(answer)[LENGTH.size :], type=tuple[str, Any])

    def _note_end(self) -> None:
        try:
            code = self._process.wait(DYING_SECONDS)
        except subprocess.TimeoutExpired:
            code = 1
        if code == 0:
            raise _Left
        how = f"exit code {code}" if code > 0 else f"signal {-code}"
        raise ParsingFailed(f"the process that parsed it ended with {how}")

    def kill(self) -> None:
        """End the process; who waits for its answer sees its end."""
        self._process.kill()

    def end(self) -> None:
        """Kill the process, and close its pipes."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(DYING_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()


def _announced(answer: bytearray) -> int | None:
    if len(answer) < LENGTH.size:
        return None
    length: int = LENGTH.unpack_from(answer)[0]
    if length > ANSWER_BYTES:
        raise ParsingFailed(f"its parser announces {length:,} bytes, more than {ANSWER_BYTES:,}")
    return length
