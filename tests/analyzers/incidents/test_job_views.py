"""A job's view: what it holds of the records, when an incident is over, and what the order of batches may not change."""

from __future__ import annotations

import random
from array import array

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from analyzers.incidents.detectors import find_symptoms
from analyzers.incidents.job_views import JobView, allowed_silence_seconds, ended_because, has_restarted
from analyzers.incidents.messages import Received
from analyzers.model.incident import Incident, Symptom
from collectors.records import (
    CollectorReport,
    CommandResult,
    Coverage,
    KernelEvent,
    LogEvent,
    Members,
    Placement,
    ProcessState,
    RasCommunicator,
    Record,
    Ring,
    Samples,
    StackDump,
    Steps,
)
from tests.support.sentences import numbers_in
from tests.support.watched_jobs import START, WatchedJob, feed, ring_record, step_record, watched


def incident(opened_at: float, kind: str = "hang", last_step: int | None = 100, attempt: int | None = 0) -> Incident:
    """An open incident of the job."""
    return Incident(
        id="inc-1", kind=kind, job="run", attempt=attempt, opened_at=START + opened_at, onset_at=START + opened_at,  # type: ignore[arg-type]
        symptoms=(), after=0, last_step=last_step,
    )  # fmt: skip


def batch(at: float, *records: Record, node: str = "n0", ahead: float = 0.0) -> Received:
    """One batch of a node."""
    now = START + at
    return Received(sequence=round(at), received_at=now, sent_at=now + ahead, node=node, records=records)


def test_a_view_knows_who_runs_where_and_how_far() -> None:
    """Ranks, nodes, world size, first sign and newest step are those that the agents reported."""
    view = watched(WatchedJob(nodes=2, ranks_a_node=2), 100.0)

    assert view.ranks == {0: "n0", 1: "n0", 2: "n1", 3: "n1"}
    assert view.world_size == 4
    assert view.first_at == pytest.approx(START, abs=1.0)
    assert (view.newest_step, view.newest_step_at) == (88, START + 88.0)
    assert view.ended == {}
    assert view.rhythm.median_seconds() == pytest.approx(1.0)
    assert allowed_silence_seconds(view) == 8.0


def test_a_node_tells_how_it_fares() -> None:
    """Coverage says which collectors work, stacks and answers when they came, the batches how far its clock is ahead."""
    reports = (CollectorReport(name="stacks", records=3), CollectorReport(name="ras", failures=1))
    reported = (
        Coverage(collectors=reports, at=START + 52.0),
        StackDump(at=START + 51.0, rank=0),
        CommandResult(command="c", at=START + 52.0),
    )
    view = feed(JobView("run", 0), [batch(10.0, ahead=2.5), batch(50.0, *reported, ahead=2.5)])
    node = view.nodes["n0"]

    assert (node.working, node.failing) == ({"stacks"}, {"ras"})
    assert node.offset == pytest.approx(2.5)
    assert node.stacks_at == pytest.approx(START + 48.5)
    assert node.answered_at == START + 50.0
    assert node.reported_until == pytest.approx(START + 50.0)


@pytest.mark.parametrize("jump", [7_200.0, -7_200.0, 86_400.0, 20 * 86_400.0])
def test_a_node_whose_clock_was_set_for_seconds_is_read_rightly_at_once(jump: float) -> None:
    """The batches of a jump are corrected by it, and the first one after it by nothing: no step seems to be of yesterday."""
    view = feed(
        JobView("run", 0),
        [
            batch(10.0, StackDump(at=START + 9.0, rank=0)),
            batch(20.0, StackDump(at=START + 19.0 + jump, rank=0), ahead=jump),
            batch(30.0, StackDump(at=START + 29.0, rank=0)),
        ],
    )
    node = view.nodes["n0"]

    assert node.offset == pytest.approx(0.0)
    assert node.stacks_at == pytest.approx(START + 29.0)
    assert node.reported_until == pytest.approx(START + 30.0)


