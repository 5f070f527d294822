"""Stacks live: real py-spy on real ranks, at a rate that is earned, and bounded whatever py-spy does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.files import programs
from collectors.live import NothingToCollect, Request
from collectors.live.sources.host import Host, Roots
from collectors.live.stacks import CHILD_EVERY_SECONDS, MOST_STUCK, RANK_EVERY_SECONDS, SAVED_SECONDS, Stacks, program
from collectors.records import StackDump, Unread
from tests.support.bounds import in_time
from tests.support.followed_ranks import Only
from tests.support.process_tree import BOOTED_AT, Clock, ProcessTree

pytestmark = pytest.mark.system

PROGRAM = """
import subprocess, sys, time

def waiting_for_the_others():
    print(flush=True)
    time.sleep(60)

if "child" in sys.argv:
    subprocess.Popen([sys.executable, "-c", "import time\\ndef load(): time.sleep(60)\\nload()"])
    time.sleep(0.3)
waiting_for_the_others()
"""

needs_pyspy = pytest.mark.skipif(program() is None, reason="py-spy is not installed")
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="py-spy needs root to read processes that are not its children"
)


class Ranks:
    """Real ranks of one job, and the host that sees only them."""

    def __init__(self) -> None:
        self.job = f"test-{os.getpid()}-{time.monotonic_ns()}"
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, rank: int, *words: str, program: str = PROGRAM) -> subprocess.Popen[bytes]:
        """Start one rank, and return once it waits."""
        environment = {**os.environ, "RANK": str(rank), "FAULTHOUND_JOB": self.job, "FAULTHOUND_ROLE": "trainer"}
        process = subprocess.Popen(
            [sys.executable, "-c", program, *words], env=environment, stdout=subprocess.PIPE, start_new_session=True
        )
        self.processes.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    def host(self, **options: object) -> Only:
        """Return this machine, as far as it is this job."""
        made = Only("gpu-7", clock=Clock(), options={"stacks": options})
        made.job = self.job
        return made

    def end(self) -> None:
        """Leave nothing behind."""
        for process in self.processes:
            os.killpg(process.pid, 9)
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ranks]:
    """Real ranks that end with the test; an answer's two dumps come without a pause between them."""
    monkeypatch.setattr("collectors.live.stacks.BETWEEN_SECONDS", 0.0)
    made = Ranks()
    yield made
    made.end()


def dumps(found: list[object]) -> list[StackDump]:
    """The stacks of a run."""
    return [one for one in found if isinstance(one, StackDump)]


def script(path: Path, text: str) -> str:
    """A program that stands in for py-spy."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@needs_pyspy
@needs_root
def test_when_asked_every_rank_and_its_children_are_looked_at_twice(ranks: Ranks) -> None:
    """Each dump has its rank, job, role and instant; a child has its parent, its rank's own process has none."""
    first, second = ranks.start(0, "child"), ranks.start(1)
    found = dumps(list(Stacks(ranks.host())(Request("stacks"))))
    own = [(one.rank, one.pid, one.parent_pid) for one in found if one.parent_pid is None]
    assert own == 2 * [(0, first.pid, None), (1, second.pid, None)]
    children = [one for one in found if one.parent_pid is not None]
    assert [(one.rank, one.parent_pid) for one in children] == 2 * [(0, first.pid)]
    assert any(frame.function == "load" for frame in children[0].threads[0].frames)
    assert {(one.job, one.role, one.attempt, one.tool) for one in found} == {(ranks.job, "trainer", 0, "py-spy")}
    assert found[0].threads[0].frames[0].function == "waiting_for_the_others"
    assert {one.at for one in found} == {BOOTED_AT + 1000.0}


SERVING = """
import queue, socket, socketserver, threading

class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        print(flush=True)
        self.request.recv(1)

server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = socket.create_connection(server.server_address)
queue.Queue().get()
"""


