"""Processes live: who ended first, how and when; who was stopped; and what an agent says that cannot hear the kernel."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collectors.live import Cursor, NothingToCollect, Readings, Request, Yielded
from collectors.live.process import Processes
from collectors.live.sources.exits import MOST_WATCHED, ExitWatcher, ProcessExit
from collectors.live.sources.host import Host, Roots
from collectors.live.sources.ranks import TrainingProcess
from collectors.records import ProcessState
from tests.support.process_tree import BOOTED_AT, ProcessTree

pytestmark = pytest.mark.system

CODE = "import os, sys, time; print(flush=True); time.sleep(float(sys.argv[1])); os._exit(int(sys.argv[2]))"


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> float:
        """Return UTC seconds."""
        return BOOTED_AT + self.seconds

    def monotonic(self) -> float:
        """Return seconds since boot."""
        return self.seconds


class Ranks:
    """Real processes with ranks of one job."""

    def __init__(self) -> None:
        self.job = f"test-{os.getpid()}-{time.monotonic_ns()}"
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, rank: int, seconds: float = 60.0, code: int = 0, program: str = CODE) -> subprocess.Popen[bytes]:
        """Start one rank, and return once it runs its program."""
        environment = {**os.environ, "RANK": str(rank), "FAULTHOUND_JOB": self.job}
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(seconds), str(code)], env=environment, stdout=subprocess.PIPE
        )
        self.processes.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    def end(self) -> None:
        """Leave nothing behind."""
        for process in self.processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    """Real ranks that end with the test."""
    made = Ranks()
    yield made
    made.end()


class Only(Host):
    """This machine, with the training processes of one job: other tests may run beside this one."""

    job = ""

    def training(self) -> tuple[TrainingProcess, ...]:
        """Look now."""
        return tuple(one for one in self.process_table.scan() if one.job == self.job)


def follower(ranks: Ranks, *, events: bool = True) -> Processes:
    """The collector on this machine."""
    host = Only("gpu-7")
    host.job = ranks.job
    made = Processes(host)
    if not events:
        made._exits = ExitWatcher(events=False)
    return made


def states(found: list[Yielded]) -> list[ProcessState]:
    """The records of a run."""
    return [one for one in found if isinstance(one, ProcessState)]


def ends(collect: Callable[[None], object], count: int) -> list[ProcessState]:
    """Run until so many ends have been reported."""
    reported: list[ProcessState] = []
    until = time.monotonic() + 60
    while len(reported) < count and time.monotonic() < until:
        try:
            reported += [one for one in states(list(collect(None))) if one.state == "X"]  # type: ignore[call-overload]
        except NothingToCollect:
            break
        time.sleep(0.02)
    return reported


needs_events = pytest.mark.skipif(
    not ExitWatcher().exact, reason="process events need CAP_NET_ADMIN in the first namespaces"
)


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


def test_states_come_every_ten_seconds_and_at_once_when_asked(tmp_path: Path) -> None:
    """A row a rank every 10 s with its wait channel and CPU time, one a child every minute, readings beside them."""
    tree = ProcessTree(tmp_path / "proc")
    tree.add(20, 1, {"RANK": 0, "FAULTHOUND_JOB": "a"}, state="D")
    tree.add(21, 20, {"RANK": 0, "FAULTHOUND_JOB": "a"}, name="pt_data_worker")
    clock = Clock()
    collect = Processes(Host("gpu-7", Roots(proc=tree.root), clock))
    found = list(collect(None))
    rank, child = states(found)
    assert (rank.state, rank.wait_channel, rank.cpu_seconds, rank.started_at) == (
        "D",
        "futex_do_wait",
        2.0,
        BOOTED_AT + 10,
    )
    assert (child.rank, child.parent_pid, child.command) == (0, 20, "pt_data_worker")
    gauges, counters = (one for one in found if isinstance(one, Readings))
    assert (gauges.scope, gauges.devices, gauges.metrics) == ("process", ["20"], ("resident_bytes", "threads"))
    assert gauges.values == [(2560.0 * os.sysconf("SC_PAGE_SIZE"), 3.0)]
    assert (counters.type, counters.values) == ("<i8", [(2000, 0)])
    clock.seconds += 1
    assert list(collect(None)) == []
    assert [one.pid for one in states(list(collect(Request("read"))))] == [20, 21]
    clock.seconds += 11
    assert [one.pid for one in states(list(collect(None)))] == [20]
    clock.seconds += 60
    assert [one.pid for one in states(list(collect(None)))] == [20, 21]


def test_what_the_kernel_has_killed_for_memory_is_reported_with_life_and_end(tmp_path: Path) -> None:
    """The node's count stands beside each state and each end, which shows whether a SIGKILL was for want of memory."""
    tree = ProcessTree(tmp_path / "proc")
    (tree.root / "vmstat").write_text("nr_free_pages 7\noom_kill 3\n")
    tree.add(2_000_000_020, 1, {"RANK": 0, "FAULTHOUND_JOB": "a"})
    collect = Processes(Host("gpu-7", Roots(proc=tree.root), Clock()))
    alive = states(list(collect(None)))
    (tree.root / "vmstat").write_text("nr_free_pages 7\noom_kill 4\n")
    tree.add(2_000_000_020, 1, state="Z", status=9)
    dead = states(list(collect(None)))

    assert [(one.state, one.oom_kills_total) for one in alive + dead] == [("S", 3), ("X", 4)]