def test_outstanding_is_what_each_rank_was_inside_of() -> None:
    """The oldest open collective of each rank's newest ring, with its members."""
    rows = [("all_reduce", 6, START + 1.0, START + 2.0), ("all_gather", 7, START + 3.0, None)]
    view = feed(JobView("run", 0), [batch(10.0, ring_record(1, START + 9.0, rows, 4))])
    inside = view.outstanding[1]

    assert (inside.operation, inside.sequence, inside.group) == ("all_gather", 7, "0")
    assert inside.since == pytest.approx(START + 3.0)
    assert inside.members == Members.of(range(4))


def test_a_restarted_process_is_not_the_one_that_died() -> None:
    """A younger process of the same rank takes the place of one that ended; the old one's late words change nothing."""
    old = ProcessState(rank=0, pid=10, state="X", exit_code=1, at=START + 5.0, started_at=START)
    new = ProcessState(rank=0, pid=11, state="R", at=START + 8.0, started_at=START + 7.0)
    for records in ((old, new), (new, old), (old, new, old)):
        view = feed(JobView("run", 0), [batch(10.0, *records)])

        assert view.ended == {}
        assert view.processes.by_rank[0].pid == 11


def test_a_rank_that_is_placed_no_more_has_vanished() -> None:
    """A node that tells of one rank less, and of no end, has lost it in a way that nobody saw; its end explains it later."""

    def placed(at: float, *ranks: int) -> Placement:
        pids = tuple(10 + rank for rank in ranks)
        return Placement(ranks=Members.of(ranks), nodes=("n0",) * len(ranks), pids=pids, at=START + at)

    view = feed(JobView("run", 0), [batch(10.0, placed(9.0, 0, 1)), batch(70.0, placed(69.0, 0))])
    assert not view.ended[1].seen

    feed(view, [batch(71.0, ProcessState(rank=1, pid=11, state="X", signal=9, at=START + 60.0))])
    assert view.ended[1].signal == 9


# --- an incident that is over


def test_a_job_that_does_two_more_steps_moves_again() -> None:
    """Steps that ended after the opening close it, and the sentence says how far the job is."""
    job = WatchedJob()
    view = watched(job, 110.0)

    assert ended_because(view, incident(105.0, last_step=98), START + 110.0) is None
    reported = ended_because(watched(job, 130.0, view, since=110.0), incident(105.0, last_step=98), START + 130.0)
    assert numbers_in(reported) == [118]


def test_a_hang_that_lasts_is_not_over() -> None:
    """Nothing but the same steps, reported twice, is no progress."""
    job = WatchedJob(stopped_at=100.0)
    view = watched(job, 150.0)
    feed(view, [batch(151.0, step_record([(100, START + 100.0)]))])

    assert ended_because(view, incident(120.0), START + 151.0) is None


def test_a_counter_that_begins_anew_moves_too() -> None:
    """An epoch's steps count from 1 again: they are later, and that counts."""
    view = feed(JobView("run", 0), [batch(100.0, step_record([(990, START + 90.0)]))])
    rows = [(step, START + 200.0 + step) for step in range(1, 5)]
    feed(view, [batch(210.0, step_record(rows))])

    assert ended_because(view, incident(150.0, last_step=990), START + 210.0) is not None


@pytest.mark.parametrize("ahead", [0.0, 30.0, -30.0])
def test_a_restart_that_nobody_counts_is_no_recovery(ahead: float) -> None:
    """The attempt has the same number, and its processes are other ones: they were begun after the incident was."""
    first = ProcessState(
        job="run", attempt=0, state="R", rank=0, pid=10, started_at=START - 60.0 + ahead, at=START + 90.0 + ahead
    )
    again = replace(first, pid=11, started_at=START + 110.0 + ahead, at=START + 115.0 + ahead)
    opened = incident(100.0, "crash")

    view = feed(JobView("run", 0), [batch(91.0, first, ahead=ahead)])
    assert not has_restarted(view, opened)
    assert has_restarted(feed(view, [batch(116.0, again, ahead=ahead)]), opened)


