"""Processes live: who ended first, how and when; who was stopped; and what an agent says that cannot hear the kernel."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collectors.live import NothingToCollect
from collectors.live.process import Processes
from collectors.live.sources.host import Roots
from collectors.records import ProcessState
from tests.support.followed_ranks import Only, Ranks, ends, follower, needs_events, states

pytestmark = pytest.mark.system


@pytest.mark.parametrize("events", [pytest.param(True, marks=needs_events), False], ids=["events", "pidfd"])
def test_who_ends_first_how_and_when(ranks: Ranks, events: bool) -> None:
    """An exit code and a signal are reported for the right ranks, in order, at their instants."""
    first, second, third = ranks.start(0), ranks.start(1), ranks.start(2, 0.6, 3)
    collect = follower(ranks, events=events)
    assert {one.rank: one.state for one in states(list(collect(None)))}.keys() == {0, 1, 2}
    second.kill()
    killed_at = time.time()
    reported = ends(collect, 2)
    assert [(one.rank, one.pid, one.exit_code, one.signal) for one in reported] == [
        (1, second.pid, None, 9),
        (2, third.pid, 3, None),
    ]
    assert abs((reported[0].at or 0.0) - killed_at) < (0.25 if events else 1.0)
    assert reported[0].at is not None
    assert reported[1].at is not None
    assert reported[0].at < reported[1].at
    assert (reported[0].job, reported[0].parent_pid) == (ranks.job, None)
    assert first.poll() is None


@needs_events
def test_deaths_between_two_runs_come_in_their_order(ranks: Ranks) -> None:
    """Eight ranks that end within one interval are reported in the order of their ends, with the gaps between them."""
    started = {rank: ranks.start(rank) for rank in range(8)}
    collect = follower(ranks)
    list(collect(None))
    order = [5, 2, 7, 0, 1, 6, 3, 4]
    for rank in order:
        started[rank].kill()
        started[rank].wait()
        time.sleep(0.02)
    reported = ends(collect, 8)
    assert [one.rank for one in reported] == order
    instants = [one.at or 0.0 for one in reported]
    assert all(0.015 < later - earlier < 0.5 for earlier, later in itertools.pairwise(instants))


def test_a_rank_that_is_looked_at_while_it_ends_is_reported(tmp_path: Path) -> None:
    """With much to give back a process is alive without an environment for a while: its end is reported all the same."""
    proc = tmp_path / "proc"
    proc.mkdir()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() and entry.name not in {"self", "thread-self"}:
            (proc / entry.name).symlink_to(entry)
    code = "import os, socket, sys; kept = [socket.socket() for _ in range(500)], b'x' * (100 << 20); print(flush=True)"
    code += "; sys.stdin.readline(); os._exit(3)"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={"RANK": "0", "WORLD_SIZE": "1", "FAULTHOUND_JOB": "ending"},
    ) as rank:  # fmt: skip
        assert rank.stdout is not None
        rank.stdout.readline()
        (proc / str(rank.pid)).symlink_to(f"/proc/{rank.pid}")
        host = Only("gpu-0", Roots(proc=proc))
        host.job = "ending"
        collect = Processes(host)
        assert [row.rank for row in states(list(collect(None)))] == [0]
        assert rank.stdin is not None
        rank.stdin.write(b"\n")
        rank.stdin.flush()

        reported: list[ProcessState] = []
        with contextlib.suppress(NothingToCollect):
            while not reported:  # as often as it can be read
                reported = [one for one in states(list(collect(None))) if one.state == "X"]
        assert [(one.rank, one.exit_code) for one in reported] == [(0, 3)]


def test_a_run_that_is_cut_costs_no_end(ranks: Ranks) -> None:
    """Of four ranks that ended before a run which its bound ended after the first, the others come with the next run."""
    started = [ranks.start(rank) for rank in range(4)]
    collect = follower(ranks, events=False)
    list(collect(None))
    for process in started:
        process.kill()
        process.wait()

    cut = iter(collect(None))
    reported = [next(cut)]
    cut.close()  # type: ignore[attr-defined]
    reported += ends(collect, 3)

    assert sorted(one.rank for one in states(reported)) == [0, 1, 2, 3]


@pytest.mark.parametrize("events", [True, False], ids=["events", "pidfd"])
def test_a_process_that_was_long_reaped_still_reports_how_it_ended(ranks: Ranks, events: bool) -> None:
    """Its parent has waited for it: the kernel's event, or from Linux 6.15 on the pidfd, reports its code all the same."""
    process = ranks.start(0, 2.0, 7)
    collect = follower(ranks, events=events)
    list(collect(None))
    process.wait()
    release = tuple(int(part) for part in os.uname().release.split(".")[:2])
    (reported,) = ends(collect, 1)
    known = collect._exits.exact or release >= (6, 15)
    assert reported.exit_code == (7 if known else None)


def test_a_stopped_rank_is_reported_within_a_run_and_again_when_it_goes_on(ranks: Ranks) -> None:
    """SIGSTOP leaves no trace in any dump: the state is reported at once, with where it waits, not with the next table."""
    process = ranks.start(0)
    ranks.start(1)
    collect = follower(ranks)
    list(collect(None))
    assert states(list(collect(None))) == []
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    (stopped,) = states(list(collect(None)))
    assert (stopped.rank, stopped.state, stopped.pid) == (0, "T", process.pid)
    assert os.geteuid() != 0 or "stop" in (stopped.wait_channel or "")
    assert states(list(collect(None))) == []
    process.send_signal(signal.SIGCONT)
    until = time.monotonic() + 60
    while not (again := states(list(collect(None)))) and time.monotonic() < until:
        time.sleep(0.02)
    assert again[0].state in {"S", "R"}


def test_a_child_that_is_killed_is_a_child_of_its_rank(ranks: Ranks) -> None:
    """A data loader's worker that the kernel kills is reported with its parent, and the rank lives on."""
    program = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); print(p.pid, flush=True); p.wait(); import time; time.sleep(60)"  # noqa: E501
    process = ranks.start(0, program=program)
    collect = follower(ranks)
    until = time.monotonic() + 60
    while not (below := collect._host.process_table.descendants(process.pid)) and time.monotonic() < until:
        list(collect(None))
        time.sleep(0.02)
    list(collect(None))
    os.kill(below[0].pid, 9)
    (reported,) = ends(collect, 1)
    assert (reported.rank, reported.pid, reported.parent_pid, reported.signal) == (0, below[0].pid, process.pid, 9)
    assert process.poll() is None
