"""What the process collector sends of states, kills for memory and ends that no kernel event reports."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from collectors.live import Cursor, NothingToCollect, Readings, Request
from collectors.live.process import Processes
from collectors.live.sources.exits import MOST_WATCHED, ExitWatcher, ProcessExit
from collectors.live.sources.host import Host, Roots
from tests.support.followed_ranks import Ranks, ends, follower, needs_events, states
from tests.support.process_tree import BOOTED_AT, Clock, ProcessTree

pytestmark = pytest.mark.system


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
