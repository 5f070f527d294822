"""Which processes of a node train, and who they are: rank, job, attempt, role, from /proc/PID/environ.

Only an allow-list of variables is ever copied (``rank_variables``): an environment holds secrets. A rank's variables are
inherited by everything below its process, and often held by what stands above it, so that the tree decides:

    bash -c → torchrun (RANK of the pod) → python (a rank) → data-loader workers, checkpoint writers (the same rank)
    wrapper   launcher: others' ranks below  the process        children, also after their parent has died

An environment is read once in a process's life, and again when it executes another program: it may be overwritten later
(setproctitle does), and reading it waits for the process's memory lock, which a stuck process may hold: such a one is
given up.
"""

from __future__ import annotations

import os
import re
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from collectors.live.sources.bounded_reading import MOST_STUCK, BoundedReader, ReadRefused
from collectors.live.sources.proc_stat import TICKS_A_SECOND, Stat, booted_at, own_pid, stat_of
from collectors.live.sources.rank_variables import RankIdentity, read_rank_identity

MOST_PROCESSES = 65_536  # of a node; those with the highest numbers are not looked at
MOST_TRAINING = 4_096  # ranks on one node
MOST_ENVIRONMENT_BYTES = 1 << 20
MOST_COMMAND_BYTES = 4_096
LOOKS_OF_THE_YOUNG = 12
"""A process without a rank is looked at so often before it counts as settled, and then only every so many looks: it can
still become another program, and its number be given to another, but nothing of that is urgent. A node has thousands."""

_WRAPPERS = frozenset({
    "bash", "sh", "dash", "zsh", "ksh", "fish", "tcsh", "csh", "busybox", "env", "timeout", "time", "nice", "taskset",
    "numactl", "tini", "dumb-init", "sudo", "su", "srun", "slurm_script", "mpirun", "mpiexec", "orted", "prted",
    "prterun", "hydra_pmi_proxy", "torchrun", "pt_elastic", "accelerate", "deepspeed", "apptainer", "singularity",
    "enroot", "conda", "uv", "nsys", "nsys-launcher", "ncu", "strace", "gdb",
})  # fmt: skip
"""Names of programs that start a rank and are none, whatever their environment says."""
_PYTHON = ("python", "pt_", "ray::")
_LAUNCHER = re.compile(
    rb"(?:\A|[\0/])(?:torchrun|accelerate|deepspeed|torch\.distributed\.(?:run|launch)|torch/distributed/(?:run|launch)\.py"
    rb"|deepspeed\.launcher\.\w+|accelerate\.commands\.\w+)\0"
)  # in a command's first words: the program, or the module after -m


@dataclass(frozen=True, slots=True)
class TrainingProcess:
    """One rank's process on this node."""

    pid: int
    rank: int
    job: str | None = None
    attempt: int | None = None
    world_size: int | None = None
    local_rank: int | None = None
    role: str | None = None
    device: str | None = None
    launcher: str = ""
    started_at: float | None = None  # UTC seconds
    labels: Mapping[str, str] = field(default_factory=dict)  # variables of the allow-list
    start_ticks: int = 0  # since boot: with the pid the identity of the process


@dataclass(slots=True)
class _Known:
    """What one process was found to be, as long as it lives and executes the same program."""

    stat: Stat
    claim: RankIdentity | None = None
    launches: bool = False  # its command is a launcher's
    looks: int = 0
    again_below: int = 0  # it could not be read: it is tried again once fewer reads than this are stuck
    owner: tuple[int, int] | None = None  # pid and start of the rank's process that it was last seen below

    @property
    def identity(self) -> tuple[int, int]:
        """Return what no other process of this boot has: numbers are given again, and not within a hundredth of a second."""
        return self.stat.pid, self.stat.start_ticks


