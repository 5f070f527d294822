"""Nodes on one machine: each has a /proc of its own, in which only its own ranks are.

The entries are links into the real /proc, so that every number, socket and stack an agent finds there is real. What the
nodes share is the machine below: its clock, its network. Its kernel log is nobody's: a line of it would tell of every node.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.jobs import faults
from tests.support.jobs.job import Job


class Farm:
    """The pretended nodes of one or more jobs, below one folder."""

    def __init__(self, folder: Path, nodes: Sequence[str]) -> None:
        self.folder, self.nodes = folder, tuple(nodes)
        for node in self.nodes:
            self.proc(node).mkdir(parents=True)
            for entry in Path("/proc").iterdir():
                if not entry.name.isdigit() and entry.name not in ("self", "thread-self"):
                    (self.proc(node) / entry.name).symlink_to(entry)
            self.dev(node).mkdir()
            for entry in Path("/dev").iterdir():
                if entry.name != "kmsg":
                    (self.dev(node) / entry.name).symlink_to(entry)

    def dev(self, node: str) -> Path:
        """Return a node's /dev."""
        return self.folder / node / "dev"

    def proc(self, node: str) -> Path:
        """Return a node's /proc."""
        return self.folder / node / "proc"

    def settle(self, job: Job) -> None:
        """Let the ranks that have started appear on their nodes, with their launcher and their children.

        Who is gone disappears.
        """
        parents, launchers = parents_of_processes(), {process.pid for process in job.processes}
        for rank, pid in faults.pids(job.private).items():
            if not pid:  # its file is being written, and everything descends from process 0
                continue
            mine = {pid} | {child for child in parents if descends(child, pid, parents)}
            mine |= {parents.get(pid, 0)} & launchers
            proc = self.proc(job.scenario.host_of(rank))
            for number in mine:
                link = proc / str(number)
                if Path(f"/proc/{number}").exists() and not link.is_symlink():
                    with suppress(FileExistsError):  # several jobs settle at once
                        link.symlink_to(f"/proc/{number}")
        self.drop_ended()

    def settle_below(self, launchers: Mapping[str, int]) -> None:
        """Let the processes of each node's launcher appear there; those that are gone disappear. ``launchers``: node → pid."""
        parents = parents_of_processes()
        for node, launcher in launchers.items():
            for pid in [launcher, *(one for one in parents if descends(one, launcher, parents))]:
                with suppress(FileExistsError):
                    (self.proc(node) / str(pid)).symlink_to(f"/proc/{pid}")
        self.drop_ended()

    def drop_ended(self) -> None:
        """Remove the processes that have ended."""
        for node in self.nodes:
            for link in self.proc(node).iterdir():
                if link.name.isdigit() and not link.exists():
                    link.unlink(missing_ok=True)


@contextmanager
def settling(settle: Callable[[], None], every_seconds: float = 0.25) -> Iterator[None]:
    """Keep process tables up to date: ``settle`` again and again, in a thread."""
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(every_seconds):
            settle()

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def parents_of_processes() -> dict[int, int]:
    """Return the parent of each process of this machine."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
    return parents


def descends(pid: int, ancestor: int, parents: Mapping[int, int]) -> bool:
    """Return whether a process comes from another."""
    seen = 0
    while pid in parents and seen < 50:
        pid, seen = parents[pid], seen + 1
        if pid == ancestor:
            return True
    return False
