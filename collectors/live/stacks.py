"""Where every rank stands: py-spy on its process and on those below it, never pausing them unless somebody asks for that.

A look costs some hundredths of a CPU second of py-spy's, and pauses nothing. Ordinary runs look at each rank once a minute,
one after the other, and at its children ten times more seldom; what py-spy's own processes have used is counted, and no
look begins before the share of a core that is theirs has been earned. When asked, all are looked at, twice.
"""

from __future__ import annotations

import io
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Literal

import msgspec

from collectors.formats import Input
from collectors.formats.stacks.pyspy_json import read as read_pyspy
from collectors.live import Asked, NothingToCollect, Yielded, collector
from collectors.live.sources import pyspy
from collectors.live.sources.host import Host
from collectors.live.sources.proc_stat import callable_by_number, stat_of
from collectors.live.sources.training import TrainingProcess
from collectors.records import Record, Unread

RANK_EVERY_SECONDS = 60.0
CHILD_EVERY_SECONDS = 600.0
SHARE_OF_A_CORE = 0.003
SAVED_SECONDS = 0.2  # of CPU time: what may be saved up, and spent at once
LOOK_SECONDS = 5.0  # of one process
NATIVE_SECONDS = 20.0  # --native reads the symbols of all its libraries
ANSWER_SECONDS = 45.0  # of all processes together; what is not looked at by then is told
BETWEEN_SECONDS = 3.0  # the two looks of an answer
MOST_AT_ONCE = 4
MOST_PROCESSES_A_RANK = 64
MOST_PROCESSES = 1_024  # of one answer
MOST_STUCK = 4
"""py-spy processes that will not end, not even when killed: what they read is stuck in the kernel, and they with it."""
_REFUSED = ("permission denied", "operation not permitted", "elevated permissions")


@dataclass(frozen=True, slots=True)
class _Target:
    """A process to look at; ``parent_pid`` None: the rank's own."""

    owner: TrainingProcess
    pid: int
    start_ticks: int
    parent_pid: int | None = None


@dataclass(frozen=True, slots=True)
class _Look:
    """What py-spy gave: its output, or why there is none."""

    target: _Target
    at: float
    output: bytes = b""
    problem: str = ""
    outcome: Literal["refused", "limit", "empty"] = "empty"
    cpu_seconds: float = 0.0


