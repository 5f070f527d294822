"""Who a slow job's verdict names without the probe: the rank that is outside communication longer than before, by samples."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

import pytest

from analyzers.diagnosis.slow.live import live_claims
from analyzers.incidents.cuts import make_cut
from analyzers.incidents.detectors.slow import detect
from analyzers.incidents.job_views import JobView
from analyzers.incidents.job_views.burdens import Burdens
from analyzers.incidents.job_views.node import NodeView
from analyzers.incidents.job_views.sampled_time import SampledTime, Span
from analyzers.incidents.job_views.step_rhythm import StepRhythm, StepRow
from analyzers.incidents.state import EngineState
from analyzers.model.incident import Incident, Symptom
from analyzers.model.slow_look import Apart, Measure, SlowLook
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import Frame, ProcessState, Profile, Record, StackShare
from service.packaged_knowledge import load
from tests.analyzers.incidents.test_who_is_slow import BEGAN, Readings, _of, named, timed, verdicts, working
from tests.support.watched_jobs import START, WatchedJob

EVERY_SECONDS, ASKED = 120.0, (130.0, 140.0, 150.0, 160.0, 170.0)  # since the slowdown
LONGER = 0.4  # a step of a second
TORCH = "/usr/lib/python3/site-packages/torch/distributed/distributed_c10d.py"
WAITS = (Frame("all_reduce", TORCH, 2810), Frame("train", "/job/train.py", 50))
WORKS = (Frame("pad", "/job/train.py", 7), Frame("train", "/job/train.py", 50))
Own = Callable[[int, float], float]
"""Rank and instant → seconds of a step that it is outside communication."""


def late(whose: set[int], before: Own = lambda _rank, _at: 0.6) -> Own:
    """Return own times of which those of some ranks become as much longer as the steps."""
    return lambda rank, at: before(rank, at) + (LONGER if rank in whose and at > BEGAN else 0.0)


def profile(rank: int, at: float, share: float, seconds: float, samples: int, noise: random.Random) -> Profile:
    """Return a profile of which a share is outside communication, but for chance."""
    outside = sum(noise.random() < share for _ in range(samples))
    return Profile(
        job="run", attempt=0, rank=rank, pid=100 + rank, at=START + at, boot_id="b", source=f"profile/{100 + rank}",
        seconds=seconds, samples=samples,
        stacks=(StackShare(frames=WORKS, samples=outside), StackShare(frames=WAITS, samples=samples - outside)),
    )  # fmt: skip


def sampled(own: Own, *, since: float = 0.0, seed: int = 0) -> Readings:
    """Return what agents sample: ten seconds of two minutes, and four in each round of the incident."""
    noise = random.Random(seed)
    taken: set[tuple[int, int]] = set()

    def read(at: float, node: int) -> Iterator[Record]:
        for rank in range(4 * node, 4 * node + 4):
            step = 1.0 + (LONGER if at > BEGAN else 0.0)
            share = own(rank, at) / step
            due = int((at + 15.0 * rank) // EVERY_SECONDS)
            if at >= since and (rank, due) not in taken:
                taken.add((rank, due))
                yield profile(rank, at, share, 10.0, 120, noise)
            elif any(asked <= at - BEGAN < asked + 10.0 for asked in ASKED):
                yield profile(rank, at, share, 4.0, 160, noise)

    return read


def outside_most_often(read: Readings) -> int:
    """Return whom a naive rule names: the rank that is outside communication in most samples since the slowdown."""
    outside, total = Counter[int](), Counter[int]()
    for tick in range(int(BEGAN) + 10, int(BEGAN) + 200, 10):
        for one in (one for node in (0, 1) for one in read(float(tick), node)):
            if isinstance(one, Profile) and one.rank is not None:
                outside[one.rank] += one.stacks[0].samples
                total[one.rank] += one.samples
    return max(total, key=lambda rank: outside[rank] / total[rank])


def busiest(read: Readings) -> int:
    """Return whom another names: the rank with most processor time since the slowdown."""
    spent: dict[int, list[float]] = defaultdict(list)
    for tick in range(int(BEGAN) + 10, int(BEGAN) + 200, 10):
        for one in (one for node in (0, 1) for one in read(float(tick), node)):
            if isinstance(one, ProcessState) and one.rank is not None and one.cpu_seconds is not None:
                spent[one.rank].append(one.cpu_seconds)
    return max(spent, key=lambda rank: spent[rank][-1] - spent[rank][0])


def both(*readings: Readings) -> Readings:
    """Return what several collectors read."""
    return lambda at, node: (record for read in readings for record in read(at, node))


def compared(read: Readings, *, least_at: float = 0.0) -> Measure | None:
    """Return the measure of a slowdown by samples, as it is when the last look has come; None: too few samples."""
    burdens, nodes = Burdens(load()), [NodeView("n0"), NodeView("n1")]
    ends = BEGAN + ASKED[-1] + 10.0
    for tick in range(int(least_at), int(ends), 10):
        for number, node in enumerate(nodes):
            for one in read(float(tick), number):
                if isinstance(one, Profile):
                    burdens.profile(one, node, START + tick + 0.1)
    found = burdens.compare(START + BEGAN, START + ends, 1.0, 1.0 + LONGER)
    return next((one for one in found if one.name == "sampled"), None)


def apart(measure: Measure | None) -> list[str]:
    """Return who stands apart."""
    return [] if measure is None else [one.id for one in measure.apart]


def test_the_rank_that_the_others_wait_for_is_named_and_kept() -> None:
    """Its peers are inside an all-reduce for as much longer as the steps take, it alone is not; nothing is done to its node."""
    *_, last = verdicts(sampled(late({5})))

    assert named(last) == [("rank", "5")]
    assert (last.action.kind, last.roots[0].fault_class, last.cause) == ("none", "slow_rank", "unknown")
    assert "outside communication" in last.culprits[0].why
    assert "rank 5 is in pad (job/train.py)" in last.culprits[0].why


@pytest.mark.parametrize("culprit", range(8))
def test_every_rank_can_be_the_one(culprit: int) -> None:
    """Whoever it is, and whatever chance does: it stands apart, alone."""
    for seed in range(5):
        assert apart(compared(sampled(late({culprit}), seed=seed))) == [str(culprit)]


@pytest.mark.parametrize(
    "own",
    [
        lambda rank, _at: 0.9 if rank == 5 else 0.6,
        late(set(range(8))),
        late(set(range(8)), lambda rank, _at: 0.5 if rank == 5 else 0.2),
        late({1, 2, 6}),
        lambda rank, at: 0.6 + (0.1 if rank == 5 and at > BEGAN else 0.0),
        lambda _rank, _at: 0.6,
    ],
    ids=["before too", "all of them", "all, one always more", "three", "too little for the steps", "none of them"],
)
def test_what_one_rank_alone_did_not_begin_is_of_no_rank(own: Own) -> None:
    """A rank with more work than others is healthy, and what several or none show is no rank's guilt."""
    for seed in range(10):
        measure = compared(sampled(own, seed=seed))
        assert measure is not None
        assert apart(measure) == []