def test_without_a_pidfd_the_table_reports_the_end(tmp_path: Path) -> None:
    """In a tree whose numbers are not this machine's: a zombie's exit status, a vanished process, a reused number."""
    tree = ProcessTree(tmp_path / "proc")
    for rank in range(4):
        tree.add(2_000_000_020 + rank, 1, {"RANK": rank, "FAULTHOUND_JOB": "a"})
    collect = Processes(Host("gpu-7", Roots(proc=tree.root), Clock()))
    list(collect(None))
    tree.add(2_000_000_020, 1, state="Z", status=9)
    tree.add(2_000_000_021, 1, state="Z", status=3 << 8)
    tree.remove(2_000_000_022)
    tree.add(2_000_000_023, 1, start=7777, name="sleep")
    reported = {one.rank: (one.state, one.exit_code, one.signal, one.at) for one in states(list(collect(None)))}
    now = BOOTED_AT + 1000.0
    assert reported == {
        0: ("X", None, 9, now),
        1: ("X", 3, None, now),
        2: ("X", None, None, now),
        3: ("X", None, None, now),
    }
    with pytest.raises(NothingToCollect):
        list(collect(None))


def test_a_launchers_end_is_not_its_first_ranks(tmp_path: Path) -> None:
    """It looked like rank 0 before it had started its ranks: from then on they are followed, and it no more."""
    tree = ProcessTree(tmp_path / "proc")
    step = {"SLURM_PROCID": 0, "SLURM_STEP_ID": 0, "SLURM_JOB_ID": 1}
    tree.add(2_000_000_010, 1, step, command="python my_launcher.py")
    clock = Clock()
    collect = Processes(Host("gpu-7", Roots(proc=tree.root), clock))
    assert [one.pid for one in states(list(collect(None)))] == [2_000_000_010]
    for rank in range(2):
        tree.add(2_000_000_020 + rank, 2_000_000_010, {**step, "RANK": rank})
    clock.seconds += 11
    assert {one.rank: one.pid for one in states(list(collect(None)))} == {0: 2_000_000_020, 1: 2_000_000_021}
    tree.remove(2_000_000_010)
    clock.seconds += 11
    assert all(one.state == "S" for one in states(list(collect(None))))


