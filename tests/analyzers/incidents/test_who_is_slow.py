"""Who a slow job's verdict names: a rank or node of which a reading rose with the steps, and of none of its peers."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from analyzers.incidents.messages import Open, Publish, Received
from analyzers.incidents.replay import ReplayCase, rejudge_cuts, rerun_engine
from analyzers.model.verdict import Verdict, to_json
from collectors.records import Device, Frame, ProcessState, Record, Ring, Samples, StackDump, Thread
from service.packaged_knowledge import load
from tests.support.watched_jobs import START, WatchedJob

BEGAN, SEEN = 1_200.0, 600.0
Readings = Callable[[float, int], Iterator[Record]]
"""Seconds since the start and a node's number → what its agent reads then."""


def slow_after(times: float = 1.4) -> Callable[[int, random.Random], float]:
    """Return the law of steps of a second that take longer since ``BEGAN``."""
    return lambda step, random: random.uniform(0.97, 1.03) * (times if step >= BEGAN else 1.0)


def batches(read: Readings, *, nodes: int = 2) -> list[Received]:
    """Return what the agents send of a slow job whose ranks, four a node, are read so."""
    job = WatchedJob(nodes=nodes, law=slow_after())
    return [
        msgspec.structs.replace(batch, records=tuple(_of(batch, [*batch.records, *_read(read, batch)])))
        for batch in job.batches(0.0, BEGAN + SEEN)
    ]


def _read(read: Readings, batch: Received) -> Iterator[Record]:
    return read(batch.received_at - START, int(batch.node.removeprefix("n")))


def _of(batch: Received, records: list[Record]) -> Iterator[Record]:
    return (msgspec.structs.replace(record, node=batch.node) for record in records)


def verdicts(read: Readings, *, nodes: int = 2) -> list[Verdict]:
    """Return the verdicts that the engine publishes."""
    done = rerun_engine(batches(read, nodes=nodes), load())
    return [one.verdict for _, one in done if isinstance(one, Publish)]


def process(at: float, rank: int, **more: Any) -> ProcessState:
    """Return a row of a rank's process."""
    given = {"job": "run", "attempt": 0, "pid": 100 + rank, "state": "S", "started_at": START - 60.0, **more}
    return ProcessState(rank=rank, at=START + at - 0.5, **given)


def named(verdict: Verdict) -> list[tuple[str, str]]:
    """Return what a verdict names."""
    return [(one.kind, one.id) for one in verdict.culprits]


def stopped(whose: set[int], since: float = BEGAN) -> Readings:
    """Return readings that find these processes stopped in every third reading."""

    def read(at: float, node: int) -> Iterator[Record]:
        for rank in range(4 * node, 4 * node + 4):
            found = rank in whose and at >= since and int(at) // 10 % 3 == 0
            yield process(at, rank, state="T" if found else "R")

    return read


def working(share: Callable[[int, float], float]) -> Readings:
    """Return readings of processor time: ``share`` of the wall clock, by rank and instant."""
    spent = dict.fromkeys(range(64), 10.0)
    last = dict.fromkeys(range(64), 0.0)

    def read(at: float, node: int) -> Iterator[Record]:
        for rank in range(4 * node, 4 * node + 4):
            spent[rank] += (at - last[rank]) * share(rank, at)
            last[rank] = at
            yield process(at, rank, cpu_seconds=round(spent[rank], 2))

    return read


def counters(scope: str, name: str, device: str, share: Callable[[int, float], float], *more: Record) -> Readings:
    """Return readings of one counter of microseconds a node."""
    total, last = dict.fromkeys(range(8), 0.0), dict.fromkeys(range(8), 0.0)

    def read(at: float, node: int) -> Iterator[Record]:
        total[node] += (at - last[node]) * share(node, at) * 1e6
        last[node] = at
        yield from (one for one in more if at < 30.0 and one.node == f"n{node}")
        yield Samples(
            source="host", at=START + at, scope=scope, type="<i8", devices=(device,), metrics=(name,),
            ticks=array("d", [START + at - 0.5]).tobytes(), monotonic_ticks=array("d", [at]).tobytes(),
            values=array("q", [int(total[node])]).tobytes(),
        )  # fmt: skip

    return read


def test_the_one_rank_that_something_stops_is_named_and_kept() -> None:
    """A rank that is stopped and continued since the steps became longer is named; nothing is done to its node."""
    *_, last = verdicts(stopped({2}))

    assert named(last) == [("rank", "2")]
    assert (last.symptom, last.cause, last.action.kind) == ("slow", "unknown", "none")
    assert last.roots[0].fault_class == "slow_rank"
    assert "was found stopped (state T)" in last.culprits[0].why
    assert "0 % before" in last.culprits[0].why


