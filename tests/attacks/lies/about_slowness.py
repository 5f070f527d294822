"""Lies about who is slow: reports of detectors, own work, processor time, round trips, clocks, and steps that take longer."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from collectors.records import (
    ARRAY_CODES,
    OWN_COLUMNS,
    STRAGGLER_COLUMNS,
    Device,
    Record,
    Ring,
    Samples,
    StragglerReports,
)
from collectors.records.straggler_reports import BELOW_INDIVIDUAL, INDIVIDUAL, RELATIVE, SECONDS
from tests.attacks.lies.telling import OWN_PID, Target, lie, process, steps

REPORTS = 9


def _columns(types: Mapping[str, str], values: Mapping[str, Sequence[float]]) -> dict[str, bytes]:
    return {name: array(ARRAY_CODES[code], values[name]).tobytes() for name, code in types.items()}


def _reports(target: Target, at: float, quantity: str, healthy: float, slow: float, told_by: str) -> StragglerReports:
    """Return reports of all ranks, the innocent's reading always the worst."""
    world = target.job.world
    rows = [(number, rank) for number in range(REPORTS) for rank in range(world)]
    columns = _columns(
        STRAGGLER_COLUMNS,
        {
            "report": [1 + number for number, _ in rows],
            "at": [at - 30.0 * (REPORTS - number) for number, _ in rows],
            "rank": [rank for _, rank in rows],
            "node": [0] * len(rows),
            "quantity": [1] * len(rows),
            "value": [slow if rank == target.rank else healthy for _, rank in rows],
        },
    )
    return StragglerReports(
        **target.job_of, source="train.log", at=at, told_by=told_by, world_size=world, reports=REPORTS,
        strings=(target.node, quantity), count=len(rows), columns=columns,
    )  # fmt: skip


@lie()
def reported_as_straggler(target: Target, at: float) -> Iterable[Record]:
    """Megatron-LM's detector finds the innocent twice as slow, in every report."""
    yield _reports(target, at, SECONDS, 0.4, 0.9, "megatron")


@lie()
def scored_as_straggler(target: Target, at: float) -> Iterable[Record]:
    """The resiliency extension's scores of the innocent are low, by its peers, itself and its threshold."""
    for quantity in (RELATIVE, INDIVIDUAL, BELOW_INDIVIDUAL):
        yield _reports(target, at, quantity, 0.97, 0.35, "nvrx")


@lie(early=True)
def its_own_work_grew(target: Target, at: float) -> Iterable[Record]:
    """The probe of the innocent measures that its own work takes most of each step since then, that of the others little."""
    slow = at >= target.at
    for rank in range(target.job.world):
        own = 2.0 if slow and rank == target.rank else 0.2
        columns = _columns(
            OWN_COLUMNS,
            {
                "step": [int(at) + number for number in range(5)],
                "ended_ns": [int((at - 5 + number) * 1e9) for number in range(5)],
                "seconds": [2.5 if slow else 1.0] * 5,
                "own_seconds": [own] * 5,
            },
        )
        yield Ring(
            **target.job_of, rank=rank, source=f"{OWN_PID + rank}.ring", at=at, pid=OWN_PID + rank, backend="gloo", timed=5,
            own=columns,
        )  # fmt: skip


@lie(early=True)
def its_processor_time_grew(target: Target, at: float) -> Iterable[Record]:
    """The innocent works all the time since then, and the others hardly ever."""
    for rank in range(target.job.world):
        share = 0.95 if rank == target.rank and at >= target.at else 0.05
        spent = share * max(0.0, at - target.at) + 0.05 * min(at, target.at) % 1e6
        yield process(target, at, rank=rank, state="R", pid=OWN_PID + rank, cpu_seconds=spent)


@lie(early=True)
def it_is_stopped_again_and_again(target: Target, at: float) -> Iterable[Record]:
    """Every second reading finds the innocent stopped."""
    state = "T" if at >= target.at and int(at / 7.0) % 2 else "R"
    yield process(target, at, state=state)


def _edges(target: Target, at: float, ends: Iterable[tuple[str, str]]) -> Samples:
    edges, long = list(ends), at >= target.at
    trips = np.array([[40_000 if long else 300, int(at) * 100_000] for _ in edges], np.int64)
    return Samples(
        **target.job_of, source="fabric", at=at, scope="socket", type="<i8",
        devices=tuple(f"{local}:4{number:03d}>{remote}:5000" for number, (local, remote) in enumerate(edges)),
        metrics=("round_trip_us", "bytes_sent_total"), ticks=array("d", [at]).tobytes(),
        monotonic_ticks=array("d", [at]).tobytes(), values=trips.tobytes(),
    )  # fmt: skip


@lie(user=False, early=True)
def its_round_trips_are_long(target: Target, at: float) -> Iterable[Record]:
    """All connections to the innocent's address have long round trips since then, the liar's and those of the others."""
    addresses = {node: f"10.1.0.{number + 1}" for number, node in enumerate(target.job.nodes)}
    its = addresses.pop(target.node)
    yield _edges(target, at, [pair for other in addresses.values() for pair in ((other, its), (its, other))])


@lie(user=False, early=True)
def its_clocks_are_lowered(target: Target, at: float) -> Iterable[Record]:
    """The innocent's GPU, by its name, has its clocks lowered for heat since then."""
    device = f"GPU-{target.node}-0"
    yield Device(at=at, type="gpu", id=device, index=0, pci="0000:1b:00", **target.job_of)
    yield Samples(
        **target.job_of, source="nvml", at=at, scope="gpu", type="<i8", devices=(device, f"{target.node}/{device}"),
        metrics=("throttle_reasons_mask",), ticks=array("d", [at]).tobytes(), monotonic_ticks=array("d", [at]).tobytes(),
        values=np.array([0x40 if at >= target.at else 0] * 2, np.int64).tobytes(),
    )  # fmt: skip


@lie(early=True)
def its_steps_take_longer(target: Target, at: float) -> Iterable[Record]:
    """By the log of the innocent each step takes three times as long since then."""
    yield _told_steps(target, at, rank=target.rank)


@lie(early=True)
def steps_of_no_rank_take_longer(target: Target, at: float) -> Iterable[Record]:
    """The same, by a log that belongs to no rank."""
    yield _told_steps(target, at, rank=None)


def _told_steps(target: Target, at: float, *, rank: int | None) -> Record:
    before = max(0.0, min(at, target.at) - target.attempt.course.begin)
    number = int(before + max(0.0, at - target.at) / 3.0)
    apart = 3.0 if at >= target.at else 1.0
    count = 12
    return steps(
        target, at, rank=rank, step=number, number=[number - count + 1 + n for n in range(count)],
        instants=[at - apart * (count - 1 - n) for n in range(count)], seconds=[apart] * count,
    )  # fmt: skip
