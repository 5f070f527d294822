"""Which processes of a node train, and as which rank, by /proc/PID/environ and the process tree.

Only an allow-list of variables is copied (``ranks``): an environment holds secrets. Every process below a rank inherits its
variables, and processes above it often have them too, so the tree decides:

    bash -c → torchrun (RANK of the pod) → python (a rank) → data-loader workers, checkpoint writers (the same rank)
    wrapper   launcher: other ranks below    the process        children, also after their parent has died

An environment is read once in a process's life, and again when the process executes another program: it may be overwritten
later (setproctitle does), and the read waits for the process's memory lock, which a stuck process may hold. Such a read is
given up.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from collectors.files.process_stat import TICKS_A_SECOND, Stat
from collectors.live.sources.bounded_reading import MOST_STUCK, BoundedReader, ReadRefused
from collectors.live.sources.names import Named, begins, titled
from collectors.live.sources.proc_stat import booted_at, own_pid, stat_of
from collectors.live.sources.ranks import (
    PlaceNumbers,
    TrainingProcess,
    distinguished,
    read_rank,
    stated_role,
    states_rank,
)
from collectors.live.sources.system_files import process_ids

MOST_PROCESSES = 65_536  # of a node; those with the highest ids are left out
MOST_TRAINING = 4_096  # ranks on one node
MOST_ENVIRONMENT_BYTES = 1 << 20
MOST_COMMAND_BYTES = 4_096
SCANS_OF_THE_YOUNG = 12
"""A process without a rank is read in so many scans before it counts as settled, and then only in every so many: it can
still execute another program, and its id be reused, but neither is urgent. A node has thousands of them."""

_WRAPPERS = frozenset({
    "bash", "sh", "dash", "zsh", "ksh", "fish", "tcsh", "csh", "busybox", "env", "timeout", "time", "nice", "taskset",
    "numactl", "tini", "dumb-init", "sudo", "su", "srun", "slurm_script", "mpirun", "mpiexec", "orted", "prted",
    "prterun", "hydra_pmi_proxy", "torchrun", "pt_elastic", "accelerate", "deepspeed", "apptainer", "singularity",
    "enroot", "conda", "uv", "raylet", "gcs_server", "nsys", "nsys-launcher", "ncu", "strace", "gdb",
})  # fmt: skip
"""Names of programs that start a rank and are none, whatever their environment states."""
_PYTHON = ("python", "pt_", "ray::")
_LAUNCHER = re.compile(
    rb"(?:\A|[\0/])(?:torchrun|accelerate|deepspeed|torch\.distributed\.(?:run|launch)|torch/distributed/(?:run|launch)\.py"
    rb"|deepspeed\.launcher\.\w+|accelerate\.commands\.\w+)\0"
)  # in the first words of a command: the program, or the module after -m


@dataclass(slots=True)
class _Known:
    """What one process was found to be, as long as it lives and executes the same program."""

    stat: Stat
    rank: TrainingProcess | None = None  # what its environment states
    launches: bool = False  # its command is a launcher's
    scans: int = 0
    again_below: int = 0  # it could not be read: it is tried again when fewer reads than this are stuck
    owner: tuple[int, int] | None = None  # identity of the rank's process that it was last seen below

    @property
    def identity(self) -> tuple[int, int]:
        """Return pid and start, which no other process of this boot has: no id is reused within a hundredth of a second."""
        return self.stat.pid, self.stat.start_ticks


class ProcessTable:
    """The processes of a node, scanned repeatedly; only new ones are read in full."""

    def __init__(self, proc: Path, node: str = "") -> None:
        self._proc = proc
        self._node = node
        self._known: dict[int, _Known] = {}
        self._children: dict[int, list[int]] = {}
        self._unreadable: set[int] = set()
        self._owners: dict[str, int] = {}  # job → the user whose it is
        self._scans = 0
        self._numbers = PlaceNumbers(node)
        self._reader = BoundedReader()
        self._newest: tuple[float, tuple[TrainingProcess, ...]] | None = None
        self._lock = threading.Lock()  # every collector has its own thread

    @property
    def unreadable(self) -> int:
        """Return how many Python processes' environments may not be read."""
        return len(self._unreadable)

    def training(self, now: float, most_seconds: float) -> tuple[TrainingProcess, ...]:
        """Return the training processes as of a scan that is at most so many seconds old."""
        with self._lock:
            if self._newest is None or not 0 <= now - self._newest[0] <= most_seconds:
                self._newest = now, self._scan()
            return self._newest[1]

    def descendants(self, pid: int) -> tuple[Stat, ...]:
        """Return the processes below one, as of the newest scan, parents first."""
        with self._lock:
            return tuple(self._known[child].stat for child in _below(pid, self._children) if child in self._known)

    def _scan(self) -> tuple[TrainingProcess, ...]:
        proc = str(self._proc)
        self._scans += 1
        known, children = {}, defaultdict(list)
        for pid in process_ids(proc)[:MOST_PROCESSES]:
            if (one := self._settled(pid) or self._of(proc, pid)) is not None:
                known[pid] = one
                children[one.stat.parent_pid].append(pid)
        self._known, self._children = known, dict(children)
        self._unreadable &= known.keys()
        booted = booted_at(self._proc)
        found = distinguished(
            [_located(rank, known[rank.pid].stat, booted) for rank in self._topmost(own_pid(self._proc))], self._owners
        )
        found = self._numbers.numbered(found)
        found.sort(key=lambda one: (one.job or "", one.attempt or 0, one.rank, one.start_ticks, one.pid))
        return tuple(found[:MOST_TRAINING])

    def _settled(self, pid: int) -> _Known | None:
        """Return what is known of a process that is not read in this scan."""
        old = self._known.get(pid)
        if old is None or old.rank is not None or old.owner is not None or old.scans < SCANS_OF_THE_YOUNG:
            return None
        return None if (pid + self._scans) % SCANS_OF_THE_YOUNG == 0 else old

    def _of(self, proc: str, pid: int) -> _Known | None:
        """Return what is known of a process; its id may have been reused since the last scan."""
        stat = stat_of(proc, pid)
        if stat is None:
            return None
        old = self._known.get(pid)
        if old is not None and old.stat.start_ticks == stat.start_ticks:
            old.scans += 1
            # A process that has released its memory has no environment any more; it still closes files and sockets.
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
            command = self._command(proc, pid)
        except PermissionError:
            if process.stat.name.startswith(_PYTHON):
                self._unreadable.add(pid)
            return
        except TimeoutError as error:
            process.again_below = MOST_STUCK if isinstance(error, ReadRefused) else 1
            return
        except OSError:
            return  # it ended meanwhile
        title = titled(command)
        if not states_rank(environment) and not title:
            return
        control_groups, status = (self._read_or_empty(f"{proc}/{pid}/{name}") for name in ("cgroup", "status"))
        named = self._named(proc, process.stat, title, command)
        process.again_below = 1 if begins(command) else process.again_below
        process.rank = read_rank(environment, control_groups, self._node, pid, status, named)
        process.launches = _LAUNCHER.search(_first_words(command)) is not None

    def _command(self, proc: str, pid: int) -> bytes:
        """Return its command line; TimeoutError where the read is given up, as it may have a title."""
        try:
            return self._reader.read(f"{proc}/{pid}/cmdline", MOST_COMMAND_BYTES)
        except TimeoutError:
            raise
        except OSError:
            return b""

    def _named(self, proc: str, stat: Stat, title: str | None, command: bytes) -> Named:
        """Return what names a process beside its variables; a Ray worker's output begins with its actor's name."""
        if not title or not command.startswith(b"ray::"):
            return Named(title)
        output = Path(f"{proc}/{stat.pid}/fd/1")
        is_log = False
        with suppress(OSError):  # a pipe would be emptied
            is_log = output.readlink().name.startswith("worker-") and output.is_file()
        above = self._read_or_empty(f"{proc}/{stat.parent_pid}/environ", MOST_ENVIRONMENT_BYTES)
        role = stated_role(above) if is_log else None  # a raylet's worker has a log of its own
        return Named(title, self._read_or_empty(str(output)) if is_log else b"", role, of_ray=True)

    def _read_or_empty(self, path: str, most_bytes: int = MOST_COMMAND_BYTES) -> bytes:
        try:
            return self._reader.read(path, most_bytes)
        except OSError:
            return b""

    def _topmost(self, own_pid: int) -> Iterator[TrainingProcess]:
        """Yield the process of each rank, and note it as the owner of every process below it."""
        waiting = [pid for pid, one in self._known.items() if one.stat.parent_pid not in self._known]
        while waiting:
            pid = waiting.pop()
            one = self._known[pid]
            if pid != own_pid and one.rank is not None and self._trains(one, one.rank):
                yield one.rank
                self._own(pid, one.identity)
                waiting += self._of_other_roles(pid, one.rank)
                continue
            if one.rank is not None and not one.stat.ended:
                self._own(pid, one.owner if self._orphaned(one) else None)
            waiting += self._children.get(pid, ())

    def _own(self, pid: int, owner: tuple[int, int] | None) -> None:
        for child in _below(pid, self._children):
            # A launcher that was taken for a rank, as it had started only one process yet, owns nothing.
            if owner is not None or self._known[child].owner == self._known[pid].identity:
                self._known[child].owner = owner

    def _orphaned(self, one: _Known) -> bool:
        """Whether the rank's process above it has ended: it has that rank's variables and is not the rank."""
        if one.owner is None:
            return False
        owner = self._known.get(one.owner[0])
        return owner is None or owner.identity != one.owner or owner.stat.ended

    def _trains(self, one: _Known, rank: TrainingProcess) -> bool:
        if one.launches or one.stat.ended or one.stat.name in _WRAPPERS or self._orphaned(one):
            return False
        if rank.elastic:
            return True  # ranks below it are of a job of its own, such as an evaluation under torchrun
        below = [found for child in _below(rank.pid, self._children) if (found := self._known[child].rank)]
        return all((found.rank == rank.rank and not found.elastic) or _differs(found, rank) for found in below)

    def _of_other_roles(self, pid: int, rank: TrainingProcess) -> Iterator[int]:
        """Yield the processes below one that have a role of their own, as the rollouts that a controller starts."""
        for child in _below(pid, self._children):
            found = self._known[child].rank
            parent = self._known.get(self._known[child].stat.parent_pid)
            if (
                found is not None
                and _differs(found, rank)
                and (parent is None or parent.rank is None or not _differs(parent.rank, rank))
            ):
                self._known[child].owner = None
                yield child


def _differs(one: TrainingProcess, other: TrainingProcess) -> bool:
    """Whether two processes of one tree have roles of their own, by FAULTHOUND_ROLE or an actor's name."""
    stated = "FAULTHOUND_ROLE" in one.labels or one.launcher == "ray"
    return stated and one.role is not None and other.role is not None and one.role != other.role


def _located(rank: TrainingProcess, stat: Stat, booted: float | None) -> TrainingProcess:
    started_at = None if booted is None else booted + stat.start_ticks / TICKS_A_SECOND
    return replace(rank, started_at=started_at, start_ticks=stat.start_ticks)


def _below(pid: int, children: Mapping[int, list[int]]) -> Iterator[int]:
    waiting = list(children.get(pid, ()))
    seen = {pid}  # lines read one after the other can name each other as parents
    while waiting:
        child = waiting.pop(0)
        if child not in seen:
            seen.add(child)
            yield child
            waiting += children.get(child, ())


def _first_words(command: bytes) -> bytes:
    """Return program, interpreter options and module, without the program's own arguments (``--deepspeed`` is one)."""
    words = command.split(b"\0")
    return b"\0".join(words[:4]) + b"\0"
