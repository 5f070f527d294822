"""Which processes train while they end, execute another program, hang or come by the thousand."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collectors.files.process_stat import parse
from collectors.live import NothingToCollect, Request
from collectors.live.placement import Placements
from collectors.live.sources.bounded_reading import MOST_STUCK, WAIT_SECONDS
from collectors.live.sources.host import Host, Roots
from collectors.live.sources.process_table import SCANS_OF_THE_YOUNG, ProcessTable
from collectors.live.sources.ranks import TrainingProcess
from collectors.records import Placement, Unread
from tests.support.bounds import in_time
from tests.support.process_rows import SLURM, pids, scanned, torchrun
from tests.support.process_tree import BOOTED_AT, Clock, ProcessTree


def test_the_dead_are_no_ranks_and_their_orphans_do_not_take_their_place(tree: ProcessTree) -> None:
    """A killed trainer leaves loaders behind that have its rank: they are not it, nor what they start."""
    for rank in range(2):
        tree.add(20 + rank, 1, torchrun(rank))
        tree.add(30 + rank, 20 + rank, torchrun(rank), name="pt_data_worker")
    table = ProcessTable(tree.root)
    assert pids(scanned(table)) == {0: 20, 1: 21}
    tree.add(21, 1, state="Z")
    assert pids(scanned(table)) == {0: 20}
    tree.remove(21)
    tree.add(31, 1, torchrun(1), name="pt_data_worker")
    tree.add(32, 31, torchrun(1))
    assert pids(scanned(table)) == {0: 20}


def test_a_launcher_that_was_seen_too_early_hides_no_rank(tree: ProcessTree) -> None:
    """At first it has no children and looks like rank 0, then one child of that rank, then all: the children are the ranks."""
    step = {**SLURM, "SLURM_PROCID": 0, "SLURM_STEP_ID": 0}
    tree.add(10, 1, step, command="python my_launcher.py")
    table = ProcessTable(tree.root)
    assert pids(scanned(table)) == {0: 10}
    tree.add(20, 10, {**step, "RANK": 0, "LOCAL_RANK": 0})
    tree.add(21, 10, step, image=1)
    assert pids(scanned(table)) == {0: 10}
    tree.add(21, 10, {**step, "RANK": 1, "LOCAL_RANK": 1}, image=2)
    assert pids(scanned(table)) == {0: 20, 1: 21}
    tree.remove(10)
    tree.add(20, 1, {**step, "RANK": 0, "LOCAL_RANK": 0})
    tree.add(21, 1, {**step, "RANK": 1, "LOCAL_RANK": 1}, image=2)
    assert pids(scanned(table)) == {0: 20, 1: 21}


def test_a_number_that_was_given_to_another_process_is_another_process(tree: ProcessTree) -> None:
    """The start time distinguishes them: the new one's environment is read."""
    tree.add(20, 1, torchrun(0), start=1000)
    table = ProcessTable(tree.root)
    assert pids(scanned(table)) == {0: 20}
    tree.add(20, 1, torchrun(5), start=2000)
    assert pids(scanned(table)) == {5: 20}
    tree.add(20, 1, {}, start=3000)
    assert scanned(table) == ()


def test_an_environment_is_read_once_unless_another_program_is_executed(tree: ProcessTree) -> None:
    """setproctitle writes over it, which changes nothing; exec brings another one."""
    tree.add(20, 1, torchrun(0), image=7)
    table = ProcessTable(tree.root)
    assert pids(scanned(table)) == {0: 20}
    tree.add(20, 1, b"ray::WorkerDict.update" + bytes(80), image=7)
    assert pids(scanned(table)) == {0: 20}
    tree.add(20, 1, torchrun(4), image=8)
    assert pids(scanned(table)) == {4: 20}


def test_a_rank_that_is_about_to_end_stays_the_rank(tree: ProcessTree) -> None:
    """Between giving back its memory and its end it has no environment; who let go of it then would miss how it ended."""
    tree.add(20, 1, torchrun(0), image=7)
    table = ProcessTable(tree.root)
    scanned(table)
    tree.add(20, 1, b"", state="R", image=0)
    assert pids(scanned(table)) == {0: 20}


