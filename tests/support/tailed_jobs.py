"""Training processes as collectors see them, without a scan: their /proc is a tree below a temporary folder."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from collectors.live import Cursor, Request, Run, Yielded
from collectors.live.sources.host import Host, Roots
from collectors.live.sources.ranks import TrainingProcess
from collectors.records import Record

CODES = {"<i8": "q", "<i4": "i", "<i1": "b", "<f8": "d"}
Kind = TypeVar("Kind", bound=Record)


@dataclass
class Clock:
    """A clock that a test moves."""

    at: float = 1_795_240_800.0

    def now(self) -> float:
        """Return UTC seconds."""
        return self.at

    def monotonic(self) -> float:
        """Return seconds since boot."""
        return self.at - 1_795_000_000.0


@dataclass(slots=True)
class JobHost(Host):
    """A host whose training processes are given."""

    processes: tuple[TrainingProcess, ...] = ()

    def training(self) -> tuple[TrainingProcess, ...]:
        """Return the given processes."""
        return self.processes


@dataclass
class Node:
    """One node of a test: a tree for its roots, and ranks whose /proc entries the test writes."""

    folder: Path
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        for name in ("proc", "dev", "files"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        roots = Roots(proc=self.folder / "proc", dev=self.folder / "dev", files=self.folder / "files")
        self.host = JobHost(node="gpu-0001", roots=roots, clock=self.clock, options=self.options)

    def rank(
        self, rank: int, *, pid: int | None = None, output: Path | None = None, parent: int = 1,
        labels: Mapping[str, str] = {}, real: bool = False,
    ) -> TrainingProcess:  # fmt: skip
        """Add a training process; ``real``: its /proc entry is the system's own."""
        pid = pid or 4000 + rank
        entry = self.folder / "proc" / str(pid)
        if real:
            entry.symlink_to(f"/proc/{pid}")
        else:
            self.process(pid, parent, output)
        process = TrainingProcess(
            pid=pid,
            rank=rank,
            job="llama-8b",
            attempt=2,
            world_size=4,
            local_rank=rank % 2,
            role="trainer",
            labels=labels,
        )
        self.host.processes = (*self.host.processes, process)
        return process

    def process(
        self, pid: int, parent: int = 1, output: Path | None = None, command: str = "python\0train.py\0"
    ) -> None:
        """Write what a process's /proc entry shows: its parent, its command and what its output goes to."""
        entry = self.folder / "proc" / str(pid)
        (entry / "fd").mkdir(parents=True)
        (entry / "stat").write_text(f"{pid} (python) S {parent} {' '.join(['0'] * 48)}\n")
        (entry / "status").write_text(f"Name:\tpython\nPPid:\t{parent}\nNSpid:\t{pid}\t{pid % 100}\n")
        (entry / "cmdline").write_text(command)
        (entry / "cwd").symlink_to(self.folder / "files")
        for number in (1, 2) if output else ():
            (entry / "fd" / str(number)).symlink_to(output)

    def run(self, collector: Run, name: str, asked: Request | None = None) -> list[Yielded]:
        """Run a collector as the agent does: keep its newest cursor, and everything else that it yields."""
        found: list[Yielded] = []
        for each in collector(asked):
            if isinstance(each, Cursor):
                self.host.cursors[name] = each.value
            else:
                found.append(each)
        return found


def column(record: Any, name: str, types: Mapping[str, str]) -> list[float]:
    """Return the values of one of a record's columns."""
    values: array[Any] = array(CODES[types[name]])
    values.frombytes(record.columns[name])
    return values.tolist()


def of(records: Iterable[Yielded], kind: type[Kind]) -> list[Kind]:
    """Return the records of one kind."""
    return [record for record in records if isinstance(record, kind)]