@needs_pyspy
@needs_root
def test_threads_that_wait_on_sockets_are_shown_so(ranks: Ranks) -> None:
    """A server's threads in C calls, of which no frame is seen; one that waits for another thread is not blocked on a socket."""
    ranks.start(0, program=SERVING)
    found = dumps(list(Stacks(ranks.host())(Request("stacks"))))[-1]
    calls = {one.frames[0].function.split(".")[-1]: [wait.call for wait in one.sockets] for one in found.threads}
    assert (calls["handle"], calls["wait"]) == (["recvfrom"], [])
    assert calls["select"] in (["poll"], ["select"])


@needs_pyspy
@needs_root
def test_only_the_ranks_asked_for_are_looked_at(ranks: Ranks) -> None:
    """A list of ranks chooses; a list of which none is here says so."""
    ranks.start(0)
    ranks.start(1)
    collect = Stacks(ranks.host())
    assert {one.rank for one in dumps(list(collect(Request("stacks", {"ranks": [1, 7]}))))} == {1}
    with pytest.raises(NothingToCollect, match=r"none of the ranks \[7\]"):
        list(collect(Request("stacks", {"ranks": [7]})))
    with pytest.raises(NothingToCollect, match="no rank of job other runs here"):
        list(collect(Request("stacks", {"job": "other"})))


@needs_pyspy
@needs_root
def test_c_frames_come_only_when_asked_for(ranks: Ranks) -> None:
    """Without ``native`` no frame is C's; with it the sleep shows as what it is in the C library."""
    ranks.start(0)
    collect = Stacks(ranks.host())
    plain = dumps(list(collect(Request("stacks", {"native": "yes"}))))
    assert not any(".so" in frame.file for one in plain for frame in one.threads[0].frames)
    native = dumps(list(collect(Request("stacks", {"native": True}))))
    assert native
    assert any("nanosleep" in frame.function for frame in native[0].threads[0].frames)


@needs_pyspy
@needs_root
def test_a_stopped_rank_gives_its_stack_all_the_same(ranks: Ranks) -> None:
    """Nothing needs to be paused, and where C frames would need it they are left out."""
    process = ranks.start(0)
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    for arguments in ({}, {"native": True}):
        found = dumps(list(Stacks(ranks.host())(Request("stacks", arguments))))
        assert [one.rank for one in found] == [0, 0]
        assert found[0].threads[0].frames[0].function == "waiting_for_the_others"
    assert Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


@needs_pyspy
@needs_root
def test_a_rank_that_is_no_python_is_reported_and_costs_no_process_else(ranks: Ranks) -> None:
    """Of a shell's ``sleep`` there is no Python stack: one line says so, and the other rank has its stack."""
    environment = {**os.environ, "RANK": "0", "FAULTHOUND_JOB": ranks.job}
    ranks.processes.append(
        subprocess.Popen(["sleep", "60"], env=environment, stdout=subprocess.PIPE, start_new_session=True)
    )
    ranks.start(1)
    found = list(Stacks(ranks.host())(Request("stacks")))
    assert {one.rank for one in dumps(list(found))} == {1}
    (reported,) = (one for one in found if isinstance(one, Unread))
    assert reported.rank == 0
    assert reported.reason.startswith("no stack of rank 0, process")


@needs_pyspy
@needs_root
def test_unasked_a_rank_is_looked_at_once_a_minute(ranks: Ranks) -> None:
    """Within two minutes of runs every two seconds each of three ranks has two dumps, spread, and its child one at most."""
    for rank in range(3):
        ranks.start(rank, *(["child"] if rank == 0 else []))
    host = ranks.host()
    collect = Stacks(host)
    assert isinstance(host.clock, Clock)
    taken: list[StackDump] = []
    for _ in range(int(2 * RANK_EVERY_SECONDS / 2) + 1):
        taken += dumps(list(collect(None)))
        host.clock.seconds += 2.0
    own = sorted(one.rank or 0 for one in taken if one.parent_pid is None)
    assert own == [0, 0, 1, 1, 2, 2]
    assert sum(one.parent_pid is not None for one in taken) <= 1
    assert CHILD_EVERY_SECONDS > 2 * RANK_EVERY_SECONDS