def test_a_settled_process_that_becomes_a_rank_is_found_a_little_later(tree: ProcessTree) -> None:
    """What has long been no rank is read in every so many scans only, and found then."""
    tree.add(20, 1, {}, name="sleep")
    table = ProcessTable(tree.root)
    for _ in range(SCANS_OF_THE_YOUNG + 1):
        assert scanned(table) == ()
    tree.add(20, 1, torchrun(0), start=5000)
    assert any(scanned(table) for _ in range(SCANS_OF_THE_YOUNG))


@pytest.mark.system
def test_a_thousand_processes_cost_little(tree: ProcessTree) -> None:
    """Once they are known, a scan of 1,000 processes with 64 ranks among them takes no longer than 50 ms."""
    for pid in range(100, 1036):
        tree.add(pid, 1, {"PATH": "/usr/bin", "LANG": "C"}, name="sleep")
    for rank in range(64):
        tree.add(2000 + rank, 1, torchrun(rank))
    table = ProcessTable(tree.root)
    seconds = []
    for _ in range(SCANS_OF_THE_YOUNG + 4):
        began_at = time.perf_counter()
        assert len(scanned(table)) == 64
        seconds.append(time.perf_counter() - began_at)
    assert in_time(min(seconds), 0.05)


def test_two_jobs_on_a_node_are_two_placements(tree: ProcessTree) -> None:
    """Each has its own ranks, sizes, devices and shared labels; a second run reports only a change, or a minute later."""
    for rank in range(2):
        tree.add(20 + rank, 1, torchrun(rank, TORCHELASTIC_RUN_ID="a", CUDA_VISIBLE_DEVICES="0,1"), start=1000 + rank)
        tree.add(30 + rank, 1, {"RANK": rank, "WORLD_SIZE": 2, "FAULTHOUND_JOB": "b", "FAULTHOUND_ROLE": "rollout"})
    clock = Clock()
    placed = Placements(Host("gpu-7", Roots(proc=tree.root), clock))
    first, second = placed(None)
    assert isinstance(first, Placement)
    assert isinstance(second, Placement)
    assert first.ranks is not None
    assert (first.job, first.ranks.ranks(), first.pids, first.nodes) == ("a", (0, 1), (20, 21), ("gpu-7", "gpu-7"))
    assert (first.devices, first.local_ranks, first.launcher) == (("0", "1"), (0, 1), "torchrun")
    assert first.started_ats == (BOOTED_AT + 10.0, BOOTED_AT + 10.01)
    assert first.labels["TORCHELASTIC_RUN_ID"] == "a"
    assert (second.job, second.world_size, second.roles) == ("b", 2, ("rollout", "rollout"))
    clock.seconds += 6
    assert list(placed(None)) == []
    assert len(list(placed(Request("read")))) == 2
    tree.remove(31)
    clock.seconds += 6
    (changed,) = placed(None)
    assert isinstance(changed, Placement)
    assert (changed.job, changed.pids) == ("b", (30,))
    clock.seconds += 61
    assert len(list(placed(None))) == 2
    tree.remove(20, 21, 30)
    clock.seconds += 6
    with pytest.raises(NothingToCollect, match="no process here has a rank"):
        list(placed(None))


def test_a_leftover_of_an_earlier_start_does_not_take_its_ranks_place(tree: ProcessTree) -> None:
    """Of two processes with one rank of one attempt the younger is placed."""
    tree.add(20, 1, {"RANK": 0, "FAULTHOUND_JOB": "a"}, start=9000)
    tree.add(21, 1, {"RANK": 0, "FAULTHOUND_JOB": "a"}, start=1000)
    (placement,) = Placements(Host("gpu-7", Roots(proc=tree.root)))(None)
    assert isinstance(placement, Placement)
    assert placement.pids == (20,)


