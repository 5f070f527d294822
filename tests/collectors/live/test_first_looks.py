"""The words of a rank that raises within seconds of its start: it is gone when its log is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.live import Cursor, NothingToCollect, Run
from collectors.live.process import Processes
from collectors.live.sources.host import Host, Roots
from collectors.live.steps import JobLogs
from collectors.records import LogEvent, Record
from tests.collectors.live.test_steps import append
from tests.collectors.live.test_steps_events import TRACEBACK
from tests.support.process_tree import Clock, ProcessTree

FIRST = 2_000_000_020  # no pid that this machine has
KILLED = 9


class Job:
    """A job whose attempts write a file each, on a node that is watched each second, and its logs each five."""

    def __init__(self, folder: Path) -> None:
        (folder / "files").mkdir()
        self.folder, self.tree, self.clock = folder / "files", ProcessTree(folder / "proc"), Clock()
        self.host = Host("gpu-7", Roots(proc=self.tree.root, files=Path("/")), self.clock)
        self._runs = {"process": Processes(self.host), "steps": JobLogs(self.host)}
        self.words: list[LogEvent] = []

    def start(self, attempt: int) -> None:
        """Start an attempt with a log of its own."""
        pid, log = FIRST + attempt, self.folder / f"attempt-{attempt}.log"
        variables = {"RANK": 0, "FAULTHOUND_JOB": "a", "FAULTHOUND_ATTEMPT": attempt}
        self.tree.add(pid, 1, variables, start=int(100 * self.clock.seconds))
        output = self.tree.root / str(pid) / "fd" / "1"
        output.parent.mkdir()
        output.symlink_to(log)
        append(log, "step 1 loss 0.5\n", self.clock.now())

    def end(self, attempt: int) -> None:
        """Let an attempt raise, and end."""
        append(self.folder / f"attempt-{attempt}.log", TRACEBACK, self.clock.now())
        self.tree.remove(FIRST + attempt)

    def until(self, seconds: float) -> None:
        """Let time pass."""
        while self.clock.seconds < seconds:
            self.clock.seconds += 1.0
            self._run("process")
            if int(self.clock.seconds) % 5 == 0:
                self._run("steps")

    def _run(self, name: str) -> None:
        run: Run = self._runs[name]
        try:
            for one in run(None):
                if isinstance(one, Cursor):
                    self.host.cursors[name] = one.value
                elif isinstance(one, Record) and isinstance(one, LogEvent):
                    self.words.append(one)
        except NothingToCollect:
            pass


@pytest.mark.parametrize("lived", [1.5, 3.5])
def test_the_words_of_a_short_attempt_are_read(tmp_path: Path, lived: float) -> None:
    """It begins two seconds after the end of another, and raises before the logs are read again."""
    job = Job(tmp_path)
    job.start(0)
    job.until(1_011.0)
    job.end(0)
    job.until(1_021.0)
    job.clock.seconds += 0.2
    job.start(1)
    job.until(1_021.2 + lived)
    job.end(1)
    job.until(1_050.0)
    assert [(one.exception, one.rank, one.attempt) for one in job.words] == [("ValueError", 0, 0), ("ValueError", 0, 1)]


def test_processes_are_looked_for_more_often_only_after_an_end(tmp_path: Path) -> None:
    """A scan costs a share of a core: one each five seconds is enough while nothing ends."""
    job = Job(tmp_path)
    job.start(0)
    job.until(1_060.0)
    before = job.host.process_table._scans
    job.end(0)
    job.until(1_160.0)
    after = job.host.process_table._scans
    job.until(2_000.0)
    ended = job.host.process_table._scans
    job.until(2_060.0)
    assert before <= 14
    assert after - before >= 90
    assert job.host.process_table._scans - ended <= 14
