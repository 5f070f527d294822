"""Effective training time with the product in the loop, against three ways to do without it. A SIMULATION, of published mixes.

The product's own functions decide (step, guards, plan, ladder, conviction, standbys, dual-phase replay); faults, their rates
and the times of restarts are published numbers or ours (tests/support/ettr/), and how well a machine is named is what
docs/measured says. Every strategy meets the same faults, and sees each as fast as the product does. Finished runs are kept
in out/ettr.jsonl.

    python -m tests.acceptance.ettr [--smallest] [--workers 2] [--seeds 20]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import random
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from service.evaluation.proportions import interval
from tests.bench.measure import REPOSITORY, provenance
from tests.support.ettr.compared import STRATEGIES, settle
from tests.support.ettr.mixes import MIXES
from tests.support.ettr.parameters import measured
from tests.support.ettr.run import DAY

Row = dict[str, Any]
Wanted = tuple[str, str, str, int]  # mix, restarts, strategy, seed
RESTARTS = ("requeue", "standbys")
SEEDS, DAYS = 20, 54.0
SMALLEST_SEEDS, SMALLEST_DAYS = 2, 4.0
RESAMPLES = 2_000
KEPT = REPOSITORY / "out" / "ettr.jsonl"
LABEL = "simulation: published counts of faults, drawn at random; no number here was measured on a fleet"


def code_digest() -> str:
    """Name the code and the measured documents that a run depends on."""
    digest = hashlib.sha256()
    for folder in ("analyzers", "service/remediation", "tests/ettr"):
        for path in sorted((REPOSITORY / folder).rglob("*")):
            if path.suffix in (".py", ".toml"):
                digest.update(path.relative_to(REPOSITORY).as_posix().encode() + path.read_bytes())
    digest.update(repr(measured().document()).encode())
    return digest.hexdigest()[:16]


def run_one(wanted: Wanted, days: float) -> Row:
    """Play one job, in a process of its own."""
    mix, restarts, strategy, seed = wanted
    tally = settle(mix, restarts, strategy, seed, days)
    return {"mix": mix, "restarts": restarts, "strategy": strategy, "seed": seed, "days": days} | asdict(tally)


def rows(wanted: Sequence[Wanted], days: float, workers: int) -> list[Row]:
    """Return every run; what this code has played before is not played again."""
    KEPT.parent.mkdir(exist_ok=True)
    digest = code_digest()
    lines = KEPT.read_text(encoding="utf-8").splitlines() if KEPT.exists() else []
    known = [row for row in map(json.loads, lines) if row["digest"] == digest and row["days"] == days]
    done = {(row["mix"], row["restarts"], row["strategy"], row["seed"]): row for row in known}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool, KEPT.open("a", encoding="utf-8") as keep:
        running = {pool.submit(run_one, one, days): one for one in wanted if one not in done}
        for finished in as_completed(running):
            row = {"digest": digest} | finished.result()
            keep.write(json.dumps(row) + "\n")
            keep.flush()
            done[running[finished]] = row
    return [done[one] for one in wanted]


def summary(found: Sequence[Row]) -> Row:
    """Sum up the seeds of one mix, kind of restart and strategy."""
    days = sum(row["days"] for row in found)
    shares = [row["productive_seconds"] / (row["days"] * DAY) for row in found]
    healthy, faulty = (sum(row[key] for row in found) for key in ("healthy_out", "faulty_out"))
    training, productive = (sum(row[key] for row in found) for key in ("training_seconds", "productive_seconds"))
    did: Counter[str] = Counter()
    for row in found:
        did.update(row["did"])
    return {
        "seeds": len(found),
        "job_days": days,
        "ettr": round(sum(shares) / len(shares), 4),
        "ettr_95": spread(shares),
        "downtime_hours_a_day": round((days * DAY - training) / 3_600.0 / days, 3),
        "lost_work_hours_a_day": round((training - productive) / 3_600.0 / days, 3),
        "faults": sum(row["troubles"] for row in found),
        "strikes": sum(row["incidents"] for row in found),
        "machines_out": healthy + faulty,
        "healthy_machines_out": healthy,
        "faulty_share": None if not healthy + faulty else round(faulty / (healthy + faulty), 4),
        "faulty_share_95": None if not healthy + faulty else interval(faulty, healthy + faulty),
        "most_out_at_once": max(row["most_out"] for row in found),
        "looked_by_hand": sum(row["by_hand"] for row in found),
        "did": dict(did.most_common()),
    }


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of a mean, by drawing the seeds again and again."""
    lots = random.Random(len(values))
    means = sorted(sum(lots.choices(values, k=len(values))) / len(values) for _ in range(RESAMPLES))
    return round(means[int(0.025 * RESAMPLES)], 4), round(means[int(0.975 * RESAMPLES)], 4)