def test_a_new_attempt_ends_the_incident_of_the_old_one() -> None:
    """As soon as a process of the next attempt runs."""
    view = feed(JobView("run", 1), [batch(10.0, ProcessState(rank=0, pid=10, state="R", at=START + 9.0))])

    assert ended_because(view, incident(0.0, attempt=0), START + 10.0) == "attempt 1 runs"
    assert ended_because(JobView("run", 1), incident(0.0, attempt=0), START + 10.0) is None


def test_a_job_that_has_ended_has_no_incident() -> None:
    """Once all processes are gone the sentence says how."""
    ended: dict[int, tuple[float, int | None, int | None]] = dict.fromkeys(range(8), (100.0, None, 15))
    ended[3] = (99.0, 1, None)
    view = watched(WatchedJob(ended=ended, stopped_at=99.0), 110.0)

    reported = ended_because(view, incident(100.0), START + 110.0)
    assert numbers_in(reported) == [8, 7, 15, 1, 1]
    assert ended_because(watched(WatchedJob(ended={3: (99.0, 1, None)}), 98.0), incident(90.0), START + 98.0) is None


def test_a_crash_is_not_over_while_its_verdict_is_made() -> None:
    """A job that goes on without the rank keeps its incident for half a minute."""
    view = watched(WatchedJob(ended={5: (100.0, 1, None)}), 140.0)

    assert ended_because(view, incident(101.0, "crash"), START + 120.0) is None
    assert ended_because(view, incident(101.0, "crash"), START + 140.0) is not None


def test_a_spike_is_over_when_the_losses_are_as_before() -> None:
    """Two odd losses and ten good ones: the incident says at which step all was well."""
    values = [2.0] * 60 + [50.0] * 2 + [2.0] * 12
    rows = [(step, START + step) for step in range(1, len(values) + 1)]
    bad = feed(JobView("run", 0), [batch(63.0, step_record(rows[:62], loss=values[:62]))])
    good = feed(bad, [])
    assert ended_because(good, incident(61.5, "numeric"), START + 63.0) is None

    feed(good, [batch(80.0, step_record(rows[62:], loss=values[62:]))])
    assert numbers_in(ended_because(good, incident(61.5, "numeric"), START + 80.0)) == [74]


# --- what may not matter


def story(seed: int) -> tuple[list[Received], float]:
    """The batches of a small job to which one of several things happens, and when they were all there."""
    noise = random.Random(seed)
    kind = seed % 4
    job = WatchedJob(
        nodes=3, ranks_a_node=2, reporters=(0, 2, 4), told_by="probe" if seed % 2 else "plain", seed=seed,
        law=lambda _step, noise: noise.uniform(0.5, 3.0), stopped_at=120.0 if kind else 1e9,
        ended={noise.randrange(6): (120.0, 1, None)} if kind == 2 else {},
        skew={"n1": 7.0} if kind == 3 else {},
    )  # fmt: skip
    return list(job.batches(0.0, 200.0)), START + 200.0


def reported(view: JobView, now: float) -> list[dict[str, object]]:
    """What a view says, as plain values, instants rounded to a tenth: clocks are known that well."""
    found = msgspec.to_builtins(find_symptoms(view, now))
    return [{**one, "at": round(one["at"], 1)} for one in found]


@settings(max_examples=40)
@given(st.integers(0, 1_000), st.randoms(use_true_random=False))
def test_batches_that_come_twice_or_late_change_nothing(seed: int, order: random.Random) -> None:
    """Some batches come again, and those of different nodes in any order: the symptoms are the same."""
    batches, now = story(seed)
    by_node = {node: [one for one in batches if one.node == node] for node in ("n0", "n1", "n2")}
    mixed: list[Received] = []
    while any(by_node.values()):
        mixed.append(by_node[order.choice([node for node, left in by_node.items() if left])].pop(0))
        if order.random() < 0.3:
            mixed.append(order.choice(mixed))

    assert reported(feed(JobView("run", 0), mixed), now) == reported(feed(JobView("run", 0), batches), now)


