"""The process analyzer: stopped, uninterruptible and absent processes become the right suspects, and nobody else."""

from __future__ import annotations

import pytest

from analyzers.diagnosis.process.process import analyze
from analyzers.model.finding import Finding
from analyzers.model.processes import Owners
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import FlightRecorderDump, Frame, Members, Placement, ProcessState, Record, StackDump, Thread
from service.packaged_knowledge import load

NODES = {rank: f"gpu-{rank // 4}" for rank in range(8)}
SHAPE = Topology(tuple(range(8)), NODES)
BARE = Topology(tuple(range(4)))


def row(whose: int, /, state: str = "S", channel: str | None = None, **more: object) -> ProcessState:
    """A row of that rank's process on its node."""
    known = {
        "pid": 100 + whose,
        "node": NODES[whose],
        "source": f"{NODES[whose]}/ps:{whose + 2}",
        "command": "python train.py",
    }
    return ProcessState(**{**known, "state": state, "wait_channel": channel, **more})  # type: ignore[arg-type]


def dumps(ranks: int = 8) -> list[Record]:
    """Flight-recorder dumps that tie each pid to its rank."""
    return [FlightRecorderDump(rank=rank, pid=100 + rank, node=NODES[rank]) for rank in range(ranks)]


def findings(*records: Record, shape: Topology = SHAPE) -> list[Finding]:
    """Analyze these records."""
    return list(analyze(Window(records=records), shape, load()))


def named(found: list[Finding]) -> dict[str, tuple[int, ...]]:
    """Fault class → ranks."""
    return {one.fault_class: tuple(rank for suspect in one.suspects for rank in suspect.ranks) for one in found}


def test_nothing_and_a_healthy_table_give_nothing() -> None:
    """An empty window and a table of running and sleeping ranks accuse nobody."""
    assert findings() == []
    assert findings(*dumps(), *(row(rank, "SRSR"[rank % 4]) for rank in range(8))) == []


def test_a_stopped_rank_is_named_surely() -> None:
    """State T is evidence no dump gives: the rank, 0.95, with the row as its source."""
    (found,) = findings(*dumps(), *(row(rank, "T" if rank == 5 else "S", "do_signal_stop") for rank in range(8)))
    (suspect,) = found.suspects
    assert (found.fault_class, found.cause, found.family, suspect.ranks) == ("stopped", "machine", "process", (5,))
    assert suspect.strength == 0.95
    assert found.evidence[0].source == "gpu-1/ps:7"


def test_two_stopped_ranks_are_culprits_together() -> None:
    """Both are named, and both are culprits."""
    (found,) = findings(*dumps(), *(row(rank, "T" if rank in {2, 5} else "S") for rank in range(8)))
    assert named([found]) == {"stopped": (2, 5)}
    assert found.together


def test_a_traced_process_is_a_weak_suspect() -> None:
    """A debugger that takes the dumps stops a process for a moment: t is not T."""
    (found,) = findings(*dumps(), *(row(rank, "t" if rank == 5 else "S") for rank in range(8)))
    assert found.suspects[0].strength <= 0.5


@pytest.mark.parametrize(
    ("channel", "cause"),
    [("rpc_wait_bit_killable", "storage"), ("ptlrpc_set_wait", "storage"), ("blk_mq_get_tag", "machine")],
)
def test_waits_for_files_of_one_node_and_of_many(channel: str, cause: str) -> None:
    """One rank waits for the server, or for its machine's disk; ranks of two machines wait for what both have."""
    (one,) = findings(*dumps(), *(row(rank, "D" if rank == 6 else "S", channel) for rank in range(8)))
    assert (one.cause, named([one]).popitem()[1]) == (cause, (6,))
    (many,) = findings(*dumps(), *(row(rank, "D" if rank in {1, 6} else "S", channel) for rank in range(8)))
    assert (many.cause, many.suspects[0].kind) == ("storage", "storage")