def document(found: Sequence[Row]) -> Row:
    """Return all summaries, and how much better the product is than each other strategy on the same faults."""
    results = []
    for mix in MIXES:
        for restarts in RESTARTS:
            of = {
                name: [row for row in found if (row["mix"], row["restarts"], row["strategy"]) == (mix, restarts, name)]
                for name in STRATEGIES
            }
            for name, rows_of in of.items():
                gained = [
                    (ours["productive_seconds"] - other["productive_seconds"]) / (ours["days"] * DAY)
                    for ours, other in zip(of["ours"], rows_of, strict=True)
                ]
                results.append(
                    {"mix": mix, "gpus": MIXES[mix].gpus, "restarts": restarts, "strategy": name}
                    | summary(rows_of)
                    | {"ours_is_better_by_95": spread(gained)}
                )
    return {
        "label": LABEL,
        "mixes": {mix.name: {"gpus": mix.gpus, "source": mix.source} for mix in MIXES.values()},
        "strategies": {name: strategy.means for name, strategy in STRATEGIES.items()},
        "parameters": measured().document(),
        "results": results,
    }


def holds(results: Sequence[Row]) -> bool:
    """Tell whether the product trains no less than any control, and takes out fewer healthy machines than the group."""
    for row in results:
        if row["strategy"] in ("group", "hope", "check_all") and row["ours_is_better_by_95"][1] < 0.0:
            return False
    healthy = {(row["mix"], row["restarts"], row["strategy"]): row["healthy_machines_out"] for row in results}
    return all(
        healthy[mix, restarts, "ours"] < healthy[mix, restarts, "group"] for mix in MIXES for restarts in RESTARTS
    )


def show(results: Sequence[Row]) -> None:
    """Print the table."""
    table = Table(
        "mix", "restarts", "strategy", "ETTR", "95 %", "down h/d", "healthy out", "faulty out", "by hand", title=LABEL
    )
    for row in results:
        faulty = row["machines_out"] - row["healthy_machines_out"]
        cells = [
            row["mix"], row["restarts"], row["strategy"], f"{row['ettr']:.2%}",
            "{:.2%}–{:.2%}".format(*row["ettr_95"]), row["downtime_hours_a_day"], row["healthy_machines_out"], faulty,
            row["looked_by_hand"],
        ]  # fmt: skip
        table.add_row(*map(str, cells))
    Console(width=140).print(table)


def main() -> int:
    """Play what is missing, write the document; 0 only if the claims hold."""
    parser = argparse.ArgumentParser(description="Simulate effective training time.")
    parser.add_argument("--smallest", action="store_true", help="two seeds of four days, written to out/")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="fewer than %(default)s are written to out/")
    options = parser.parse_args()
    seeds, days = (SMALLEST_SEEDS, SMALLEST_DAYS) if options.smallest else (options.seeds, DAYS)
    wanted = [
        (mix, restarts, name, seed)
        for seed in range(seeds)
        for mix in MIXES
        for restarts in RESTARTS
        for name in STRATEGIES
    ]
    found = document(rows(wanted, days, options.workers))
    full = not options.smallest and seeds >= SEEDS
    target = (REPOSITORY / "docs" / "measured" if full else KEPT.parent) / "ettr.json"
    command = " ".join(["python -m tests.acceptance.ettr", *sys.argv[1:]])
    written = provenance(command) | {"code": code_digest()} | found
    target.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    show(found["results"])
    print(target)
    return 0 if holds(found["results"]) else 1


if __name__ == "__main__":
    sys.exit(main())
