"""Ranks, jobs and names that nodes invent never become the engine's memory: each node has a share, and all have a bound."""

from __future__ import annotations

import struct

import pytest

from analyzers.incidents import memory
from analyzers.incidents.memory import CROWDED_SECONDS
from analyzers.incidents.messages import EngineTick, Received
from analyzers.incidents.room import Room
from analyzers.incidents.state import EngineState
from analyzers.incidents.step import step
from analyzers.knowledge import Knowledge
from collectors.records import Members, Placement, ProcessState, Record, Samples

AT = 1_795_230_847.0


def crowded(most_of_a_node: int = 40, most: int = 100) -> EngineState:
    """Return an engine with room for few ranks."""
    state = EngineState(Knowledge())
    state.viewed, state.claimed = Room(most_of_a_node, most), Room(most_of_a_node, most)
    return state


def reported(state: EngineState, node: str, *records: Record, at: float = AT) -> None:
    """Give the engine a batch of a node."""
    number = state.sequence + 1
    step(state, Received(sequence=number, received_at=at, node=node, records=records, sent_at=at), at)


def placed(job: str, ranks: range, node: str) -> Placement:
    """Return where ranks run."""
    return Placement(
        job=job, attempt=1, node=node, ranks=Members.of(ranks), nodes=(node,) * len(ranks),
        pids=tuple(100 + rank for rank in ranks), world_size=len(ranks), at=AT,
    )  # fmt: skip


def ranks_of(state: EngineState, job: str) -> tuple[int, int]:
    """Return how many ranks the view of a job has, and how many its nodes claim."""
    view = state.jobs.get((job, 1))
    claims = state.hosting[job].claims.values() if job in state.hosting else ()
    return (0 if view is None else len(view.ranks)), sum(len(one.seats) for one in claims)


def test_a_node_has_its_share_of_ranks_in_all_jobs_together() -> None:
    """A node that invents jobs of many ranks is cut to its share, and costs no other node a rank."""
    state = crowded()
    for number in range(8):
        reported(state, "liar", placed(f"x{number}", range(30), "liar"))
        states = [ProcessState(job=f"x{number}", attempt=1, rank=30 + n, pid=n, state="R", at=AT) for n in range(30)]
        reported(state, "liar", *states)
    reported(state, "good", placed("llama", range(30), "good"))

    step(state, EngineTick(), AT + 10.0)

    assert {failure.subject for failure in state.failures} == {"liar"}
    assert [sum(counts) for counts in zip(*(ranks_of(state, f"x{n}") for n in range(8)), strict=True)] == [40, 40]
    assert ranks_of(state, "llama") == (30, 30)


def test_all_nodes_together_have_a_bound() -> None:
    """Names beyond counting that claim their share each: the engine holds what it has room for."""
    state = crowded()
    for number in range(20):
        reported(state, f"n{number}", placed(f"x{number}", range(30), f"n{number}"))

    assert sum(ranks_of(state, f"x{number}")[0] for number in range(20)) == 100
    assert state.claimed.total <= 100


def test_room_is_given_back() -> None:
    """What has not been reported for an hour is forgotten, and the node has its whole share again."""
    state = crowded()
    reported(state, "n", placed("before", range(40), "n"))
    later = AT + 4_000.0
    step(state, EngineTick(), later)
    reported(state, "n", placed("after", range(40), "n"), at=later)

    assert ranks_of(state, "after") == (40, 40)


def test_names_and_jobs_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """More names and jobs than there is room for are left out and counted; where it is crowded the silent ones go soon."""
    monkeypatch.setattr(memory, "MOST_NODES", 8)
    monkeypatch.setattr(memory, "MOST_JOBS", 4)
    state = crowded()
    for number in range(12):
        reported(state, f"n{number}", placed(f"x{number}", range(1), f"n{number}"))

    assert (len(state.nodes), len(state.evidence), len(state.jobs)) == (8, 8, 4)
    assert state.failed == 8

    later = AT + CROWDED_SECONDS + 20.0
    step(state, EngineTick(), later)
    reported(state, "good", placed("llama", range(2), "good"), at=later)

    assert ranks_of(state, "llama") == (2, 2)


def test_readings_of_many_devices_are_in_no_view() -> None:
    """One record with more connections than any node has is applied to none of the jobs there; a usual one is."""
    state = crowded()
    reported(state, "n", placed("llama", range(2), "n"))
    for count in (2, 2_000):
        readings = Samples(
            source="s", at=AT, scope="socket", type="<i8", devices=tuple(f"d{number}" for number in range(count)),
            metrics=("bytes_sent_total",), ticks=struct.pack("<d", AT + count / 100), values=bytes(8 * count),
        )  # fmt: skip
        reported(state, "n", readings, at=AT + count / 100)
    traffic = state.jobs["llama", 1].traffic

    assert [len(totals) for totals in traffic._totals.values()] == [2]