@pytest.mark.parametrize(
    ("channel", "words"),
    [
        ("rpc_wait_bit_killable", "NFS"),
        ("nfs_wait_bit_killable", "NFS"),
        ("nfs4_wait_clnt_recover", "NFS"),
        ("wait_on_commit", "NFS"),
        ("request_wait_answer", "FUSE"),
        ("fuse_wait_on_page_writeback", "FUSE"),
        ("ptlrpc_set_wait", "Lustre"),
        ("cl_sync_io_wait", "Lustre"),
        ("cl_lock_enqueue_wait", "Lustre"),
        ("obd_get_request_slot", "Lustre"),
        ("obd_get_mod_rpc_slot", "Lustre"),
        ("osc_extent_wait", "Lustre"),
        ("ceph_mdsc_wait_request", "CephFS"),
        ("wait_for_response", "SMB"),
        ("cifs_strict_readv", "SMB"),
    ],
)
def test_one_that_waits_for_a_file_server_is_no_machines(channel: str, words: str) -> None:
    """The server is suspected, and the rank is who waits there; two tables make it surer, and several ranks of a node too."""
    held = [row(rank, "D" if rank == 6 else "S", channel) for rank in range(8)]
    (found,) = list(analyze(Window(records=(*dumps(), *held)), SHAPE, load()))
    (suspect,) = found.suspects

    assert (found.fault_class, found.cause, suspect.kind, suspect.ranks) == (
        "file_server_wait",
        "storage",
        "storage",
        (6,),
    )
    assert (words in suspect.why, channel in suspect.why) == (True, True)
    earlier = [row(rank, "D" if rank == 6 else "S", channel, at=-10.0) for rank in range(8)]
    (twice,) = list(analyze(Window(records=(*dumps(), *earlier, *held)), SHAPE, load()))
    assert twice.suspects[0].strength > suspect.strength
    pair = [row(rank, "D" if rank in {5, 6} else "S", channel) for rank in range(8)]
    (two,) = list(analyze(Window(records=(*dumps(), *pair)), SHAPE, load()))
    assert (two.cause, [one.ranks for one in two.suspects]) == ("storage", [(5, 6)])


@pytest.mark.parametrize("channel", ["blk_mq_get_tag", "jbd2_log_wait_commit", "xfs_log_force_lsn"])
def test_a_wait_for_a_local_disk_stays_its_machines(channel: str) -> None:
    """No other node waits for that disk."""
    rows = [row(rank, "D" if rank == 6 else "S", channel, at=at) for rank in range(8) for at in (1.0, 11.0)]
    (found,) = findings(*dumps(), *rows)
    assert (found.cause, named([found])) == ("machine", {"uninterruptible": (6,)})


@pytest.mark.parametrize(
    "channel",
    [
        None, "rwsem_down_read_slowpath", "call_rwsem_down_read_failed", "__mutex_lock", "io_schedule", "filemap_get_pages",
        "folio_wait_bit_common", "__folio_lock_killable", "wait_on_page_bit_killable", "__lock_page_killable",
    ],
)  # fmt: skip
def test_a_wait_of_which_the_function_does_not_show_for_what_blames_nothing(channel: str | None) -> None:
    """A page may be of any file system, and a lock of anything: the rank is named, weakly, and what would decide."""
    rows = [row(rank, "D" if rank == 6 else "S", channel, at=at) for rank in range(8) for at in (1.0, 11.0)]
    (found,) = findings(*dumps(), *rows)
    assert (found.cause, found.suspects[0].ranks, found.suspects[0].strength) == ("unknown", (6,), 0.5)
    assert "/proc/106/wchan" in found.missing[0]
    once = findings(*dumps(), *rows[1::2])
    assert all(suspect.strength < 0.5 for one in once for suspect in one.suspects)