@pytest.mark.parametrize(
    ("whose", "since"),
    [({2}, 0.0), (set(range(8)), BEGAN), ({1, 2, 6}, BEGAN), ({2}, BEGAN - 500.0)],
    ids=["before too", "all of them", "three", "long before"],
)
def test_what_did_not_begin_with_the_slowdown_on_one_alone_names_nobody(whose: set[int], since: float) -> None:
    """Readings that several ranks show, or that one showed before, are of no rank's guilt."""
    for verdict in verdicts(stopped(whose, since)):
        assert named(verdict) == []
        assert verdict.abstained
        assert verdict.action.kind == "none"


def test_a_rank_with_more_work_a_step_is_named() -> None:
    """One rank spends the whole of what a step takes longer on its processor, its peers as much as before."""
    found = verdicts(working(lambda rank, at: (0.9 if rank == 5 else 0.36) if at > BEGAN else 0.5))

    assert named(found[-1]) == [("rank", "5")]
    assert found[-1].action.kind == "none"


def test_all_ranks_with_more_work_are_no_machines_fault() -> None:
    """Where every rank of two machines spends more processor time a step, the code or the data changed."""
    found = verdicts(working(lambda _rank, _at: 0.8))

    assert found[-1].roots == ()
    assert named(found[-1]) == []
    assert any("every rank spends" in one.text for one in found[-1].evidence)
    assert any("whether it is the code, its data" in one.what for one in found[-1].missing)


def test_a_rank_that_always_works_most_is_not_named_where_all_work_more() -> None:
    """Every rank spends 40 % more a step, one of them five times as much as the others, before too: so do steps that are lies."""
    for verdict in verdicts(working(lambda rank, _at: 0.9 if rank == 5 else 0.18)):
        assert named(verdict) == []


def test_one_machine_that_holds_all_ranks_is_not_acquitted() -> None:
    """The same on a single machine leaves it open whether that is slower."""
    found = verdicts(working(lambda _rank, _at: 0.8), nodes=1)

    assert named(found[-1]) == []
    assert any("their one machine" in one.what for one in found[-1].missing)


def test_a_rank_that_its_limit_holds_back_is_named() -> None:
    """The control group of one rank is throttled since the steps became longer."""
    group = Device(node="n0", source="host", at=START, type="cgroup", id="/job/3", attributes={"ranks": "3"})
    throttled = counters("cgroup", "throttled_us_total", "/job/3", lambda _node, at: 0.6 if at > BEGAN else 0.0, group)
    plain = stopped(set())

    def read(at: float, node: int) -> Iterator[Record]:
        yield from plain(at, node)
        yield from throttled(at, node) if node == 0 else ()

    found = verdicts(read)

    assert named(found[-1]) == [("rank", "3")]
    assert "held back by the limit of its control group" in found[-1].culprits[0].why


def test_a_rank_that_is_put_below_a_limit_is_named_where_no_limit_was() -> None:
    """Until the steps became longer no group on the node counted throttling; the group with all ranks counts memory alone."""
    everywhere = Device(node="n0", source="host", at=START, type="cgroup", id="/all", attributes={"ranks": "0 1 2 3"})
    memory = counters("cgroup", "memory_bytes", "/all", lambda _node, _at: 1.0, everywhere)
    below = Device(node="n0", source="host", at=START + BEGAN, type="cgroup", id="/below", attributes={"ranks": "2"})
    throttled = counters("cgroup", "throttled_us_total", "/below", lambda _node, at: 0.3 if at > BEGAN else 0.0)
    plain = stopped(set())

    def read(at: float, node: int) -> Iterator[Record]:
        yield from plain(at, node)
        if node == 0:
            yield from memory(at, node) if at <= BEGAN else throttled(at, node)
            yield from (below,) if BEGAN < at < BEGAN + 30.0 else ()

    found = verdicts(read)

    assert named(found[-1]) == [("rank", "2")]
    assert "held back by the limit of its control group for 30 % of the time" in found[-1].culprits[0].why


def test_of_a_limit_inside_another_the_one_that_takes_most_counts() -> None:
    """A group and the group above it hold the same rank: what is above takes nothing, and halves nothing."""
    outer = Device(node="n0", source="host", at=START, type="cgroup", id="/job", attributes={"ranks": "0 1 2 3"})
    inner = Device(node="n0", source="host", at=START, type="cgroup", id="/job/3", attributes={"ranks": "3"})
    readings = (
        counters("cgroup", "throttled_us_total", "/job", lambda _node, _at: 0.0, outer),
        counters("cgroup", "throttled_us_total", "/job/3", lambda _node, at: 0.15 if at > BEGAN else 0.0, inner),
    )
    plain = stopped(set())

    def read(at: float, node: int) -> Iterator[Record]:
        yield from plain(at, node)
        if node == 0:
            samples = [record for one in readings for record in one(at, node)]
            yield from (record for record in samples if not isinstance(record, Samples))
            yield _joined([record for record in samples if isinstance(record, Samples)])

    found = verdicts(read)

    assert named(found[-1]) == [("rank", "3")]
    assert "for 15 % of the time" in found[-1].culprits[0].why


