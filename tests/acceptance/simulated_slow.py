"""Simulated slow jobs of 64 to 16,384 ranks: a slowed worker named, and no machine where none is at fault.

Each case's score is kept in out/simulated_slow.jsonl beside a digest of the code that it was made with, so that a second call
runs only what is missing or was made by other code. A case is of a seed; what is slow is known from the simulator.

    python -m tests.acceptance.simulated_slow [--smallest] [--minutes 30]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections import Counter
from dataclasses import asdict
from typing import Any

from analyzers.diagnosis.slow.slow_workers import LATENT
from service.evaluation.proportions import interval
from tests.acceptance.simulated_hangs import code_digest
from tests.bench.measure import REPOSITORY, provenance
from tests.support.simulated_slow import CELLS, SLOWED, STRAYS, SlowScore, run_case

KEPT = REPOSITORY / "out" / "simulated_slow.jsonl"
SHARE_MIN = 0.99
Wanted = tuple[str, int, int]  # cell, ranks, seed


def wanted(*, smallest: bool) -> list[Wanted]:
    """Return the cases, those of one seed together, so that a run that is cut has some of each cell."""
    if smallest:
        return [(cell, 64, seed) for seed in range(2) for cell in CELLS]
    cases = [(SLOWED, 1024, seed) for seed in range(60)] + [(SLOWED, 16384, seed) for seed in range(20)]
    cases += [(STRAYS, 1024, seed) for seed in range(20)]
    others = [cell for cell in CELLS if cell not in (SLOWED, STRAYS)]
    cases += [(cell, (64, 256, 1024)[seed % 3], seed) for cell in others for seed in range(50)]
    return sorted(cases, key=lambda case: case[2])


def digest() -> str:
    """Name the code that a score depends on."""
    found = hashlib.sha256(code_digest().encode())
    for path in (
        "simulation/traces/op_traces.py",
        "simulation/traces/wide_op_traces.py",
        "tests/support/simulated_slow.py",
    ):
        found.update((REPOSITORY / path).read_bytes())
    return found.hexdigest()[:16]


def kept(code: str) -> dict[Wanted, SlowScore]:
    """Return the scores that this code made before."""
    if not KEPT.exists():
        return {}
    rows = (json.loads(line) for line in KEPT.read_text(encoding="utf-8").splitlines())
    scores = [SlowScore(**row["score"]) for row in rows if row["digest"] == code]
    return {(score.cell, score.ranks, score.seed): score for score in scores}


def share(count: int, n: int) -> dict[str, Any]:
    """Return a share with its 95 % bounds."""
    return {"count": count, "n": n, "bound_95": list(interval(count, n)) if n else [0.0, 1.0]}


def summed(scores: list[SlowScore]) -> dict[str, Any]:
    """Sum up the cases of a cell."""
    n, faulty = len(scores), [score for score in scores if score.times]
    found: dict[str, Any] = {"n": n, "ranks": sorted({score.ranks for score in scores})}
    if faulty:
        costly = [score for score in faulty if score.cost >= LATENT]
        found["top"] = share(sum(score.top for score in faulty), n)
        found["top_of_costly"] = share(sum(score.top and score.class_right for score in costly), len(costly))
        found["latent"] = share(sum(score.latent for score in faulty), n)
        found["top_or_latent"] = share(sum(score.top or score.latent for score in faulty), n)
        found["neither"] = sum(not score.top and not score.latent for score in faulty)
        found["by_times"] = {
            f"{times:g}": f"{sum(score.top for score in faulty if score.times == times)} of "
            f"{sum(score.times == times for score in faulty)}"
            for times in sorted({score.times for score in faulty})
        }
    elif any(score.top for score in scores):
        found["top"] = share(sum(score.top for score in scores), n)
    return found | {
        "class_right": share(sum(score.class_right for score in scores), n),
        "abstained": sum(score.abstained for score in scores),
        "innocent_named": share(sum(score.named > 0 for score in scores), n),
        "innocent_evicted": share(sum(score.evicted > 0 for score in scores), n),
        "classes": dict(Counter(score.fault_class for score in scores).most_common()),
        "processor_seconds_max": max(score.seconds for score in scores),
        "operations_max": max(score.operations for score in scores),
        "simple_rules": _rules(scores),
    }


def _rules(scores: list[SlowScore]) -> dict[str, dict[str, int]]:
    names = dict.fromkeys(name for score in scores for name in score.controls)
    return {
        name: {
            "n": sum(name in score.controls for score in scores),
            "right": sum(score.controls[name][0] for score in scores if name in score.controls),
            "innocent_evicted": sum(score.controls[name][1] > 0 for score in scores if name in score.controls),
        }
        for name in names
    }


def report(scores: list[SlowScore]) -> dict[str, Any]:
    """Sum up each cell, the confounders in all, and list what is not as it should be."""
    cells: dict[str, list[SlowScore]] = {}
    for score in scores:
        cells.setdefault(
            f"{score.cell}, {score.ranks:,} ranks" if score.cell in (SLOWED, STRAYS) else score.cell, []
        ).append(score)
    others = [score for score in scores if not score.times]
    return {
        "cells": {name: summed(of) for name, of in sorted(cells.items())},
        "no_machine_slowed": {
            "innocent_named": share(sum(score.named > 0 for score in others), len(others)),
            "innocent_evicted": share(sum(score.evicted > 0 for score in others), len(others)),
        },
        "not_right": [asdict(score) | {"controls": None} for score in scores if not is_right(score)],
    }


def is_right(score: SlowScore) -> bool:
    """Whether a slowed worker is named, as latent only where steps are hardly shorter without it; and no innocent is."""
    fault = score.times == 0 or score.top or (score.latent and score.class_right)
    return fault and score.class_right and not score.named and not score.evicted


def holds(scores: list[SlowScore]) -> bool:
    """Whether ≥ 99 % of slowed workers that cost a hundredth of the time are first, of the right class, and no innocent is."""
    faulty = [score for score in scores if score.times and score.cost >= LATENT]
    right = sum(score.top and score.class_right for score in faulty)
    return right >= SHARE_MIN * len(faulty) and not any(score.named or score.evicted for score in scores)


def main() -> int:
    """Run what is missing, write the document; 0 only if the claims hold."""
    parser = argparse.ArgumentParser(description="Judge simulated slow jobs.")
    parser.add_argument("--smallest", action="store_true", help="two small cases of each kind, written to out/")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no case after so many")
    options = parser.parse_args()
    cases, code, until = wanted(smallest=options.smallest), digest(), time.monotonic() + 60 * options.minutes
    done = kept(code)
    KEPT.parent.mkdir(exist_ok=True)
    with KEPT.open("a", encoding="utf-8") as keep:
        for number, case in enumerate(cases):
            if case in done or time.monotonic() > until:
                continue
            done[case] = score = run_case(*case)
            keep.write(json.dumps({"digest": code, "score": asdict(score)}) + "\n")
            keep.flush()
            print(
                f"{number + 1}/{len(cases)} {case}: {'right' if is_right(score) else 'WRONG'}, {score.fault_class}",
                flush=True,
            )
    scores = [done[case] for case in cases if case in done]
    target = REPOSITORY / ("out" if options.smallest else "docs/measured") / "simulated_slow.json"
    command = "python -m tests.acceptance.simulated_slow" + " --smallest" * options.smallest
    summary = report(scores)
    document = provenance(command) | {"code": code, "cases": f"{len(scores)} of {len(cases)}"} | summary
    target.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{len(scores)} of {len(cases)} cases, {len(summary['not_right'])} not right: {target}")
    return 0 if holds(scores) else 1


if __name__ == "__main__":
    sys.exit(main())