LOADER = (
    Frame(function="__getitem__", file="/srv/train/dataset.py", line=33),
    Frame(function="fetch", file="/opt/env/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py", line=51),
    Frame(function="_next_data", file="/opt/env/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line=675),
)
MODEL = (Frame(function="forward", file="/srv/train/model.py", line=41),)


@pytest.mark.parametrize(
    ("state", "channel", "frames", "words"),
    [
        ("S", "request_wait_answer", LOADER, "FUSE"),
        ("S", "request_wait_answer", MODEL, ""),
        ("S", "rpc_wait_bit_killable", LOADER, ""),
        ("I", "cl_sync_io_wait", MODEL, "Lustre"),
        ("I", "worker_thread", LOADER, ""),
    ],
)
def test_a_client_that_waits_in_another_state_than_d(
    state: str, channel: str, frames: tuple[Frame, ...], words: str
) -> None:
    """FUSE's request is interruptible: with frames that read files state S shows the wait. Lustre's client waits idle."""
    threads = (Thread(frames=frames, main=True),)
    stack = StackDump(rank=6, pid=106, node=NODES[6], tool="py-spy", threads=threads, source="stacks_6")
    rows = [row(rank, state if rank == 6 else "S", channel if rank == 6 else None) for rank in range(8)]
    found = findings(*dumps(), stack, *rows)
    assert [words in one.suspects[0].why for one in found] == ([True] if words else [])


def test_uninterruptible_twice_is_stronger_than_once() -> None:
    """A second table in the same state makes a passing wait unlikely."""
    early = [row(rank, "D" if rank == 6 else "S", at=1.0) for rank in range(8)]
    late = [row(rank, "D" if rank == 6 else "S", at=11.0) for rank in range(8)]
    (once,) = findings(*dumps(), *late)
    (twice,) = findings(*dumps(), *early, *late)
    assert once.suspects[0].strength < twice.suspects[0].strength


def test_one_look_at_a_page_that_is_read_names_nobody() -> None:
    """A process that writes a checkpoint waits for pages now and then; in two tables it does not get on."""
    early = [row(rank, "D" if rank == 6 else "S", "folio_wait_bit", at=1.0) for rank in range(8)]
    late = [row(rank, "D" if rank == 6 else "S", "folio_wait_bit", at=11.0) for rank in range(8)]
    assert findings(*dumps(), *late) == []
    assert named(findings(*dumps(), *early, *late)) == {"uninterruptible": (6,)}


def test_the_newest_table_counts() -> None:
    """A rank that was stopped and runs again is nobody's culprit."""
    assert findings(*dumps(), row(3, "T", at=1.0), *(row(rank, at=2.0) for rank in range(8))) == []


def test_a_zombie_is_gone_unless_all_are() -> None:
    """One exited process among live ones is named; where all exited the job is over."""
    (found,) = findings(*dumps(), *(row(rank, "Z" if rank == 1 else "S") for rank in range(8)))
    assert named([found]) == {"gone": (1,)}
    assert findings(*dumps(), *(row(rank, "Z") for rank in range(8))) == []


def test_a_rank_without_a_process_is_gone() -> None:
    """Its node-mates are in the table and it is not: gone, whether its pid is known or its command line would show it."""
    rows = [row(rank) for rank in range(8) if rank != 6]
    assert named(findings(*dumps(), *rows)) == {"gone": (6,)}
    stated = [row(rank, rank=rank) for rank in range(8) if rank != 6]
    assert named(findings(*stated)) == {"gone": (6,)}


def test_a_node_without_a_table_is_not_gone() -> None:
    """Ranks of a node whose table nobody took are unknown, not gone."""
    assert findings(*dumps(), *(row(rank) for rank in range(4))) == []


def test_half_the_ranks_missing_from_one_table_blames_nobody() -> None:
    """Without nodes a table that shows four of eight is one node's table; three of four is a job that lost one."""
    bare8 = Topology(tuple(range(8)))
    rows = [row(rank, node=None, rank=rank) for rank in range(4)]
    assert findings(*rows, shape=bare8) == []
    assert named(findings(*rows[:3], shape=BARE)) == {"gone": (3,)}


def test_forked_helpers_do_not_speak_for_their_rank() -> None:
    """A data-loader worker repeats the command line; the oldest process is the trainer."""
    trainer = row(2, "S", rank=2, pid=500, elapsed_seconds=100.0, node=None)
    helper = row(2, "T", rank=2, pid=400, elapsed_seconds=20.0, node=None)
    assert findings(trainer, helper, shape=Topology((2,))) == []


def test_a_local_rank_is_resolved_on_its_node() -> None:
    """--local_rank 1 on the second node is rank 5; without nodes it is the rank itself."""
    command = "python train.py --local_rank=1"
    rows = [row(rank) for rank in (0, 4, 6, 7)]
    assert named(findings(*rows, row(5, "T", command=command, pid=900)))["stopped"] == (5,)
    assert named(findings(row(5, "T", command=command, node=None), shape=BARE))["stopped"] == (1,)


def test_pids_come_from_placements_and_stacks_too() -> None:
    """Any record that ties a pid to a rank will do; the same pid on two nodes is distinguished by the node."""
    placement = Placement(ranks=Members.of((0, 4)), nodes=("gpu-0", "gpu-1"), pids=(77, 77))
    owners = Owners.from_records(Window(records=(placement, StackDump(rank=3, pid=88))), SHAPE)
    assert (owners.rank(77, "gpu-1.cluster.local"), owners.rank(77, "gpu-0"), owners.rank(77, None)) == (4, 0, None)
    assert owners.rank(88, None) == 3


def test_all_stopped_names_no_machine() -> None:
    """Every rank stopped at once was stopped by somebody outside, whatever their stacks show; seven of eight were not."""
    (found,) = findings(*dumps(), *(row(rank, "T") for rank in range(8)))
    assert (found.cause, found.fault_class, [one.kind for one in found.suspects]) == (
        "platform",
        "all_stopped",
        ["platform"],
    )
    assert named(findings(*dumps(), *(row(rank, "T" if rank else "S") for rank in range(8)))) == {
        "stopped": tuple(range(1, 8))
    }


def read(rank: int, states: str, begin: float = 0.0) -> list[ProcessState]:
    """Return a rank's states as an agent reads them, every ten seconds."""
    return [row(rank, state, boot_id="b", at=begin + 10.0 * k + rank / 10) for k, state in enumerate(states)]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("STTTTT", "STTTTTTS", {}),  # the first node is silent since before the end of a stop of all
        ("STTTTT", "S", {}),  # the second is silent since before its beginning
        ("STTTTTTTT", "STTTSSSSS", {"stopped": (0, 1, 2, 3)}),
        ("STTTTT", "SSSSSS", {"stopped": (0, 1, 2, 3)}),
        ("STT", "SRXX", {"gone": (4, 5, 6, 7), "stopped": (0, 1, 2, 3)}),
    ],
)
def test_a_stop_is_a_machines_where_others_ran_meanwhile(
    first: str, second: str, expected: dict[str, tuple[int, ...]]
) -> None:
    """All may have been stopped by a person: what another node has not reported shows nothing."""
    rows = [one for rank in range(8) for one in read(rank, first if rank < 4 else second)]

    assert named(findings(*dumps(), *rows)) == expected