def _joined(samples: list[Samples]) -> Samples:
    """Return samples of one metric and instant, of several devices, as an agent sends them: one record."""
    devices = tuple(device for one in samples for device in one.devices)
    return msgspec.structs.replace(samples[0], devices=devices, values=b"".join(one.values for one in samples))


def test_a_node_whose_processors_are_taken_is_named_among_four() -> None:
    """The hypervisor gives one node's processors to others since the steps became longer; those of the others it leaves."""
    *_, last = verdicts(
        counters("cpu", "steal_ticks_total", "", lambda node, at: 1e-4 * (1.5 if node == 1 and at > BEGAN else 0.01)),
        nodes=4,
    )

    assert named(last) == [("node", "n1")]
    assert last.action.kind == "none"


def test_two_nodes_are_too_few_to_compare() -> None:
    """One of two nodes differs: which of them is as it should be is not known."""
    found = verdicts(
        counters("pressure", "some_us_total", "cpu", lambda node, at: 0.9 if node == 1 and at > BEGAN else 0.1)
    )

    assert all(named(one) == [] for one in found)


def _stacks(at: float, rank: int, *, waits: bool) -> StackDump:
    """Return the stack of a rank that waits in an all-reduce, or reads a batch."""
    torch = "/usr/lib/python3/site-packages/torch/distributed/distributed_c10d.py"
    inner = (
        Frame(function="all_reduce", file=torch, line=2810)
        if waits
        else Frame(function="pad", file="/job/train.py", line=7)
    )
    frames = (inner, Frame(function="main", file="/job/train.py", line=50))
    thread = Thread(os_thread_id=100 + rank, name="MainThread", main=True, frames=frames)
    return StackDump(
        job="run", attempt=0, rank=rank, pid=100 + rank, at=START + at, tool="py-spy", boot_id="b", threads=(thread,)
    )


def test_stacks_alone_are_a_hint_and_name_nobody() -> None:
    """A rank that is alone outside communication in every look may have been so before: it is reported, and not named."""
    plain = stopped(set())

    def read(at: float, node: int) -> Iterator[Record]:
        yield from plain(at, node)
        if at > BEGAN + 100.0:
            yield from (_stacks(at - at % 10, rank, waits=rank != 6) for rank in range(4 * node, 4 * node + 4))

    found = verdicts(read)

    assert found
    assert all(named(one) == [] and one.action.kind == "none" for one in found)
    assert any("looks at the stacks rank 6 alone" in one.text for one in found[-1].evidence)


def test_a_replay_judges_the_same() -> None:
    """What was read beside the records is in the cut: judged again from the log, the verdict has the same bytes."""
    given = batches(stopped({2}))
    done = [one for _, one in rerun_engine(given, load()) if isinstance(one, Publish)]
    case = ReplayCase(incident=done[0].incident, job="run", attempt=0, nodes=("n0", "n1"))

    again = list(rejudge_cuts(case, [one.cut for one in done], given, load()))

    assert [to_json(one.verdict) for one in again] == [to_json(one.verdict) for one in done]
    assert named(again[-1].verdict) == [("rank", "2")]


def timed(own: Callable[[int, float], float], backend: str = "gloo", ranks: int = 4) -> Readings:
    """Return readings of the probe: ``own`` seconds of each step of a second, by rank and instant."""

    def read(at: float, node: int) -> Iterator[Record]:
        for rank in range(ranks * node, ranks * node + ranks):
            ends = [START + at - 0.5 - back for back in range(9, -1, -1)]
            yield Ring(
                rank=rank, at=START + at, job="run", attempt=0, pid=100 + rank, backend=backend, timed=len(ends),
                own={
                    "step": array("q", map(int, ends)).tobytes(),
                    "ended_ns": array("q", [int(end * 1e9) for end in ends]).tobytes(),
                    "seconds": array("d", [1.0] * len(ends)).tobytes(),
                    "own_seconds": array("d", [own(rank, end - START) for end in ends]).tobytes(),
                },
            )  # fmt: skip

    return read