@pytest.mark.system
def test_a_process_that_is_stuck_is_given_up_and_hides_no_process(tree: ProcessTree) -> None:
    """Its environment never comes: the others are found, it is not asked again, and so many of them end the reading."""
    for number in range(MOST_STUCK + 2):
        tree.add(20 + number, 1)
        (tree.root / str(20 + number) / "environ").unlink()
        os.mkfifo(tree.root / str(20 + number) / "environ")
    tree.add(10, 1, torchrun(0))
    table = ProcessTable(tree.root)
    assert pids(scanned(table)) == {0: 10}
    began_at = time.monotonic()
    assert pids(scanned(table)) == {0: 10}
    assert in_time(time.monotonic() - began_at, WAIT_SECONDS)
    tree.add(11, 1, torchrun(1))
    assert pids(scanned(table)) == {0: 10}, "no further read is begun while so many have not returned"
    for number in range(MOST_STUCK):
        os.close(os.open(tree.root / str(20 + number) / "environ", os.O_WRONLY))
        (tree.root / str(20 + number) / "environ").unlink()
        (tree.root / str(20 + number) / "environ").write_bytes(b"RANK=7" if number == 0 else b"")
    for number in range(MOST_STUCK, MOST_STUCK + 2):
        (tree.root / str(20 + number) / "environ").unlink()
    until = time.monotonic() + 60
    while (found := pids(scanned(table))) != {0: 10, 1: 11, 7: 20} and time.monotonic() < until:
        time.sleep(0.05)
    assert found == {0: 10, 1: 11, 7: 20}


def test_a_broken_tree_gives_what_it_has(tree: ProcessTree) -> None:
    """Cut, empty and absent files, and processes that are each other's parents, cost only themselves."""
    tree.add(20, 1, torchrun(0))
    tree.add(21, 22, torchrun(1))
    tree.add(22, 21, torchrun(2))
    tree.add(23, 1, torchrun(3))
    (tree.root / "23/stat").write_bytes(b"23 (python")
    (tree.root / "24").mkdir()
    (tree.root / "stat").unlink()
    (found,) = scanned(ProcessTable(tree.root))
    assert (found.pid, found.started_at) == (20, None)


def test_a_name_may_hold_parentheses_and_spaces() -> None:
    """``a) R 1 (b`` is one process's name, not its state."""
    stat = parse(b"7 (a) R 1 (b) S 3 " + b"0 " * 60)
    assert (stat.pid, stat.name, stat.state, stat.parent_pid) == (7, "a) R 1 (b", "S", 3)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it looks at root's processes as nobody")
def test_environments_that_may_not_be_read_are_reported() -> None:
    """As user nobody, root's Python processes may not be read: that is reported once, with what to do about it."""
    code = """
import os, sys
from collectors.live.sources.host import Host
from collectors.live.placement import Placements
from collectors.live import NothingToCollect
placed = Placements(Host("gpu-7"))  # as root: nobody may be unable to read the interpreter's modules
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for _ in range(2):
    try:
        for record in placed(None): print(type(record).__name__, record.outcome, record.reason)
    except NothingToCollect as nothing:
        print(nothing)
"""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env={"RANK": "0"}) as rank:
        try:
            said = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
            ).stdout.splitlines()
        finally:
            rank.kill()
    assert sum(line.startswith(f"{Unread.__name__} refused") for line in said) == 1
    assert "CAP_SYS_PTRACE" in said[0]
    assert "may not be read" in said[1]


def test_real_processes_are_found_with_their_children() -> None:
    """Two real ranks, one with a child: both are found, the child is below its rank, and none of it is this test."""
    code = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); time.sleep(60)"
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "2", "FAULTHOUND_JOB": f"test-{os.getpid()}"}
    ranks = [
        subprocess.Popen([sys.executable, "-c", code], env={**environment, "RANK": str(rank)}, start_new_session=True)
        for rank in range(2)
    ]
    try:
        table = ProcessTable(Path("/proc"))
        until = time.monotonic() + 60
        found: tuple[TrainingProcess, ...] = ()
        while time.monotonic() < until and not all(len(table.descendants(rank.pid)) == 1 for rank in ranks):
            found = tuple(one for one in scanned(table) if one.job == environment["FAULTHOUND_JOB"])
            time.sleep(0.05)
        assert pids(found) == {0: ranks[0].pid, 1: ranks[1].pid}
        assert abs((found[0].started_at or 0.0) - time.time()) < 30
    finally:
        for rank in ranks:
            os.killpg(rank.pid, 9)
            rank.wait()