@collector(
    "stacks",
    gives="where each thread of each rank is, in Python and, when asked, in C",
    every_seconds=2.0,
    limit_seconds=60.0,
    answers=("stacks",),
)
class Stacks:
    """Looks at one process after the other, and at all of them when asked."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._boot_id = host.boot_id  # a look is of now: what an agent saw is told from a file by it
        self._program: str = host.option("stacks", "program", "") or pyspy.program() or ""
        self._share = float(host.option("stacks", "share_of_a_core", SHARE_OF_A_CORE))
        self._looked_at: dict[tuple[int, int], float] = {}  # (pid, start) → monotonic instant
        self._earned_at: float | None = None
        self._earned_seconds = 0.0
        self._stuck: list[subprocess.Popen[bytes]] = []

    def __call__(self, asked: Asked | None) -> Iterable[Yielded]:
        """Yield the stacks that are due, or all of them when asked."""
        if not self._program:
            raise NothingToCollect("py-spy is not installed: pip install py-spy, or name it by the option `program`")
        targets = self._targets()
        if not targets:
            raise NothingToCollect("no training process runs here")
        self._stuck = [one for one in self._stuck if one.poll() is None]
        if len(self._stuck) >= MOST_STUCK:
            raise NothingToCollect(
                f"{MOST_STUCK} py-spy processes hang in the kernel: a process that they read is stuck there"
            )
        if asked is not None:
            yield from self._answer(asked, targets)
        else:
            yield from self._ordinary(targets)

    def _targets(self) -> list[_Target]:
        """Return the ranks' processes first, then what is below them, a bounded number of each."""
        proc = self._host.roots.proc
        ranks = [one for one in self._host.training() if callable_by_number(proc, one.pid)]
        targets = [_Target(one, one.pid, one.start_ticks) for one in ranks]
        for owner in ranks:
            below = [stat for stat in self._host.census.below(owner.pid) if not stat.ended][: MOST_PROCESSES_A_RANK - 1]
            targets += [_Target(owner, stat.pid, stat.start_ticks, stat.parent_pid) for stat in below]
        return targets[:MOST_PROCESSES]

    def _answer(self, asked: Asked, targets: Sequence[_Target]) -> Iterator[Record]:
        wanted = [one for one in targets if asked.wants(one.owner.rank, one.owner.job)]
        if not wanted:
            raise NothingToCollect(f"none of the ranks {asked.arguments.get('ranks')} runs here")
        began_at = time.monotonic()

        def look(target: _Target, *, native: bool) -> _Look:
            left = began_at + ANSWER_SECONDS - time.monotonic()
            found = self._look(target, min(NATIVE_SECONDS if native else LOOK_SECONDS, left), native=native)
            # A stopped process cannot be paused, and C frames need a pause.
            return look(target, native=False) if native and not found.output else found

        looking = partial(look, native=asked.arguments.get("native") is True)
        with ThreadPoolExecutor(MOST_AT_ONCE) as threads:
            for found in threads.map(looking, wanted):
                yield from _records(found, self._boot_id)
            # Only a second look, of the same kind, tells who stands still; what could not be looked at is told once.
            time.sleep(max(0.0, began_at + BETWEEN_SECONDS - time.monotonic()))
            for found in threads.map(looking, wanted):
                yield from _records(found, self._boot_id) if found.output else ()

    def _ordinary(self, targets: Sequence[_Target]) -> Iterator[Record]:
        """Look at what is due, the longest waiting first, while CPU time is left that was earned since the last look."""
        now = self._host.clock.monotonic()
        self._earn(now)
        alive = {(one.pid, one.start_ticks) for one in targets}
        self._looked_at = {key: at for key, at in self._looked_at.items() if key in alive}
        looks = []
        for due_at, place in sorted((self._due_at(one, now), place) for place, one in enumerate(targets)):
            if due_at > now or self._earned_seconds <= 0.0:
                break
            looks.append(look := self._look(targets[place], LOOK_SECONDS, native=False))
            self._earned_seconds -= look.cpu_seconds
            self._looked_at[look.target.pid, look.target.start_ticks] = now
            if look.output:
                yield from _records(look, self._boot_id)
        if looks and all(look.outcome == "refused" for look in looks):
            raise NothingToCollect(
                "py-spy may not read the job's processes: run the agent as root or with CAP_SYS_PTRACE"
            )

    def _due_at(self, one: _Target, now: float) -> float:
        """Return when its next look is due; the first looks are spread, and young processes left to start."""
        every = RANK_EVERY_SECONDS if one.parent_pid is None else CHILD_EVERY_SECONDS
        key = one.pid, one.start_ticks
        if key not in self._looked_at:
            self._looked_at[key] = now - every * (1 - one.pid % 16 / 16)
        return self._looked_at[key] + every

    def _earn(self, now: float) -> None:
        if self._earned_at is not None:
            self._earned_seconds = min(SAVED_SECONDS, self._earned_seconds + self._share * (now - self._earned_at))
        self._earned_at = now

    def _look(self, target: _Target, seconds: float, *, native: bool) -> _Look:
        at = self._host.clock.now()
        stat = stat_of(str(self._host.roots.proc), target.pid)
        if stat is None or stat.start_ticks != target.start_ticks or stat.ended:
            return _Look(target, at, problem="the process has ended")
        if seconds <= 0:
            return _Look(target, at, problem=f"the {ANSWER_SECONDS:.0f} s of an answer were over", outcome="limit")
        mode = "--native" if native else "--nonblocking"
        try:
            ran = pyspy.run([self._program, "dump", "--json", mode, "--pid", str(target.pid)], seconds)
        except OSError as error:
            return _Look(target, at, problem=f"{self._program} cannot be started: {error.strerror}", outcome="refused")
        if ran.stuck is not None:
            self._stuck.append(ran.stuck)
        if ran.code is None:
            reason = f"py-spy did not end within {seconds:.0f} s, or wrote more than {pyspy.MOST_OUTPUT_BYTES:,} bytes"
            return _Look(target, at, problem=reason, outcome="limit", cpu_seconds=ran.cpu_seconds)
        if ran.code == 0 and ran.output:
            return _Look(target, at, ran.output, cpu_seconds=ran.cpu_seconds)
        refused = any(word in ran.error.lower() for word in _REFUSED)
        reason = ran.error[:300] or f"py-spy ended with exit code {ran.code}"
        return _Look(target, at, b"", reason, "refused" if refused else "empty", ran.cpu_seconds)


def _records(look: _Look, boot_id: str | None) -> Iterator[Record]:
    """Yield the stacks of one look as the rank's, or why there are none."""
    target, owner = look.target, look.target.owner
    whose = {
        "job": owner.job, "attempt": owner.attempt, "rank": owner.rank, "role": owner.role, "at": look.at,
        "boot_id": boot_id,
    }  # fmt: skip
    source = f"stacks/{target.pid}"
    if not look.output:
        reason = f"no stack of rank {owner.rank}, process {target.pid}: {look.problem}"
        yield Unread(source=source, reason=reason, outcome=look.outcome, **whose)  # type: ignore[arg-type]
        return
    for record in read_pyspy(Input(source, io.BytesIO(look.output), look.output[:4096])):
        if not isinstance(record, Unread):
            whose = {**whose, "pid": target.pid, "parent_pid": target.parent_pid}
        yield msgspec.structs.replace(record, **whose)
