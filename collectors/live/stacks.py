"""The stacks of every rank: py-spy on its process and on those below it, without a pause unless a command asks for one.

A dump costs some hundredths of a CPU second and pauses nothing. Ordinary runs dump each rank once a minute, one after the
other, and its children every ten minutes. The processor time of py-spy is counted, and no dump begins before its share of a
core has accumulated. A command dumps all of them, twice.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from collectors.files import programs
from collectors.files.apart import Apart, ParsingFailed
from collectors.files.process_stat import Stat
from collectors.live import NothingToCollect, Request, Yielded, collector
from collectors.live.sources.host import Host
from collectors.live.sources.proc_stat import callable_by_number, stat_of
from collectors.live.sources.ranks import TrainingProcess
from collectors.live.sources.socket_waits import MOST_THREADS, SocketLook
from collectors.live.sources.stopped_beside import stopped_beside
from collectors.records import Frame, Record, SocketWait, StackDump, Thread, Unread, block

RANK_EVERY_SECONDS = 60.0
CHILD_EVERY_SECONDS = 600.0
SHARE_OF_A_CORE = 0.003
SAVED_SECONDS = 0.2  # of CPU time that may accumulate
DUMP_SECONDS = 5.0  # of one process
NATIVE_SECONDS = 20.0  # --native reads the symbols of all its libraries
ANSWER_SECONDS = 45.0  # of all processes together; those not dumped by then are reported
BETWEEN_SECONDS = 3.0  # the two dumps of an answer
MOST_AT_ONCE = 4
MOST_PROCESSES_A_RANK = 64
MOST_PROCESSES = 1_024  # of one answer
MOST_FRAMES = 40  # of a process that a rank waits for over a socket
MOST_STUCK = 4
"""py-spy processes that do not end when killed: the process that they read is stuck in the kernel, and they with it."""
UNASKED = threading.Lock()
"""Held while py-spy runs unasked: one process of it at a time, which takes 12 MB, of this collector or of ``profile``."""
_REFUSED = ("permission denied", "operation not permitted", "elevated permissions")


def program() -> str | None:
    """Return py-spy's path: beside this interpreter, where an extra puts it, or on PATH."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")


@dataclass(frozen=True, slots=True)
class _Target:
    """A process to dump; ``parent_pid`` None: the rank's own."""

    owner: TrainingProcess
    pid: int
    start_ticks: int
    parent_pid: int | None = None


@dataclass(frozen=True, slots=True)
class _Dump:
    """The output of py-spy, or why there is none."""

    target: _Target
    at: float
    output: bytes = b""
    problem: str = ""
    outcome: Literal["refused", "limit", "empty"] = "empty"
    cpu_seconds: float = 0.0