class Census:
    """The processes of a node, looked at again and again; only what is new is read in full."""

    def __init__(self, proc: Path, node: str = "") -> None:
        self._proc = proc
        self._node = node
        self._known: dict[int, _Known] = {}
        self._children: dict[int, list[int]] = {}
        self._unreadable: set[int] = set()
        self._looks = 0
        self._reader = BoundedReader()
        self._newest: tuple[float, tuple[TrainingProcess, ...]] | None = None
        self._lock = threading.Lock()  # every collector has its own thread

    @property
    def unreadable(self) -> int:
        """Return how many Python processes' environments may not be read."""
        return len(self._unreadable)

    def newest(self, now: float, seconds: float) -> tuple[TrainingProcess, ...]:
        """Return the training processes as of a look that is at most so many seconds old."""
        with self._lock:
            if self._newest is None or not 0 <= now - self._newest[0] <= seconds:
                self._newest = now, self._look()
            return self._newest[1]

    def look(self) -> tuple[TrainingProcess, ...]:
        """Look now; return the training processes by job and rank."""
        with self._lock:
            return self._look()

    def below(self, pid: int) -> tuple[Stat, ...]:
        """Return the processes below one, as of the newest look, parents first."""
        with self._lock:
            return tuple(self._known[child].stat for child in _below(pid, self._children) if child in self._known)

    def _look(self) -> tuple[TrainingProcess, ...]:
        proc = str(self._proc)
        self._looks += 1
        pids = sorted(_pids(proc))[:MOST_PROCESSES]
        known, children = {}, defaultdict(list)
        for pid in pids:
            if (one := self._settled(pid) or self._of(proc, pid)) is not None:
                known[pid] = one
                children[one.stat.parent_pid].append(pid)
        self._known, self._children = known, dict(children)
        self._unreadable &= known.keys()
        booted = booted_at(self._proc)
        found = [_process(known[pid], booted) for pid in self._topmost(own_pid(self._proc))]
        found.sort(key=lambda one: (one.job or "", one.attempt or 0, one.rank, one.start_ticks, one.pid))
        return tuple(found[:MOST_TRAINING])

    def _settled(self, pid: int) -> _Known | None:
        """Return what is known of a process that need not be looked at this time."""
        old = self._known.get(pid)
        if old is None or old.claim is not None or old.owner is not None or old.looks < LOOKS_OF_THE_YOUNG:
            return None
        return None if (pid + self._looks) % LOOKS_OF_THE_YOUNG == 0 else old

    def _of(self, proc: str, pid: int) -> _Known | None:
        """Return what is known of a process; its number may have been given to another since the last look."""
        stat = stat_of(proc, pid)
        if stat is None:
            return None
        old = self._known.get(pid)
        if old is not None and old.stat.start_ticks == stat.start_ticks:
            old.looks += 1
            # One that has given back its memory has no environment any more, and files and sockets to close before it ends.
            ends = stat.ended or (old.stat.has_memory and not stat.has_memory)
            if ends or (old.stat.image == stat.image and self._reader.stuck >= old.again_below):
                old.stat = stat
                return old
        new = _Known(stat)
        if not stat.ended:
            self._read(proc, new)
        return new

    def _read(self, proc: str, process: _Known) -> None:
        pid = process.stat.pid
        self._unreadable.discard(pid)
        try:
            environment = self._reader.read(f"{proc}/{pid}/environ", MOST_ENVIRONMENT_BYTES)
        except PermissionError:
            if process.stat.name.startswith(_PYTHON):
                self._unreadable.add(pid)
            return
        except TimeoutError as error:
            process.again_below = MOST_STUCK if isinstance(error, ReadRefused) else 1
            return
        except OSError:
            return  # it ended meanwhile
        if read_rank_identity(environment) is None:
            return
        process.claim = read_rank_identity(environment, self._quietly(f"{proc}/{pid}/cgroup"), self._node)
        process.launches = _LAUNCHER.search(_first_words(self._quietly(f"{proc}/{pid}/cmdline"))) is not None

    def _quietly(self, path: str) -> bytes:
        try:
            return self._reader.read(path, MOST_COMMAND_BYTES)
        except OSError:
            return b""

    def _topmost(self, own_pid: int) -> Iterator[int]:
        """Yield the process of each rank, and remember whose everything below it is."""
        waiting = [pid for pid, one in self._known.items() if one.stat.parent_pid not in self._known]
        while waiting:
            pid = waiting.pop()
            one = self._known[pid]
            if pid != own_pid and self._trains(pid):
                yield pid
                self._own(pid, one.identity)
                continue
            if one.claim is not None and not one.stat.ended:
                self._own(pid, one.owner if self._orphaned(one) else None)
            waiting += self._children.get(pid, ())

    def _own(self, pid: int, owner: tuple[int, int] | None) -> None:
        for child in _below(pid, self._children):
            # What is no rank after all, a launcher that had started one process yet, owns nothing.
            if owner is not None or self._known[child].owner == self._known[pid].identity:
                self._known[child].owner = owner

    def _orphaned(self, one: _Known) -> bool:
        """Whether the rank's process that it was below has ended: it has that rank's variables and is not the rank."""
        if one.owner is None:
            return False
        owner = self._known.get(one.owner[0])
        return owner is None or owner.identity != one.owner or owner.stat.ended

    def _trains(self, pid: int) -> bool:
        one = self._known[pid]
        if one.claim is None or one.launches or one.stat.ended or one.stat.name in _WRAPPERS or self._orphaned(one):
            return False
        if one.claim.elastic:
            return True  # what it starts, an evaluation under torchrun for example, is its own affair
        claims = [claim for child in _below(pid, self._children) if (claim := self._known[child].claim)]
        return all(claim.rank == one.claim.rank and not claim.elastic for claim in claims)


def _process(known: _Known, booted: float | None) -> TrainingProcess:
    claim, stat = known.claim, known.stat
    assert claim is not None
    return TrainingProcess(
        pid=stat.pid,
        rank=claim.rank,
        job=claim.job,
        attempt=claim.attempt,
        world_size=claim.world_size,
        local_rank=claim.local_rank,
        role=claim.role,
        device=claim.device,
        launcher=claim.launcher,
        started_at=None if booted is None else booted + stat.start_ticks / TICKS_A_SECOND,
        labels=claim.labels,
        start_ticks=stat.start_ticks,
    )


def _below(pid: int, children: Mapping[int, list[int]]) -> Iterator[int]:
    waiting = list(children.get(pid, ()))
    seen = {pid}  # numbers read one after the other can name each other as parents
    while waiting:
        child = waiting.pop(0)
        if child not in seen:
            seen.add(child)
            yield child
            waiting += children.get(child, ())


def _pids(proc: str) -> Iterator[int]:
    with os.scandir(proc) as entries:
        yield from (int(entry.name) for entry in entries if entry.name.isdigit())


def _first_words(command: bytes) -> bytes:
    """The program, the interpreter's options and the module: not the program's own arguments (``--deepspeed`` is one)."""
    words = command.split(b"\0")
    return b"\0".join(words[:4]) + b"\0"