def test_naive_rules_name_an_innocent_of_an_imbalanced_job() -> None:
    """One rank has always had more work and the busiest processor; then the loader of all becomes slower."""
    more = late(set(range(8)), lambda rank, _at: 0.5 if rank == 5 else 0.2)

    assert outside_most_often(sampled(more)) == 5
    assert busiest(working(lambda rank, _at: 0.9 if rank == 5 else 0.3)) == 5
    found = verdicts(both(sampled(more), working(lambda rank, _at: 0.9 if rank == 5 else 0.3)))
    assert {one for verdict in found for one in named(verdict)} == set()
    assert any("every rank takes" in one.text for one in found[-1].evidence)
    assert any("whether it is the code, its data" in one.what for one in found[-1].missing)


def test_the_busiest_processor_is_not_who_is_waited_for() -> None:
    """The rank that waits for its disk spends no processor time; another one, which always spins, spends most."""
    assert busiest(working(lambda rank, _at: 0.9 if rank == 1 else 0.3)) == 1

    assert apart(compared(sampled(late({6})))) == ["6"]


def test_without_a_past_nobody_stands_apart() -> None:
    """An agent that began to sample with the slowdown does not know what was before."""
    assert apart(compared(sampled(late({5}), since=BEGAN))) == []
    assert outside_most_often(sampled(late({5}), since=BEGAN)) == 5


def test_what_comes_after_the_slowdown_takes_no_name_away() -> None:
    """The fault has ended; while its incident is open, all ranks are outside communication for more of shorter steps."""
    ended = BEGAN + 165.0
    given = sampled(late({5}))
    noise = random.Random(1)
    steps = (BEGAN, BEGAN + 118.0)  # of 1.4 s
    job = WatchedJob(law=lambda step, noise: noise.uniform(0.97, 1.03) * (1.4 if steps[0] <= step < steps[1] else 1.0))
    view = JobView("run", 0, load())
    for batch in job.batches(0.0, ended + 45.0):
        at, number = batch.received_at - START, int(batch.node[1:])
        more = list(given(at, number))
        if at > ended:
            more = [profile(rank, at, 0.6, 8.0, 800, noise) for rank in range(4 * number, 4 * number + 4)]
        view.take(batch, list(_of(batch, [*batch.records, *more])))
        list(detect(view, batch.received_at))
    state = EngineState(load(), now=START + ended + 45.0)
    state.jobs["run", 0] = view
    symptom = Symptom(kind="slow", detector="slow", at=START + BEGAN, text="")
    incident = Incident(
        id="i", kind="slow", job="run", attempt=0, opened_at=START + BEGAN + 130.0, onset_at=START + BEGAN, symptoms=(symptom,),
        after=0, nodes=("n0", "n1"),
    )  # fmt: skip

    slow = make_cut(state, incident).slow

    assert view.progress.slowdown is not None
    assert slow is not None
    assert apart(next(one for one in slow.measures if one.name == "sampled")) == ["5"]


