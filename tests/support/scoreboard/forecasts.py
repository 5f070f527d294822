"""Forecasts of simulated cases: as the scoreboard's, and of a simulator with another mix, other noise and sizes."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from analyzers.model.topology import infer
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.records import FlightRecorderDump, Record
from service.evaluation.forecasts import Forecast, forecasts_of
from service.evaluation.labels import read_labels
from service.evaluation.outcomes import guilt
from simulation.cases.hangs import label_of
from simulation.cases.labels import CaseLabel, document
from simulation.cases.slow_jobs import draw_slow
from simulation.scenarios import KINDS, draw, play
from tests.support.op_traces import simulated
from tests.support.simulated_hangs import knowledge

LEARNED, HELD_OUT, SHIFTED = "learned", "held out", "shifted"
FIRST_SEEDS = {LEARNED: 440_000, HELD_OUT: 300_000, SHIFTED: 504_000}
SIZES = {
    (LEARNED, "hang"): (256,), (HELD_OUT, "hang"): (256,), (SHIFTED, "hang"): (32, 64, 512),
    (LEARNED, "slow"): (64,), (HELD_OUT, "slow"): (64,), (SHIFTED, "slow"): (16, 128),
}  # fmt: skip
MIX = {"gone": 4, "network": 4, "device": 3, "never_entered": 3, "healthy": 3, "deadlock": 3}  # of hangs; of others 1
SLOW_MIX = (1, 3, 1, 2, 1, 3, 2, 3)  # of the kinds of slow jobs by their turns: fewer slow workers
MOST_FEW = 2  # dumps that are left


@dataclass(frozen=True, slots=True)
class Noise:
    """The shares of dumps and of a trace's rows that are lost, and times the usual jitter."""

    dumps: float = 0.0
    rows: float = 0.0
    jitter: float = 1.0


NOISE = {LEARNED: (Noise(), Noise(0.05, 0.02, 1.5)), HELD_OUT: (Noise(),), SHIFTED: (Noise(0.1, 0.05, 3.0),)}
"""Of the cases of each population, a round of kinds each. What is learned from has some noise, the shifted cases have more."""


@dataclass(frozen=True, slots=True)
class Case:
    """One case to write and judge."""

    population: str
    family: str
    most_ranks: int
    seed: int
    noise: Noise = Noise()


def cases(population: str) -> Iterator[Case]:
    """Yield cases without end, hangs and slow jobs in turn."""
    number = 0
    while True:
        for family in ("hang", "slow"):
            sizes = SIZES[population, family]
            seed = FIRST_SEEDS[population] + number
            if population == SHIFTED:
                seed = _shifted_seed(number, [MIX.get(kind, 1) for kind in KINDS] if family == "hang" else SLOW_MIX)
            noise = NOISE[population][number // len(KINDS) % len(NOISE[population])]  # all kinds with each
            yield Case(population, family, sizes[number % len(sizes)], seed, noise)
        number += 1


def _shifted_seed(number: int, weights: Sequence[int]) -> int:
    """Return a seed whose turn has a kind of this mix; the kinds take turns, and no seed comes twice."""
    turns = len(weights)
    first = -(-FIRST_SEEDS[SHIFTED] // turns) * turns
    (kind,) = random.Random(number).choices(range(turns), weights)
    return first + number * turns + kind


def forecasts(case: Case) -> list[Forecast]:
    """Judge the records of one case, and return what was claimed of each culprit, and whether it is guilty."""
    written, records = _hang(case) if case.family == "hang" else _slow(case)
    window = Window.build(records)
    shape = infer(window)
    verdict = judge(window, shape, knowledge())
    name = f"{case.family}-{case.most_ranks}-{case.seed}"
    with tempfile.TemporaryDirectory() as scratch:  # a label states a path, and there is none here
        folder = Path(scratch)
        (folder / "labels.toml").write_text(document([replace(written, path=".")]), encoding="utf-8")
        (label,) = read_labels(folder, None)
    return list(forecasts_of(name, label.origin, verdict, guilt(label, verdict, shape.ranks_on)))


def _hang(case: Case) -> tuple[CaseLabel, list[Record]]:
    played = play(draw(case.seed, case.most_ranks))
    records, draws = played.records(), random.Random(case.seed)
    kept = [one for one in records if not isinstance(one, FlightRecorderDump) or draws.random() >= case.noise.dumps]
    return label_of(played, "."), kept if len(kept) > MOST_FEW else records


def _slow(case: Case) -> tuple[CaseLabel, list[Record]]:
    drawn = draw_slow(case.seed, case.most_ranks)
    table = simulated(replace(drawn.job, jitter=drawn.job.jitter * case.noise.jitter))
    kept = np.random.default_rng(case.seed).random(len(table)) >= case.noise.rows
    return drawn.label, list(table.kept(kept).records())
