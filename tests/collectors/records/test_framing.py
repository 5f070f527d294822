"""An agent can report for its own node only, and yet name any job and any rank: it brings no other machine into danger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from collectors.records import (
    LogEvent,
    Members,
    Placement,
    ProcessState,
    RasCommunicator,
    RasRank,
    Record,
    StackDump,
    Thread,
)
from tests.support.hand_made import call, dump, group
from tests.support.live_hangs import SPIN, START, STEPS, Hang, inside, verdict

FRAMED, RANK = "gpu-3", 3
JOB: dict[str, Any] = {"job": "llama", "attempt": 1, "boot_id": "b"}
LIARS = ("gpu-0", "gpu-9")  # one of the job's own nodes, and one that has nothing to do with it
HANGS = {
    "stuck": Hang(),
    "slow": Hang(stands=(inside("forward"), inside("backward"))),
    "nobody": Hang(culprits=()),
}


def placed(node: str, ranks: Sequence[int], at: float = 64.0) -> Placement:
    """A node says that these ranks run on it."""
    return Placement(
        **JOB, node=node, source="placement", at=START + at, ranks=Members.of(ranks), nodes=(node,) * len(ranks),
        pids=tuple(100 + rank for rank in ranks), world_size=4,
    )  # fmt: skip


def lies(node: str, pid: int, at: float) -> dict[str, list[Record]]:
    """What a node may say of another's rank: that it is behind, stands still, is stopped, was killed."""
    mine: dict[str, Any] = {**JOB, "node": node, "rank": RANK, "pid": pid}
    done = [call(number, at_s=float(number)) for number in range(1, STEPS + 1)]
    everybody = [group("0", 0, 1, 2, 3), group("1", RANK)]
    threads = (Thread(frames=SPIN, main=True, name="MainThread"),)
    behind: list[Record] = [
        dump(RANK, done, everybody, **{**JOB, "node": node, "pid": pid}, at=START + at + later, source="recorder/x")
        for later in (-10.0, 0.0)
    ]
    still: list[Record] = [
        StackDump(**mine, source="stacks/x", at=START + at + later, tool="py-spy", threads=threads)
        for later in (-10.0, 0.0)
    ]
    stopped: list[Record] = [
        ProcessState(**mine, source="process", at=START + at + later, state="T") for later in (-10.0, 0.0)
    ]
    killed: list[Record] = [ProcessState(**mine, source="process", at=START + at, state="X", signal=9)]
    return {"behind": behind, "stopped": stopped, "killed": killed, "all": [*behind, *still, *stopped]}


@pytest.mark.parametrize("hang", HANGS)
@pytest.mark.parametrize("liar", LIARS)
@pytest.mark.parametrize("pid", [100 + RANK, 999])
def test_what_a_node_tells_of_a_rank_that_runs_elsewhere_is_left_out(hang: str, liar: str, pid: int) -> None:
    """Dumps, stacks and states of a rank of another's node change no word of who is named and what is done."""
    honest = verdict(HANGS[hang].records())
    for at in (65.0, 200.0, 3_000.0):  # the later ones by a clock that is wrong
        for lie, records in lies(liar, pid, at).items():
            found = verdict([*HANGS[hang].records(), *records])
            assert FRAMED not in found.action.nodes, (lie, at)
            if at == 65.0:
                assert (found.culprits, found.action) == (honest.culprits, honest.action), lie


@pytest.mark.parametrize("hang", HANGS)
@pytest.mark.parametrize("liar", LIARS)
@pytest.mark.parametrize("at", [40.0, 64.0])
def test_a_rank_that_two_nodes_say_is_theirs_has_nobody_evicted(hang: str, liar: str, at: float) -> None:
    """Which of them tells the truth nobody knows; whoever is named for another rank is judged as before."""
    own = [RANK] if liar == "gpu-9" else [0, RANK]
    for lie, records in lies(liar, 100 + RANK, 65.0).items():
        found = verdict([*HANGS[hang].records(), placed(liar, own, at), *records])
        evicted = found.action.nodes if found.action.kind == "evict" else ()
        assert not {FRAMED, liar} & set(evicted), lie


@pytest.mark.parametrize("hang", HANGS)
@pytest.mark.parametrize("liar", LIARS)
def test_a_report_of_one_node_for_all_evicts_nobody_who_waits(hang: str, liar: str) -> None:
    """NCCL RAS tells of every rank by one agent's word: who waits by its own stack is not evicted for it."""
    ranks = tuple(
        RasRank(
            rank=rank, host=f"gpu-{rank}", pid=100 + rank, counts={"AllReduce": 31 - (rank == RANK)}, dead=rank == RANK
        )
        for rank in range(4)
    )
    reports = [
        RasCommunicator(
            **JOB, node=liar, source="ras", at=START + at, hash="0x1", secondary_hash="0x2", size=4, errors="INCOMPLETE",
            ranks=ranks,
        )
        for at in (60.0, 62.0)
    ]  # fmt: skip
    found = verdict([*HANGS[hang].records(), *reports])
    assert found.action.kind != "evict" or FRAMED not in found.action.nodes


def test_a_rank_that_was_moved_is_its_new_nodes() -> None:
    """The node that it ran on has died, and says so no more: what the new one tells of it is taken."""
    records = [one for one in Hang(looks_at=(50.0, 60.0), culprits=()).records() if one.node != FRAMED]
    late = [placed(FRAMED, [RANK], at=0.0), placed("gpu-9", [RANK])]
    found = verdict([*records, *late, *lies("gpu-9", 999, 65.0)["all"]])
    assert found.action.nodes == ("gpu-9",)


def test_a_line_with_a_stamp_of_another_time_zone_silences_nobody() -> None:
    """A log whose stamps are half an hour ahead does not make all other nodes seem to have reported nothing for so long."""
    line = LogEvent(node="gpu-1", source="log:1", at=START + 1_800.0, event="traceback", text="warned", job="llama")
    assert verdict([*Hang().records(), line]).action == verdict(Hang().records()).action
