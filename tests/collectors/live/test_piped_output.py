"""Output that goes through a pipe: the file of the only reader is followed where it is the job's user's, and no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from collectors.live import NothingToCollect
from collectors.live.sources.host import Roots
from collectors.live.sources.piped_output import LONGEST_WAIT_SECONDS, PipedOutput
from collectors.live.sources.ranks import TrainingProcess
from collectors.live.steps import JobLogs
from collectors.records import STEP_COLUMNS, Steps
from tests.support.tailed_jobs import JobHost, Node, column, of

PIPE = "pipe:[77]"
ME = os.getuid()
READ, WRITE, BOTH = os.O_RDONLY, os.O_WRONLY, os.O_RDWR
Open = tuple[str | Path, int]
PROGRAM = """
import os, sys, time
print(os.getpid())
print("step 1 loss 0.5", flush=True)
time.sleep(60)
"""


def has(node: Node, pid: int, descriptors: Sequence[Open], *, real: int = ME, effective: int = ME) -> None:
    """Write what a process has open, as whom; ``descriptors``: what each number from 0 on leads to, and its flags."""
    entry = node.folder / "proc" / str(pid)
    if not entry.exists():
        node.process(pid, command="tee\0logs/torchrun.log\0")
    (entry / "fdinfo").mkdir(exist_ok=True)
    for number, (target, flags) in enumerate(descriptors):
        (entry / "fd" / str(number)).unlink(missing_ok=True)
        (entry / "fd" / str(number)).symlink_to(target)
        (entry / "fdinfo" / str(number)).write_text(f"pos:\t0\nflags:\t0{flags | os.O_CLOEXEC:o}\nmnt_id:\t15\n")
    (entry / "status").write_text(f"Name:\ttee\nPPid:\t1\nUid:\t{real}\t{effective}\t{effective}\t{effective}\n")


def rank(node: Node, number: int = 0, pipe: str = PIPE, parent: int = 1, user: int = ME) -> TrainingProcess:
    """Add a rank that writes into a pipe."""
    made = node.rank(number, parent=parent)
    has(node, made.pid, [("/dev/null", READ), (pipe, WRITE), (pipe, WRITE)], real=user, effective=user)
    return made


def reader(node: Node, *files: Path, pid: int = 9000, pipe: str = PIPE, **users: int) -> None:
    """Add ``tee FILE…``."""
    has(
        node,
        pid,
        [(pipe, READ), ("/dev/pts/0", BOTH), ("/dev/pts/0", BOTH), *((file, WRITE) for file in files)],
        **users,
    )


def written(node: Node, name: str = "log", text: str = "step 1 loss 0.5\n") -> Path:
    """Return a log of a user with a line in it."""
    path = node.folder / name
    path.write_text(text)
    return path


def steps(node: Node, collector: JobLogs) -> list[tuple[int | None, float]]:
    """Return rank and number of the steps of a run, none where there is nothing to collect."""
    try:
        found = of(node.run(collector, "steps"), Steps)
    except NothingToCollect:
        return []
    return [(one.rank, number) for one in found for number in column(one, "step", STEP_COLUMNS)]


def test_the_file_behind_a_pipe_is_followed(node: Node) -> None:
    """``| tee log`` is read like ``> log``: the rank is the writer's, new lines come once, and one scan serves all runs."""
    log = written(node)
    rank(node, 3)
    reader(node, log)
    collector = JobLogs(node.host)

    first = steps(node, collector)
    with log.open("a") as file:
        file.write("step 2 loss 0.5\n")
    second = steps(node, collector)

    assert (first, second, collector.pipes.scans) == ([(3, 1.0)], [(3, 2.0)], 1)


def test_the_output_of_a_launcher_through_a_pipe_is_of_all_its_ranks(node: Node) -> None:
    """Under ``torchrun … | tee log`` a line's rank is only what the line says."""
    log = written(node, text="[rank1]: step 1 loss 0.5\nstep 2 loss 0.5\n")
    node.process(50, command="python\0/usr/bin/torchrun\0")
    has(node, 50, [("/dev/null", READ), (PIPE, WRITE), (PIPE, WRITE)])
    for number in (0, 1):
        rank(node, number, parent=50)
    reader(node, log)

    assert sorted(steps(node, JobLogs(node.host)), key=lambda one: one[1]) == [(1, 1.0), (None, 2.0)]


def test_what_a_launcher_reads_it_passes_on(node: Node) -> None:
    """A launcher that reads its ranks' pipes leads to its own output, through ``grep`` to ``tee``, not to its other files."""
    log, state = written(node), written(node, "state", "step 9 loss 0.5\n")
    node.process(50, command="prterun\0")
    has(node, 50, [("/dev/null", READ), ("pipe:[2]", WRITE), ("pipe:[2]", WRITE), (state, WRITE), ("pipe:[1]", READ)])
    rank(node, 0, "pipe:[1]", parent=50)
    has(node, 51, [("pipe:[2]", READ), ("pipe:[3]", WRITE)])
    reader(node, log, pipe="pipe:[3]")

    assert [number for _, number in steps(node, JobLogs(node.host))] == [1.0]


