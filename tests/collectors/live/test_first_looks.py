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

    def start(self, attempt: int, log: Path | None = None) -> None:
        """Start an attempt with a log of its own, or with a given one."""
        pid, log = FIRST + attempt, log or self.folder / f"attempt-{attempt}.log"
        variables = {"RANK": 0, "FAULTHOUND_JOB": "a", "FAULTHOUND_ATTEMPT": attempt}
        self.tree.add(pid, 1, variables, start=int(100 * self.clock.seconds))
        output = self.tree.root / str(pid) / "fd" / "1"
        output.parent.mkdir()
        output.symlink_to(log)
        if log.name.startswith("attempt"):
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


def appended(tmp_path: Path, looked_after: float) -> Job:
    """Return a job that begins to write behind the exception of an earlier run, which no agent saw."""
    job = Job(tmp_path)
    job.clock.seconds = 1_020.0
    log = job.folder / "train.log"
    append(log, TRACEBACK, job.clock.now() - 600.0)
    job.start(0, log)
    job.clock.seconds += looked_after
    job._run("process")
    append(log, "loading the model\n", job.clock.now())
    return job


def test_a_line_that_was_there_before_the_run_is_not_of_the_run(tmp_path: Path) -> None:
    """It has no time, and its file was just written."""
    job = appended(tmp_path, 1.0)
    job.until(1_100.0)
    assert job.words == []


def test_an_exception_of_the_run_behind_the_old_one_is_its_own(tmp_path: Path) -> None:
    """The same words again, by the rank that runs now."""
    job = appended(tmp_path, 1.0)
    job.until(1_031.0)
    append(job.folder / "train.log", TRACEBACK.replace("4711", "4712"), job.clock.now())
    job.until(1_100.0)
    assert [("4712" in one.text or "4712" in (one.message or ""), one.rank) for one in job.words] == [(True, 0)]


def test_what_was_looked_at_late_may_be_all_of_the_run(tmp_path: Path) -> None:
    """A program raises in seconds: what a file held five seconds after its start may be its own."""
    job = appended(tmp_path, 5.0)
    job.until(1_100.0)
    assert [one.rank for one in job.words] == [0]


def test_last_words_that_were_not_read_before_the_next_run_are_dated_before_it(tmp_path: Path) -> None:
    """It raises, and is started again by hand under the same number and into the same log within two seconds."""
    job, log = Job(tmp_path), tmp_path / "files" / "train.log"
    job.clock.seconds = 1_000.0
    append(log, "step 1 loss 0.5\n", job.clock.now())
    job.start(0, log)
    job.until(1_011.0)
    append(log, TRACEBACK, job.clock.now())
    job.tree.remove(FIRST)
    job.until(1_012.0)
    again, began_at = FIRST + 7, job.clock.now()
    job.tree.add(
        again, 1, {"RANK": 0, "FAULTHOUND_JOB": "a", "FAULTHOUND_ATTEMPT": 0}, start=int(100 * job.clock.seconds)
    )
    (job.tree.root / str(again) / "fd").mkdir()
    (job.tree.root / str(again) / "fd" / "1").symlink_to(log)
    job.until(1_013.0)
    append(log, "loading the model\n", job.clock.now())
    job.until(1_050.0)
    assert [(one.exception, one.rank) for one in job.words] == [("ValueError", 0)]
    assert (job.words[0].at or 0.0) < began_at - 1.0