def test_a_few_samples_are_not_enough() -> None:
    """Of each look three samples, or samples of less than a step: by chance any rank would stand apart."""
    for samples, seconds in ((3, 4.0), (120, 0.2)):
        given = sampled(late({5}))

        def read(
            at: float, node: int, given: Readings = given, n: int = samples, s: float = seconds
        ) -> Iterator[Record]:
            for one in given(at, node):
                assert isinstance(one, Profile)
                yield profile(one.rank or 0, at, one.stacks[0].samples / one.samples, s, n, random.Random(at))

        assert compared(read) is None


def test_what_the_probe_measures_goes_before_samples() -> None:
    """By the probe no rank works longer, and samples find one outside communication: what it waits in, no rule knows."""
    found = verdicts(both(sampled(late({5})), timed(lambda _rank, _at: 0.6)))

    assert {one for verdict in found for one in named(verdict)} == set()


def measured(name: str, rank: int, before: float, since: float) -> Measure:
    """Return a measure by which one rank of eight stands apart."""
    one = Apart(id=str(rank), before=before, since=since, ranks=(rank,), node="n0")
    return Measure(name=name, of="rank", read=8, before=before, since=before, apart=(one,), risen=1)


@pytest.mark.parametrize(
    ("other", "strength"), [(None, 0.6), (2, 0.9), (7, None)], ids=["alone", "agreed", "contradicted"]
)
def test_readings_that_agree_are_surer_and_that_contradict_name_nobody(
    other: int | None, strength: float | None
) -> None:
    """Samples name rank 2; a process that something stops is the same rank's, or another's."""
    measures = [measured("sampled", 2, 0.6, 1.0)]
    measures += [] if other is None else [measured("stopped", other, 0.0, 0.3)]
    slow = SlowLook(since=START, step=9, before_seconds=1.0, seconds=1.4, measures=tuple(measures))

    (found,) = live_claims(slow, Window(), Topology(nodes=dict.fromkeys(range(8), "n0")), load())

    assert [one.strength for one in found.suspects] == ([] if strength is None else [pytest.approx(strength)])


@pytest.mark.parametrize(
    "lie",
    [
        {"samples": -5}, {"samples": 1 << 40}, {"seconds": float("nan")}, {"seconds": 1e9}, {"seconds": -1.0},
        {"stacks": (StackShare(frames=WORKS, samples=1 << 50),)}, {"stacks": (StackShare(frames=WORKS, samples=-3),)},
    ],
    ids=str,
)  # fmt: skip
def test_impossible_numbers_are_left_out(lie: dict[str, object]) -> None:
    """They change nothing of what was read beside them."""
    good = profile(0, 30.0, 0.5, 10.0, 100, random.Random(1))

    def read(*given: Profile) -> list[float]:
        kept = SampledTime([0], load())
        for one in given:
            kept.take(0, one, START + 30.0)
        span = Span(START - 120.0, START + 120.0, 1.0)
        return [float(values[0]) for values in kept.compare(span, span, ())]

    given = {name: getattr(good, name) for name in good.__struct_fields__} | lie
    assert read(good, Profile(**given)) == read(good)


def test_samples_of_a_pause_are_of_no_step() -> None:
    """Data becomes longer on all ranks; one was sampled before only while all waited for a checkpoint to be written."""
    burdens, nodes, noise = Burdens(load()), [NodeView("n0"), NodeView("n1")], random.Random(0)
    for rank in range(8):
        before, at = (0.0, 250.0) if rank == 3 else (1.0, 130.0)
        burdens.profile(profile(rank, at, before, 10.0, 120, noise), nodes[rank // 4], START + at)
        burdens.profile(profile(rank, 460.0, 1.0, 10.0, 120, noise), nodes[rank // 4], START + 460.0)

    def named(pauses: list[tuple[float, float]]) -> list[str]:
        found = burdens.compare(START + 310.0, START + 500.0, 1.0, 1.0 + LONGER, (), pauses)
        return apart(next(one for one in found if one.name == "sampled"))

    assert named([]) == ["3"]
    assert named([(START + 240.0, START + 268.0)]) == []


def test_the_pauses_of_a_rhythm_are_when_no_step_ended() -> None:
    """A checkpoint of half a minute among steps of a second."""
    rhythm = StepRhythm()
    for step in range(200):
        rhythm.add(StepRow(START + step + (30.0 if step >= 100 else 0.0), step))

    assert rhythm.pauses() == [(START + 99.0, START + 130.0)]