@pytest.mark.parametrize(
    ("other", "expected"),
    [("SSSSSS", {"uninterruptible": (0, 1)}), ("S", {}), ("SD", {"uninterruptible": (0, 1, 4, 5)})],
)
def test_a_wait_for_files_is_a_machines_where_others_were_read_meanwhile(
    other: str, expected: dict[str, tuple[int, ...]]
) -> None:
    """The mount of all may hang: what another node has not reported shows nothing."""
    rows = [
        row(rank, state, "xfs_log_force_lsn" if state == "D" else None, boot_id="b", at=10.0 * k + rank / 10)
        for rank in (0, 1, 4, 5)
        for k, state in enumerate("SDDDDD" if rank < 4 else other)
    ]
    shape = Topology((0, 1, 4, 5), {rank: NODES[rank] for rank in (0, 1, 4, 5)})

    assert named(findings(*dumps(), *rows, shape=shape)) == expected


def test_order_of_records_does_not_matter() -> None:
    """The same records in another order give the same findings."""
    records = [*dumps(), *(row(rank, "TSDS"[rank % 4], "nfs_wait") for rank in range(7))]
    assert findings(*records) == findings(*reversed(records))


def live(whose: int, /, state: str = "S", at: float = 1000.0, **more: object) -> ProcessState:
    """A row as an agent sends it: with its rank, boot and instant."""
    return row(whose, state, **{"at": at, "rank": whose, "boot_id": "b", "source": "process", **more})


def placed() -> list[Record]:
    """Where an agent has seen the ranks."""
    return [
        Placement(ranks=Members.of(range(4 * node, 4 * node + 4)), nodes=(f"gpu-{node}",) * 4, pids=tuple(pids))
        for node, pids in enumerate((range(100, 104), range(104, 108)))
    ]