@pytest.mark.system
def test_looks_are_earned(tmp_path: Path, ranks: Ranks) -> None:
    """A py-spy that burns half a second a dump is started only as often as 0.3 % of a core pay for."""
    for rank in range(4):
        ranks.start(rank)
    burn = f"exec {sys.executable} -c 'import time; t = time.process_time()\nwhile time.process_time() < t + 0.3: pass'"
    host = ranks.host(program=script(tmp_path / "py-spy", f"echo x >> {tmp_path}/count; {burn}"))
    collect = Stacks(host)
    assert isinstance(host.clock, Clock)
    for _ in range(100):
        list(collect(None))
        host.clock.seconds += 8.0
    looks = len((tmp_path / "count").read_text().split())
    assert 2 <= looks <= (800 * 0.003 + SAVED_SECONDS) / 0.3 + 1


def test_a_pyspy_that_hangs_or_floods_is_ended(tmp_path: Path) -> None:
    """Its time and its output are bounded, what it started is not waited for, and its CPU time is counted."""
    began_at = time.monotonic()
    ran = programs.run([script(tmp_path / "hang", "exec sleep 60")], 0.3)
    assert (ran.code, ran.stuck) == (None, None)
    assert in_time(time.monotonic() - began_at, 2.0)
    ran = programs.run([script(tmp_path / "flood", "exec cat /dev/zero")], 10.0)
    assert ran.code is None
    assert programs.MAX_OUTPUT_BYTES < len(ran.output) < programs.MAX_OUTPUT_BYTES + (1 << 20)
    assert ran.cpu_seconds > 0.0
    assert in_time(ran.cpu_seconds, 10.0)


def test_a_hanging_pyspy_is_reported_every_rank(tmp_path: Path, ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer comes within its time and says of whom there is no stack."""
    monkeypatch.setattr("collectors.live.stacks.DUMP_SECONDS", 0.2)
    for rank in range(3):
        ranks.start(rank)
    collect = Stacks(ranks.host(program=script(tmp_path / "py-spy", "exec sleep 60")))
    unread = [
        one for one in collect(Request("stacks")) if isinstance(one, Unread)
    ]  # another test may have stopped a process
    assert [(one.rank, one.outcome) for one in unread] == [(0, "limit"), (1, "limit"), (2, "limit")]


def test_no_permission_is_reported_and_no_failure(tmp_path: Path, ranks: Ranks) -> None:
    """Unasked it is nothing to collect, with what to do; asked it is said of each rank."""
    ranks.start(0)
    refuse = script(
        tmp_path / "py-spy", "echo 'Error: Permission Denied: Try running again with elevated permissions' >&2; exit 1"
    )
    host = ranks.host(program=refuse)
    collect = Stacks(host)
    assert isinstance(host.clock, Clock)
    list(collect(None))
    host.clock.seconds += 61
    with pytest.raises(NothingToCollect, match="CAP_SYS_PTRACE"):
        list(collect(None))
    (reported,) = (one for one in collect(Request("stacks")) if isinstance(one, Unread))
    assert reported.outcome == "refused"


def test_stuck_pyspys_stop_further_ones(ranks: Ranks) -> None:
    """Where some could not even be killed nothing further is started, until they end."""
    ranks.start(0)
    collect = Stacks(ranks.host())
    sleepers = [subprocess.Popen(["sleep", "60"]) for _ in range(MOST_STUCK)]
    collect._stuck = list(sleepers)
    with pytest.raises(NothingToCollect, match="hang in the kernel"):
        list(collect(Request("stacks")))
    for sleeper in sleepers:
        sleeper.kill()
        sleeper.wait()
    list(collect(None))
    assert collect._stuck == []


def test_nothing_to_look_at_and_nothing_to_look_with(tmp_path: Path) -> None:
    """No rank, no py-spy, and a tree whose numbers are not this machine's: each is said, none fails."""
    tree = ProcessTree(tmp_path / "proc")
    tree.add(os.getpid(), 1, {"RANK": 0})
    with pytest.raises(NothingToCollect, match="no training process"):
        list(Stacks(Host("gpu-7", Roots(proc=tree.root), options={"stacks": {"program": "/bin/true"}}))(None))
    collect = Stacks(Host("gpu-7", options={"stacks": {"program": "/bin/true"}}))
    collect._program = ""
    with pytest.raises(NothingToCollect, match="py-spy is not installed"):
        list(collect(None))