@collector(
    "stacks",
    gives="where each thread of each rank is, in Python and, on request, in C",
    every_seconds=2.0,
    limit_seconds=60.0,
    answers=("stacks",),
)
class Stacks:
    """Dumps one process after the other, and all of them on request."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._boot_id = host.boot_id  # marks a live dump: one from a file has none
        self._program: str = host.option("stacks", "program", "") or program() or ""
        self._share = host.option("stacks", "share_of_a_core", SHARE_OF_A_CORE)
        self._dumped_at: dict[tuple[int, int], float] = {}  # (pid, start) → monotonic instant
        self._earned_at: float | None = None
        self._earned_seconds = 0.0
        self._stuck: list[subprocess.Popen[bytes]] = []

    def __call__(self, request: Request | None) -> Iterable[Yielded]:
        """Yield the stacks that are due, or all of them on request."""
        if not self._program:
            raise NothingToCollect("py-spy is not installed: pip install py-spy, or set the option `program`")
        targets = self._targets()
        if not targets:
            raise NothingToCollect("no training process runs here")
        self._stuck = [one for one in self._stuck if one.poll() is None]
        if len(self._stuck) >= MOST_STUCK:
            reason = f"{MOST_STUCK} py-spy processes hang in the kernel: a process that they read is stuck there"
            raise NothingToCollect(reason)
        yield from self._ordinary(targets) if request is None else self._answer(request, targets)

    def _targets(self) -> list[_Target]:
        """Return the ranks' processes first, then those below them, a bounded number of each."""
        proc = self._host.roots.proc
        ranks = [one for one in self._host.training() if callable_by_number(proc, one.pid)]
        targets = [_Target(one, one.pid, one.start_ticks) for one in ranks]
        for owner in ranks:
            below = [stat for stat in self._host.process_table.descendants(owner.pid) if not stat.ended][
                : MOST_PROCESSES_A_RANK - 1
            ]
            targets += [_Target(owner, stat.pid, stat.start_ticks, stat.parent_pid) for stat in below]
        return targets[:MOST_PROCESSES]

    def _answer(self, request: Request, targets: Sequence[_Target]) -> Iterator[Record]:
        wanted = [one for one in targets if request.covers(one.owner.rank, one.owner.job, one.owner.role)]
        if not wanted:
            ranks, roles, job = (request.arguments.get(name) for name in ("ranks", "roles", "job"))
            asked = [str(one) for one in (ranks, roles) if one is not None]
            whose = f"none of the ranks {', '.join(asked)}" if asked else "no rank"
            raise NothingToCollect(f"{whose}{f' of job {job}' if job else ''} runs here")
        began_at = time.monotonic()

        def dump(target: _Target, *, native: bool) -> _Dump:
            left = began_at + ANSWER_SECONDS - time.monotonic()
            found = self._dump(target, min(NATIVE_SECONDS if native else DUMP_SECONDS, left), native=native)
            # A stopped process cannot be paused, and C frames need a pause.
            return dump(target, native=False) if native and not found.output else found

        dumping = partial(dump, native=request.arguments.get("native") is True)
        with ThreadPoolExecutor(MOST_AT_ONCE) as threads:
            look = SocketLook(self._host, self._frames)
            for found in threads.map(dumping, wanted):
                yield from self._records(found, look, candidates=True)
            yield from look.elsewhere()
            yield from stopped_beside(self._host)
            # Only a second dump, of the same kind, shows which threads do not move; a failure is reported once.
            time.sleep(max(0.0, began_at + BETWEEN_SECONDS - time.monotonic()))
            look = SocketLook(self._host, self._frames)
            for found in threads.map(dumping, wanted):
                yield from self._records(found, look, candidates=True) if found.output else ()

    def _ordinary(self, targets: Sequence[_Target]) -> Iterator[Record]:
        """Dump the processes that are due, the longest waiting first, while accumulated CPU time is left."""
        now = self._host.clock.monotonic()
        if self._earned_at is not None:
            self._earned_seconds = min(SAVED_SECONDS, self._earned_seconds + self._share * (now - self._earned_at))
        self._earned_at = now
        alive = {(one.pid, one.start_ticks) for one in targets}
        self._dumped_at = {key: at for key, at in self._dumped_at.items() if key in alive}
        dumps: list[_Dump] = []
        look = SocketLook(self._host)
        for due_at, place in sorted((self._due_at(one, now), place) for place, one in enumerate(targets)):
            if due_at > now or self._earned_seconds <= 0.0 or UNASKED.locked():
                break
            with UNASKED:
                dumps.append(dump := self._dump(targets[place], DUMP_SECONDS, native=False))
            self._earned_seconds -= dump.cpu_seconds
            self._dumped_at[dump.target.pid, dump.target.start_ticks] = now
            if dump.output:
                yield from self._records(dump, look, candidates=False)
        if dumps and all(dump.outcome == "refused" for dump in dumps):
            reason = "py-spy may not read the job's processes: run the agent as root or with CAP_SYS_PTRACE"
            raise NothingToCollect(reason)

    def _due_at(self, one: _Target, now: float) -> float:
        """Return when its next dump is due; first dumps are spread, and young processes may start undisturbed."""
        every = RANK_EVERY_SECONDS if one.parent_pid is None else CHILD_EVERY_SECONDS
        key = one.pid, one.start_ticks
        if key not in self._dumped_at:
            self._dumped_at[key] = now - every * (1 - one.pid % 16 / 16)
        return self._dumped_at[key] + every

    def _dump(self, target: _Target, seconds: float, *, native: bool) -> _Dump:
        at = self._host.clock.now()
        stat = stat_of(str(self._host.roots.proc), target.pid)
        if stat is None or stat.start_ticks != target.start_ticks or stat.ended:
            return _Dump(target, at, problem="the process has ended")
        if seconds <= 0:
            return _Dump(target, at, problem=f"the {ANSWER_SECONDS:.0f} s of an answer were over", outcome="limit")
        mode = "--native" if native else "--nonblocking"
        try:
            ran = programs.run([self._program, "dump", "--json", mode, "--pid", str(target.pid)], seconds)
        except OSError as error:
            return _Dump(target, at, problem=f"{self._program} cannot be started: {error.strerror}", outcome="refused")
        if ran.stuck is not None:
            self._stuck.append(ran.stuck)
        if ran.code is None:
            reason = (
                f"py-spy did not end within {seconds:.0f} s, or wrote more than {programs.MAX_OUTPUT_BYTES:,} bytes"
            )
            return _Dump(target, at, problem=reason, outcome="limit", cpu_seconds=ran.cpu_seconds)
        if ran.code == 0 and ran.output:
            return _Dump(target, at, ran.output, cpu_seconds=ran.cpu_seconds)
        refused = any(word in ran.error.lower() for word in _REFUSED)
        reason = ran.error[:300] or f"py-spy ended with exit code {ran.code}"
        return _Dump(target, at, b"", reason, "refused" if refused else "empty", ran.cpu_seconds)

    def _records(self, dump: _Dump, look: SocketLook, *, candidates: bool) -> Iterator[Record]:
        """Yield the stacks of one dump, with what the main thread waits on, and which others wait on sockets."""
        target = dump.target

        def waits(one: Thread, place: int) -> Thread:
            sockets = tuple[SocketWait, ...]()
            if one.main:
                sockets = look.waits(target.owner, target.pid, candidates=candidates)
            elif place < MOST_THREADS:
                sockets = look.waits_of_thread(target.pid, one.os_thread_id)
            return msgspec.structs.replace(one, sockets=sockets)

        for record in _records(dump, self._boot_id, self._host.apart):
            if isinstance(record, StackDump):
                threads = tuple(waits(one, place) for place, one in enumerate(record.threads))
                yield msgspec.structs.replace(record, threads=threads)
            else:
                yield record

    def _frames(self, stat: Stat) -> tuple[Frame, ...]:
        """Return where the main thread of a process is that a rank waits for; none where py-spy cannot read it."""
        if not callable_by_number(self._host.roots.proc, stat.pid) or stat.ended:
            return ()
        other = _Target(TrainingProcess(stat.pid, -1), stat.pid, stat.start_ticks)
        dump = self._dump(other, DUMP_SECONDS, native=False)
        found = [one for one in _records(dump, None, self._host.apart) if isinstance(one, StackDump)]
        threads = [one for record in found for one in record.threads]
        main = next((one for one in threads if one.main), None) or next(iter(threads), None)
        return main.frames[:MOST_FRAMES] if main else ()


def _records(dump: _Dump, boot_id: str | None, apart: Apart) -> Iterator[Record]:
    """Yield the stacks of one dump as the rank's, or why there are none."""
    target = dump.target
    of = {**target.owner.of_records, "at": dump.at, "boot_id": boot_id}
    source = f"stacks/{target.pid}"
    if not dump.output:
        reason = f"no stack of rank {target.owner.rank}, process {target.pid}: {dump.problem}"
        yield Unread(source=source, reason=reason, outcome=dump.outcome, **of)
        return
    try:
        found = block.decode(apart.parse("stacks", dump.output, source, source=source))
    except ParsingFailed as error:
        found = [Unread(source=source, reason=str(error), outcome="limit")]
    for record in found:
        if not isinstance(record, Unread):
            of = {**of, "pid": target.pid, "parent_pid": target.parent_pid}
        yield msgspec.structs.replace(record, **of)
