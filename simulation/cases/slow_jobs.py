"""A simulated slow job as one trace of its operations, and its label: who slows it, or that no machine does."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from simulation.cases.labels import CaseLabel
from simulation.traces.op_traces import Factor, OpJob, long_documents

COLUMNS = ("rank", "dp_rank", "stage", "step", "optype", "start_ts", "duration", "mb_id")
FACTORS = (1.1, 1.2, 1.3, 1.5, 2.0)
FEWEST_PEERS = 3  # of two workers with the same work and no past, either may be the slow one
LATENT, SLOWED = (
    1.02,
    1.05,
)  # times the length of the same job without it: below, the job does not wait for it; above, it does


@dataclass(frozen=True, slots=True)
class SlowCase:
    """A job and its label, before anything runs."""

    job: OpJob
    label: CaseLabel


def write_slow(folder: Path, seed: int, most_ranks: int) -> CaseLabel:
    """Draw, run and write one seed into a new folder; return its label."""
    case = draw_slow(seed, most_ranks, folder.name)
    folder.mkdir(parents=True)
    with (folder / "trace.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        for stage, replica, step, found in case.job.rows():
            place = (stage * case.job.replicas + replica, replica, stage, step)
            writer.writerows((*place, name, f"{at:.6f}", f"{took:.6f}", number) for name, at, took, number in found)
    return case.label


def draw_slow(seed: int, most_ranks: int, path: str = "") -> SlowCase:
    """Decide a job; kinds take turns. Up to 64 ranks the size is drawn as well, a larger one is met exactly."""
    draws = random.Random(seed * 1_000_003 + most_ranks + 1)
    kind = KINDS[seed % len(KINDS)]
    stages = max(draws.choice((1, 2, 4, 8)), 2 if kind is _uneven else 1)
    replicas = max(2, most_ranks // stages)
    if most_ranks <= 64:
        replicas = max(2, min(replicas, draws.choice((2, 4, 4, 8, 16))))
    shape = OpJob(
        stages=stages,
        replicas=replicas,
        microbatches=draws.choice((4, 8, 16)) if most_ranks <= 64 else 4,
        steps=draws.randrange(6, 17) if most_ranks <= 64 else 6,
        seed=seed,
        forward_seconds=draws.uniform(0.02, 0.3),
        jitter=draws.uniform(0.002, 0.05),
    )
    return kind(shape, draws, path)


def _machine(job: OpJob, draws: random.Random, path: str) -> SlowCase:
    stage, replica = draws.randrange(job.stages), draws.randrange(job.replicas)
    times = draws.choice(FACTORS)
    since = draws.choice((0, job.steps // 2))
    slow = replace(job, worker=lambda s, r, step: times if (s, r) == (stage, replica) and step >= since else 1.0)
    label = CaseLabel(
        path=path, fault="slow_worker", cause=("machine",), culprits=(f"rank:{stage * job.replicas + replica}",),
        decidable=job.replicas >= FEWEST_PEERS,
    )  # fmt: skip
    return SlowCase(slow, _by_effect(label, slow, job))


def _healthy(job: OpJob, _: random.Random, path: str) -> SlowCase:
    return _case(job, CaseLabel(path=path, fault="even_pace", cause=("none",), culprits=()))


def _uneven(job: OpJob, draws: random.Random, path: str) -> SlowCase:
    stage, times = draws.randrange(job.stages), draws.uniform(1.3, 1.8)
    slow = replace(job, splits=tuple(times if one == stage else 1.0 for one in range(job.stages)))
    even = replace(job, splits=(sum(slow.splits) / job.stages,) * job.stages)
    label = CaseLabel(path=path, fault="uneven_stage", cause=("imbalance",), culprits=(), masked=(f"stage:{stage}",))
    return SlowCase(slow, _by_effect(label, slow, even))


def _by_effect(label: CaseLabel, slow: OpJob, reference: OpJob) -> CaseLabel:
    """Return the label by how much longer the job takes: who slows no job is no culprit, and little is not decidable."""
    times = _seconds(slow) / _seconds(reference)
    if times < LATENT:
        masked = label.culprits + label.masked
        return replace(
            label, fault="latent_" + label.fault, cause=("none",), culprits=(), masked=masked, decidable=True
        )
    return replace(label, decidable=label.decidable and times >= SLOWED)


def _seconds(job: OpJob) -> float:
    """Return how long a job takes, by the clock of one worker: each has an origin of its own."""
    mine = [found for stage, replica, _, found in replace(job).rows() if (stage, replica) == (0, 0)]
    (_, first, _, _), (_, last, took, _) = mine[0][0], mine[-1][-1]
    return last + took - first


def _documents(job: OpJob, _: random.Random, path: str) -> SlowCase:
    return _case(job, CaseLabel(path=path, fault="long_documents", cause=("data",), culprits=()), length=long_documents)


def _half(job: OpJob, draws: random.Random, path: str) -> SlowCase:
    times = draws.choice(FACTORS)
    label = CaseLabel(path=path, fault="half_slow", cause=("unknown",), culprits=(), decidable=False)
    return _case(job, label, worker=lambda _, replica, __: times if replica < job.replicas // 2 else 1.0)


def _pauses(job: OpJob, _: random.Random, path: str) -> SlowCase:
    seconds = 3 * job.forward_seconds * job.microbatches

    def pause(_: int, __: int, ___: int, draw: random.Random) -> float:
        return seconds if draw.random() < 0.1 else 0.0

    label = CaseLabel(path=path, fault="pauses", cause=("code",), culprits=())
    return _case(job, label, pause=pause)


def _case(job: OpJob, label: CaseLabel, **slow: Factor | Callable[..., float] | tuple[float, ...]) -> SlowCase:
    return SlowCase(replace(job, **slow), label)  # type: ignore[arg-type]


KINDS = (_machine, _healthy, _machine, _uneven, _machine, _documents, _half, _pauses)
