"""Traces of slow jobs: labelled real ones under everything that may befall them, down to what can be found, and simulated ones.

FAULTHOUND_CORPUS=… python -m tests.acceptance.slow_traces [--smallest]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.evaluation.proportions import interval
from simulation.traces.op_traces import OpJob, long_documents
from tests.bench.measure import REPOSITORY, provenance
from tests.support.op_traces import corpus, real, simulated
from tests.support.slow_cases import CONTROLS, SPOILS, healed, injected, positions, ranks, relabelled

SIZES = (1.02, 1.03, 1.04, 1.05, 1.075, 1.1, 1.15, 1.2, 1.3, 1.5, 2.0)
PUBLISHED = {"AR": 1.973, "ST": 1.179}  # T / T_ideal in the trace's own repository, StragglerAnalysis, by a simulator
RUNS = 5


@dataclass(frozen=True)
class Answer:
    """What a verdict named, and whether that is right; ``evicted``: innocent ranks that would be."""

    case: str
    right: bool
    evicted: int


def _spoilt(seeds: int) -> Iterator[Answer]:
    """Yield an answer for each way to spoil each trace, and each seed."""
    for how, spoil in SPOILS.items():
        for seed in range(1 if how in ("whole", "half precision") else seeds):
            draws = np.random.default_rng(seed)
            verdict = spoil(real("AR"), draws).verdict()
            evicted = len(set(verdict.action.ranks) - {0}) if verdict.action.kind == "evict" else 0
            yield Answer(f"AR, {how}", ranks(verdict) == [0] and verdict.cause == "machine", evicted)
            verdict = spoil(real("ST"), draws).verdict()
            named = [(one.kind, one.id) for one in verdict.culprits]
            yield Answer(f"ST, {how}", named == [("stage", "3")], len(verdict.action.ranks))
    for seed in range(seeds):
        table, new = relabelled(real("AR"), np.random.default_rng(seed))
        yield Answer("AR, relabelled", ranks(table.verdict()) == [new[0]], 0)


def _limit(places: int) -> dict[str, dict[str, float]]:
    """Return, by size, the share of workers of the healed AR that are named when slowed by that; innocents named too."""
    found = {}
    table = healed()
    for size in SIZES:
        named = innocent = evicted = 0
        chosen = list(positions(table))[:: max(1, 16 // places)]
        for dp, pp in chosen:
            spoilt, rank = injected(table, dp, pp, size)
            verdict = spoilt.verdict()
            named += rank in ranks(verdict)
            innocent += bool(set(ranks(verdict)) - {rank})
            evicted += verdict.action.kind == "evict" and verdict.action.ranks == (rank,)
        found[f"{size:g}"] = {"n": len(chosen), "named": named, "evicted": evicted, "innocents_named": innocent}
    return found


def _controls() -> dict[str, dict[str, int]]:
    """Return, for each simple rule, on how many of the sizes it named the worker alone, and on how many an innocent."""
    table = healed()
    found = {}
    for control in CONTROLS:
        counts: Counter[str] = Counter(right=0, innocents=0)
        for size in SIZES:
            spoilt, rank = injected(table, 0, 0, size)
            evicts = control.evicts(spoilt)
            counts["right"] += evicts == [rank]
            counts["innocents"] += bool(set(evicts) - {rank})
        counts["innocents_of_the_uneven_stage"] = len(control.evicts(real("ST")))
        found[control.name] = dict(counts)
    return found


def _simulated(seeds: int) -> tuple[dict[str, dict[str, int]], int, int]:
    """Return the answers on simulated jobs of which none has a machine at fault, and how many innocents were evicted."""
    jobs: dict[str, dict[str, Any]] = {
        "healthy": {}, "noise of a tenth": {"jitter": 0.1}, "last stage 1.05": {"splits": (1, 1, 1, 1.05)},
        "uneven split": {"splits": (1, 1, 1, 1.7)}, "uneven split, noise": {"splits": (1.7, 1, 1, 1), "jitter": 0.1},
        "long documents": {"length": long_documents},
        "long documents, 16 replicas": {"length": long_documents, "replicas": 16, "stages": 2},
        "half of the replicas slow": {"worker": lambda _, replica, __: 1.3 if replica < 2 else 1.0},
        "pauses": {"pause": lambda _, __, ___, draws: 0.6 if draws.random() < 0.1 else 0.0},
    }  # fmt: skip
    found: dict[str, dict[str, int]] = {}
    evicted = count = 0
    for name, what in jobs.items():
        causes: Counter[str] = Counter()
        for seed in range(seeds):
            verdict = simulated(OpJob(seed=seed, **what)).verdict()
            causes[f"{verdict.symptom}, {verdict.cause}{', abstained' if verdict.abstained else ''}"] += 1
            causes["ranks named"] += bool(
                [rank for one in verdict.culprits if one.kind == "rank" for rank in one.ranks]
            )
            evicted += verdict.action.kind == "evict"
            count += 1
        found[name] = dict(sorted(causes.items()))
    return found, evicted, count


def _seconds(*command: str) -> float:
    took = []
    for _ in range(RUNS):
        begun = time.perf_counter()
        subprocess.run(command, check=False, capture_output=True)
        took.append(time.perf_counter() - begun)
    return round(statistics.median(took), 3)


def _speed() -> dict[str, Any]:
    """Return how long whole processes take: the diagnosis, and reading the same file alone."""
    path = str(corpus("stragglers/trace-AR.parquet"))
    read = f"import pyarrow.parquet as p; p.read_table({path!r})"
    frame = f"import pandas as p; p.read_parquet({path!r})"
    has_pandas = (
        subprocess.run([sys.executable, "-c", "import pandas"], check=False, capture_output=True).returncode == 0
    )
    return {
        "rows": len(real("AR")),
        "diagnose": _seconds(sys.executable, "-m", "faulthound", "diagnose", path, "--json"),
        "pyarrow_alone": _seconds(sys.executable, "-c", read),
        "pandas_alone": _seconds(sys.executable, "-c", frame) if has_pandas else None,
    }


def _ideal() -> dict[str, dict[str, float]]:
    """Return T / T_ideal of both traces, beside what was published of them."""
    found = {}
    for name, published in PUBLISHED.items():
        text = next(one.text for one in real(name).verdict().evidence if "(T / T_ideal)" in one.text)
        found[name] = {"ours": float(text.partition(" s, ")[2].split(" ")[0]), "published": published}
    return found


def main() -> int:
    """Judge every variant, write the document; 0 only if the labelled answers are right and no innocent is evicted."""
    parser = argparse.ArgumentParser(description="Diagnose labelled and simulated traces of slow jobs.")
    parser.add_argument("--smallest", action="store_true", help="a few variants of each kind, written to out/")
    smallest = parser.parse_args().smallest
    if not os.environ.get("FAULTHOUND_CORPUS"):
        print("skipped: FAULTHOUND_CORPUS is not set, no labelled traces on this machine")
        return 0
    answers = list(_spoilt(1 if smallest else 10))
    jobs, evicted, count = _simulated(1 if smallest else 10)
    low, high = interval(evicted, count)
    wrong = Counter(answer.case for answer in answers if not answer.right)
    innocents = sum(answer.evicted for answer in answers)
    document = {
        **provenance("python -m tests.acceptance.slow_traces"),
        "labelled": {"n": len(answers), "wrong": dict(sorted(wrong.items())), "innocents_evicted": innocents},
        "healed_and_one_slowed": _limit(2 if smallest else 16),
        "simple_rules": _controls(),
        "simulated": {
            "n": count,
            "evicted": {"count": evicted, "bound_95": [round(low, 5), round(high, 5)]},
            "answers": jobs,
        },
        "slowdown_against_ideal": _ideal(),
    }
    if not smallest:
        document["seconds_of_whole_processes"] = _speed()
    path = REPOSITORY / ("out" if smallest else "docs/measured") / "slow_traces.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(path.read_text(encoding="utf-8"))
    return int(bool(wrong) or bool(innocents) or bool(evicted))


if __name__ == "__main__":
    sys.exit(main())