def test_the_rank_whose_own_time_rose_is_named_and_kept() -> None:
    """All steps became longer by 0.4 s; of one rank's step so much more is its own, and the others wait for so much longer."""
    *_, last = verdicts(timed(lambda rank, at: 0.6 + 0.02 * rank + (0.4 if rank == 5 and at > BEGAN else 0.0)))

    assert named(last) == [("rank", "5")]
    assert (last.action.kind, last.roots[0].fault_class) == ("none", "slow_rank")
    assert "for its own work" in last.culprits[0].why


@pytest.mark.parametrize(
    ("own", "backend"),
    [
        (lambda rank, at: 0.9 if rank == 5 else 0.6, "gloo"),
        (lambda rank, at: 0.6 + (0.4 if rank in {1, 2, 6} and at > BEGAN else 0.0), "gloo"),
        (lambda rank, at: 0.6 + (0.08 if rank == 5 and at > BEGAN else 0.0), "gloo"),
        (lambda rank, at: 0.6 + (0.4 if rank == 5 and at > BEGAN else 0.0), "nccl"),
        (lambda rank, at: (0.6 if rank == 5 else 0.1) * (1.4 if at > BEGAN else 1.0), "gloo"),
    ],
    ids=["before too", "three", "too little for the steps", "waits that block no host", "all in proportion"],
)
def test_own_time_that_does_not_explain_the_steps_names_nobody(
    own: Callable[[int, float], float], backend: str
) -> None:
    """Who took longer before too, several at once, and a rise that is less than half of the steps' are no rank's guilt."""
    for verdict in verdicts(timed(own, backend)):
        assert named(verdict) == []


def test_steps_that_are_longer_by_no_ranks_work_are_between_them() -> None:
    """No rank takes longer for its own work: what is missing is which link or switch."""
    *_, last = verdicts(timed(lambda rank, at: 0.6))

    assert named(last) == []
    assert any("none of 8 ranks takes longer for its own work" in one.text for one in last.evidence)
    assert any("which link or switch" in one.what for one in last.missing)


def test_all_ranks_with_more_of_their_own_are_no_machines_fault() -> None:
    """The own time of every rank of two machines rose with the steps: the code or the data."""
    *_, last = verdicts(timed(lambda rank, at: 0.6 + (0.4 if at > BEGAN else 0.0)))

    assert named(last) == []
    assert any("whether it is the code, its data" in one.what for one in last.missing)


def test_a_rank_and_its_node_are_no_two_suspects() -> None:
    """A rank's own time rose, and the hypervisor took its node's processors: the rank is named by both."""
    taken = counters("cpu", "steal_ticks_total", "", lambda node, at: 1.5e-4 if node == 1 and at > BEGAN else 1e-6)
    work = timed(lambda rank, at: 0.6 + (0.4 if rank == 5 and at > BEGAN else 0.0))

    *_, last = verdicts(lambda at, node: [*taken(at, node), *work(at, node)], nodes=4)

    assert named(last) == [("rank", "5")]
    assert "lost 1.5 processors" in last.culprits[0].why


def test_a_processor_that_works_more_in_its_waits_names_nobody() -> None:
    """One rank spends more processor time a step, and its own time is as before: it polls for what the others wait for, too."""
    spins = working(lambda rank, at: 0.9 if rank == 5 and at > BEGAN else 0.36)
    work = timed(lambda rank, at: 0.6)

    for verdict in verdicts(lambda at, node: [*spins(at, node), *work(at, node)]):
        assert named(verdict) == []


def test_what_was_read_in_an_earlier_slowdown_is_not_what_is_usual() -> None:
    """A rank is slow for seven minutes, recovers, and is slow again three minutes later: it is named both times."""
    steps = (BEGAN, BEGAN + 300.0, BEGAN + 480.0)  # the numbers of steps, of which 300 took 1.4 s
    first, second = (BEGAN, BEGAN + 420.0), BEGAN + 600.0
    job = WatchedJob(
        law=lambda step, random: (
            random.uniform(0.97, 1.03) * (1.4 if steps[0] <= step < steps[1] or step >= steps[2] else 1.0)
        )
    )
    read = timed(
        lambda rank, at: 0.6 + (0.4 if rank == 6 and (first[0] < at < first[1] or at > second) else 0.0),
    )
    sent = [
        msgspec.structs.replace(batch, records=tuple(_of(batch, [*batch.records, *_read(read, batch)])))
        for batch in job.batches(0.0, second + SEEN)
    ]

    done = list(rerun_engine(sent, load()))
    opened = [one.incident.id for _, one in done if isinstance(one, Open)]
    last = {one.incident: one.verdict for _, one in done if isinstance(one, Publish)}

    assert [named(last[id]) for id in opened] == [[("rank", "6")], [("rank", "6")]]