def test_too_many_readers_after_one_another_are_not_followed(node: Node) -> None:
    """The fourth reader's file is left alone, and pipes in a ring end."""
    rank(node, 0, "pipe:[0]")
    for hop in range(3):
        has(node, 60 + hop, [(f"pipe:[{hop}]", READ), (f"pipe:[{hop + 1}]", WRITE)])
    reader(node, written(node), pipe="pipe:[3]")
    rank(node, 1, "pipe:[10]")
    has(node, 70, [("pipe:[10]", READ), ("pipe:[10]", WRITE)])

    assert steps(node, JobLogs(node.host)) == []


@pytest.mark.parametrize(
    "case", ["real", "effective", "owner", "two", "fifo", "device", "to read", "both ways", "three"]
)
def test_no_other_users_reader_or_file_is_followed(node: Node, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader of another user, one of two, and a target that is no file which it writes lead nowhere."""
    monkeypatch.setattr(PipedOutput, "_is_of", lambda *_: True)  # the scan's choice by folder hides no later check
    log, other = written(node), ME + 1
    rank(node, user=other if case == "owner" else ME)
    users = {"real": {"real": other}, "effective": {"effective": other}, "owner": {"real": other, "effective": other}}
    os.mkfifo(node.folder / "fifo")
    target = {"fifo": node.folder / "fifo", "device": Path("/dev/null")}.get(case, log)
    more = [written(node, "b"), written(node, "c")] if case == "three" else []
    reader(node, target, *more, **users.get(case, {}))
    if case == "two":
        reader(node, written(node, "b"), pid=9001)
    flags = {"to read": READ, "both ways": BOTH}.get(case, WRITE)
    (node.folder / "proc/9000/fdinfo/3").write_text(f"pos:\t0\nflags:\t0{flags:o}\n")
    collector = JobLogs(node.host)

    with pytest.raises(NothingToCollect, match="through a pipe"):
        node.run(collector, "steps")
    assert collector.tails.files == {}


def test_a_pipe_without_a_reader_is_looked_at_ever_more_rarely(node: Node) -> None:
    """An hour of runs every 5 s costs nine scans; a reader that comes is found, and one that ends is replaced by the next."""
    log = written(node)
    rank(node)
    collector = JobLogs(node.host)
    for _ in range(720):
        assert steps(node, collector) == []
        node.clock.at += 5.0
    assert collector.pipes.scans == 9  # after 0, 10, 30, 70, … 2,550 s

    reader(node, log)
    node.clock.at += LONGEST_WAIT_SECONDS
    assert steps(node, collector) == [(0, 1.0)]
    (node.folder / "proc/9000/fd/0").unlink()
    reader(node, written(node, "next", "step 5 loss 0.5\n"), pid=9001)
    assert steps(node, collector) == [(0, 5.0)]


def test_a_reader_that_becomes_another_users_is_left(node: Node) -> None:
    """A program that is executed as another user may have inherited the descriptors: its files are followed no more."""
    rank(node)
    reader(node, written(node))
    collector = JobLogs(node.host)
    assert steps(node, collector) == [(0, 1.0)]

    reader(node, written(node, "other", "step 2 loss 0.5\n"), effective=ME + 1)
    assert steps(node, collector) == []


def test_ranks_that_write_files_cause_no_scan(node: Node, tmp_path: Path) -> None:
    """Only an unknown pipe is looked for, and all ranks' pipes of one user in one scan."""
    node.rank(0, output=written(node))
    collector = JobLogs(node.host)
    steps(node, collector)
    assert collector.pipes.scans == 0

    for number in range(1, 9):
        rank(node, number, f"pipe:[{number}]")
        reader(node, written(node, f"log{number}"), pid=9000 + number, pipe=f"pipe:[{number}]")
    assert sorted(number for number, _ in steps(node, collector) if number) == list(range(1, 9))
    assert collector.pipes.scans == 1


@pytest.mark.system
def test_a_real_tee_is_followed_and_no_name_is_resolved(node: Node, tmp_path: Path) -> None:
    """What tee has open is read also after its name was taken by a link to another file."""
    log, secret = tmp_path / "out.log", tmp_path / "secret"
    secret.write_text("step 99 loss 0.5\n")
    script = f'"{sys.executable}" -S -c "$1" 2>&1 | tee "$2" > /dev/null'
    shell = subprocess.Popen(["sh", "-c", script, "sh", PROGRAM, str(log)], start_new_session=True)
    try:
        until = time.monotonic() + 30
        while (not log.exists() or log.read_text().count("\n") < 2) and time.monotonic() < until:
            time.sleep(0.02)
        pid = int(log.read_text().split("\n")[0])
        log.rename(tmp_path / "moved")
        log.symlink_to(secret)
        one = TrainingProcess(pid=pid, rank=3, job="llama-8b")
        node.host = JobHost(node="gpu-0001", roots=Roots(), clock=node.clock, processes=(one,))
        collector = JobLogs(node.host)

        found = steps(node, collector)
        while not found and time.monotonic() < until:  # the shell may not have closed its own end yet
            time.sleep(0.05)
            node.clock.at += LONGEST_WAIT_SECONDS
            found = steps(node, collector)
        assert found == [(3, 1.0)]
        assert {name for _, name in collector.tails.files.values()} == {str(tmp_path / "moved")}
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