@settings(max_examples=40)
@given(st.integers(0, 1_000))
def test_other_names_of_nodes_are_only_other_names(seed: int) -> None:
    """A job on nodes of other names shows the same symptoms, at the same instants, under those names."""
    batches, now = story(seed)
    names = {"n0": "gpu-b", "n1": "gpu-a", "n2": "gpu-c"}

    def renamed(record: Record) -> Record:
        return (
            replace(record, nodes=tuple(names[one] for one in record.nodes))
            if isinstance(record, Placement)
            else record
        )

    others = [replace(one, node=names[one.node], records=tuple(map(renamed, one.records))) for one in batches]
    found, expected = reported(feed(JobView("run", 0), others), now), reported(feed(JobView("run", 0), batches), now)

    def plain(symptom: dict[str, object]) -> dict[str, object]:
        text = str(symptom["text"])
        for old, new in names.items():
            text = text.replace(new, old)
        nodes = [old for node in symptom.get("nodes", ()) for old, new in names.items() if node in {old, new}]  # type: ignore[attr-defined]
        return {**symptom, "text": text, "nodes": sorted(nodes)}

    assert [plain(one) for one in found] == [plain(one) for one in expected]


# --- bad input

WILD = (float("nan"), float("inf"), -1.0, 0.0, 1e18, 2_524_600_000.0)


@pytest.mark.parametrize("at", WILD)
def test_wild_instants_hurt_nobody(at: float) -> None:
    """Records with impossible instants are taken without an error, and a hang after them is seen all the same."""
    job = WatchedJob(stopped_at=200.0)
    wild: list[Record] = [
        step_record([(60, at)], at=at),
        ProcessState(rank=1, pid=101, state="S", at=at, started_at=at),
        LogEvent(event="traceback", at=at),
        KernelEvent(event="xid", code=13, at=at),
        Samples(scope="socket", type="<i8", devices=("a",), metrics=("bytes_sent_total",), at=at,
                ticks=array("d", [at]).tobytes(), values=array("q", [1]).tobytes()),
        RasCommunicator(hash="x", at=at),
    ]  # fmt: skip
    job.extra += [(60.0, "n0", record) for record in wild]
    view = watched(job, 260.0)

    assert [one.detector for one in find_symptoms(view, START + 260.0)][:1] == ["no_progress"]


@pytest.mark.parametrize(
    "record",
    [
        Steps(count=0, columns={"step": b"1234567", "at": b""}),
        Steps(count=-1),
        Ring(rank=0, count=1, columns={"entered_ns": b"12345678", "left_ns": b""}),
        Ring(rank=1 << 40, count=0),
        Samples(scope="infiniband", type="<i8", devices=("a",), metrics=("bytes_sent_total",)),
        Placement(ranks=Members.of([0, 1, 2]), nodes=("n0",), pids=(), world_size=-4),
        ProcessState(rank=-7, pid=-1, state=""),
        ProcessState(rank=1 << 60, pid=1),
        LogEvent(event=""),
        RasCommunicator(),
    ],
)
def test_records_that_are_cut_or_senseless_hurt_nobody(record: Record) -> None:
    """What does not fit together is passed over."""
    view = feed(JobView("run", 0), [batch(10.0, record), batch(20.0, record)])

    assert find_symptoms(view, START + 20.0) == []


def test_a_flood_is_held_in_bounded_memory() -> None:
    """Ten thousand different failures and communicators leave some hundreds."""
    view = JobView("run", 0)
    for turn in range(100):
        events = [
            LogEvent(event="cuda_error", text=f"{turn} {n}", source=f"log:{turn}.{n}", at=START + turn)
            for n in range(100)
        ]
        view.take(batch(float(turn), *events), events)

    assert len(view.logged.entries) <= 256


def test_the_same_view_gives_the_same_symptoms() -> None:
    """Asking twice changes nothing, and two views of the same batches agree."""
    batches, now = story(2)
    one, other = feed(JobView("run", 0), batches), feed(JobView("run", 0), batches)

    first: list[Symptom] = find_symptoms(one, now)
    assert first == find_symptoms(one, now) == find_symptoms(other, now)