def test_what_ended_while_no_agent_looked_is_reported_by_the_next(tmp_path: Path) -> None:
    """The ranks that were followed are kept: of those that are gone the next agent says so, once, on the same boot."""
    tree = ProcessTree(tmp_path / "proc")
    boot = tree.root / "sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("first\n")
    tree.add(20, 1, {"RANK": 0, "FAULTHOUND_JOB": "a"})
    tree.add(21, 1, {"RANK": 1, "FAULTHOUND_JOB": "a"})
    (cursor,) = (one for one in Processes(Host("gpu-7", Roots(proc=tree.root)))(None) if isinstance(one, Cursor))
    tree.remove(21)
    after = Processes(Host("gpu-7", Roots(proc=tree.root), cursors={"process": cursor.value}))
    found = list(after(None))
    assert [(one.rank, one.state) for one in states(found)] == [(1, "X"), (0, "S")]
    assert isinstance(found[-1], Cursor)
    assert all(one.state != "X" for one in states(list(after(Request("read")))))
    boot.write_text("second\n")
    rebooted = Processes(Host("gpu-7", Roots(proc=tree.root), cursors={"process": cursor.value}))
    assert [one.state for one in states(list(rebooted(None)))] == ["S"]


@pytest.mark.parametrize(
    "kept", [7, {"ranks": 3}, {"boot_id": None, "ranks": [[1]]}, {"boot_id": None, "ranks": "abc"}]
)
def test_a_cursor_of_another_making_is_no_cursor(tmp_path: Path, kept: object) -> None:
    """What an earlier or later version kept in another shape is passed over."""
    tree = ProcessTree(tmp_path / "proc")
    tree.add(20, 1, {"RANK": 0, "FAULTHOUND_JOB": "a"})
    collect = Processes(Host("gpu-7", Roots(proc=tree.root), cursors={"process": kept}))
    assert [one.rank for one in states(list(collect(None)))] == [0]


@needs_events
def test_a_flood_of_other_exits_hides_no_rank(ranks: Ranks) -> None:
    """Two thousand short processes of others between two runs: the rank's end still has its code and instant."""
    process = ranks.start(0)
    collect = follower(ranks)
    list(collect(None))
    subprocess.run(["sh", "-c", "i=0; while [ $i -lt 2000 ]; do (:); i=$((i+1)); done"], check=True, timeout=60)
    process.kill()
    (reported,) = ends(collect, 1)
    assert (reported.rank, reported.signal) == (0, 9)


def test_descriptors_are_bounded_and_given_back() -> None:
    """Not more than so many processes are watched at once, and what is forgotten holds no descriptor."""
    gc.collect()  # what other tests left open would be closed in the middle of this one
    before = len(list(Path("/proc/self/fd").iterdir()))
    exits = ExitWatcher(events=False)
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        assert exits.watch(process.pid)
        assert exits.watch(process.pid)
        exits._descriptors.update({-number: -1 for number in range(1, MOST_WATCHED)})
        assert not exits.watch(os.getpid())
        for number in range(1, MOST_WATCHED):
            del exits._descriptors[-number]
        exits.forget(process.pid)
        exits.forget(process.pid)
        process.kill()
    assert not exits.watch(process.pid)
    exits.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_status_is_a_code_or_a_signal() -> None:
    """As wait(2) packs them; a core dump's bit changes nothing, and an unknown status is neither."""
    assert [(ProcessExit(status, 0.0).exit_code, ProcessExit(status, 0.0).signal) for status in (0, 0x300, 9, 0x86, None)] == [
        (0, None), (3, None), (None, 9), (None, 6), (None, None),
    ]  # fmt: skip


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it makes a network namespace")
def test_no_process_events_is_no_failure() -> None:
    """In a network namespace of its own, as in a container, the kernel reports no exits: only pidfds do."""
    code = "from collectors.live.sources.exits import ExitWatcher; print(ExitWatcher().exact)"
    command = ["unshare", "--net", sys.executable, "-c", code]
    reported = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if reported.returncode:
        pytest.skip(f"no network namespace can be made: {reported.stderr.strip()[-200:]}")
    assert reported.stdout == "False\n"