def test_a_rank_of_whose_end_nothing_is_known_is_gone() -> None:
    """A signal and an exit code are what the crash rules read of the same end: they would count it twice."""
    others = [live(rank) for rank in range(8) if rank != 5]
    assert named(findings(*placed(), *others, live(5), live(5, "X", 1001.0))) == {"gone": (5,)}
    assert findings(*placed(), *others, live(5), live(5, "X", 1001.0, signal=9)) == []
    assert findings(*placed(), *others, live(5), live(5, "X", 1001.0, exit_code=1)) == []
    assert findings(*placed(), *others, live(5), live(5, "X", 1001.0, exit_code=0)) == []
    assert findings(*placed(), *others, live(5), live(5, "X", 1001.0, signal=6)) == []


def test_the_end_of_a_data_loader_is_not_its_ranks() -> None:
    """A child has its rank's number and its own end, with placements and without."""
    rows = [*(live(rank) for rank in range(8)), live(5, "X", 1001.0, pid=900, parent_pid=105, signal=9)]
    assert findings(*placed(), *rows) == []
    assert findings(*rows) == []
    assert findings(*rows, live(3, "T", 1002.0, pid=901, parent_pid=103)) == []


def test_a_job_that_was_ended_is_judged_by_what_it_was_before() -> None:
    """Everybody was killed in the end: the rank that was stopped until then is named, and a healthy job has nobody."""
    ends = [live(rank, "X", 1060.0, signal=9) for rank in range(8)]
    healthy = [live(rank, at=1050.0) for rank in range(8)]
    assert findings(*placed(), *healthy, *ends) == []
    assert findings(*placed(), *healthy, live(2, "T", 1050.3), *ends) == []  # all may be
    assert named(findings(*placed(), *healthy, live(2, "T", 1045.3), live(2, "T", 1050.3), *ends)) == {"stopped": (2,)}


@pytest.mark.parametrize(("readings", "code", "is_named"), [(1, 1, False), (2, 1, True), (1, None, True)])
def test_a_rank_that_left_with_a_code_was_not_held_where_one_reading_found_it(
    readings: int, code: int | None, is_named: bool
) -> None:
    """What is uninterruptible cannot leave: a single reading met it while it read a file."""
    before = [live(rank, at=1000.0) for rank in range(8) if rank != 5]
    held = [live(5, "D", at=1000.0 - 10.0 * number) for number in range(readings)]
    after = [live(rank, "X", at=1004.0, signal=None if code else 9, exit_code=code) for rank in range(8)]

    assert (named(findings(*placed(), *before, *held, *after)).get("uninterruptible") == (5,)) is is_named


def test_a_state_that_nobody_has_confirmed_for_minutes_is_not_judged() -> None:
    """The node stopped reporting: what its rank was then is unknown now. A file's rows have no such age."""
    late = [live(rank, at=1500.0) for rank in range(8) if rank != 5]
    assert findings(*placed(), *late, live(5, "T", 1000.0)) == []
    then = [live(rank, at=at) for rank in range(8) if rank != 5 for at in (1440.0, 1450.0)]
    twice = live(5, "T", 1440.0), live(5, "T", 1450.0)
    assert findings(*placed(), *late, *twice) == []  # all may have been stopped then
    assert named(findings(*placed(), *then, *late, *twice)) == {"stopped": (5,)}
    files = [row(rank, at=1500.0) for rank in range(8) if rank != 5]
    assert named(findings(*dumps(), *files, row(5, "T", at=1000.0))) == {"stopped": (5,)}


def test_two_collectors_that_see_one_moment_are_one_table() -> None:
    """The same uninterruptible wait, reported twice within a second, is once; ten seconds later it is twice."""
    healthy = [live(rank) for rank in range(8) if rank != 5]
    once = findings(*placed(), *healthy, live(5, "D"), live(5, "D", 1000.2, source="blocked"))
    twice = findings(*placed(), *healthy, live(5, "D"), live(5, "D", 1010.0))
    assert once[0].suspects[0].strength < twice[0].suspects[0].strength
