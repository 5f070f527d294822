"""Faults in real gloo jobs on a real Slurm, from the fault to the restarted job, under an automatic policy and under none.

Four trials of each of three faults under a policy that acts by itself; one whose Slurm controller is restarted between the
drain and the restart; one that is only proposed until a person approves it, and undone afterwards. And sound jobs that are
cancelled, requeued or run into their time limit: nothing may be proposed for them.

Each outcome is kept in out/slurm_loop, so that a second call goes on; one that was wrong stays wrong until its file is removed.
Where there can be no Slurm that is said, and nothing is claimed.

    python -m tests.acceptance.slurm_loop [--smallest] [--runs 4] [--only FAULT…]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench.measure import REPOSITORY, provenance
from tests.support.slurm import cluster
from tests.support.slurm.loop import (
    ENDS,
    FAULTS,
    KILLED,
    RANKS,
    Loop,
    Outcome,
    controller_restarts,
    ended,
    killed,
    loop,
    person,
    trial,
)  # fmt: skip

KEPT = REPOSITORY / "out" / "slurm_loop"
RUNS = 4  # of each fault
SECONDS = ("verdict_seconds", "drained_seconds", "running_seconds", "training_seconds")
PERSON, RESTARTED = "propose-only", "controller-restarted"


def planned(options: argparse.Namespace) -> list[tuple[str, int]]:
    """Return (fault, number) of each trial, every fault once before any comes again; the others come last."""
    if options.smallest:
        return [("sigstop", 0)]
    trials = [(fault, number) for number in range(options.runs) for fault in options.only or FAULTS]
    return trials + ([] if options.only else [(RESTARTED, 0), (PERSON, 0), *((how, 0) for how in (KILLED, *ENDS))])


def file_of(fault: str, number: int) -> Path:
    """Return where the outcome of a trial is kept."""
    return KEPT / f"{fault}-{number}.json"


def run(trials: list[tuple[str, int]]) -> Iterator[tuple[str, int, Outcome]]:
    """Run each trial below a Slurm and a service of its own; one that could not be brought to its fault is left out.

    In a service that has just seen another job on the same nodes it would have to wait for two minutes.
    """
    for fault, number in trials:
        mode = "propose" if fault == PERSON else "automatic"
        try:
            with tempfile.TemporaryDirectory(prefix="slurm-loop-") as folder, loop(Path(folder), mode) as running:
                outcome = _one(running, fault, number)
        except Exception:
            traceback.print_exc()
        else:
            yield fault, number, outcome


def _one(running: Loop, fault: str, number: int) -> Outcome:
    if fault == PERSON:
        return person(running, rank=1)
    if fault == KILLED:
        return killed(running, rank=1)
    if fault in ENDS:
        return ended(running, fault)
    if fault == RESTARTED:
        return trial(running, "sigstop", 2, controller_restarts)
    return trial(running, fault, rank=(number + FAULTS.index(fault)) % RANKS)


def table(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row a fault: how many were right, and the median and the worst of each span."""
    rows = []
    for fault in dict.fromkeys(one["fault"] for one in results):
        of = [one for one in results if one["fault"] == fault]
        row = {"fault": fault, "trials": len(of), "right": sum(not one["wrong"] for one in of)}
        for name in SECONDS:
            found = [one[name] for one in of if one[name] is not None]
            row |= {f"median_{name}": statistics.median(found), f"worst_{name}": max(found)} if found else {}
        rows.append(row)
    return rows


def main() -> int:
    """Run what is missing and write the document; 0 only if every trial was right."""
    parser = argparse.ArgumentParser(
        description="Go through the loop from a fault to the restarted job on a real Slurm."
    )
    parser.add_argument("--smallest", action="store_true", help="one trial, written to out/")
    parser.add_argument("--runs", type=int, default=RUNS, help="trials of each fault")
    parser.add_argument("--only", nargs="*", default=[], choices=(*FAULTS, *ENDS, RESTARTED, PERSON), help="only these")
    options = parser.parse_args()
    if (why := cluster.missing()) is not None:
        print(f"skipped: {why}")
        return 0
    KEPT.mkdir(parents=True, exist_ok=True)
    trials = planned(options)
    missing = [one for one in trials if not file_of(*one).exists()]
    print(f"{len(trials) - len(missing)} of {len(trials)} trials are kept from before", flush=True)
    for fault, number, outcome in run(missing):
        kept = asdict(outcome) | {"fault": fault, "commit": provenance("")["commit"]}
        file_of(fault, number).write_text(json.dumps(kept, indent=1) + "\n")
        print(f"{'wrong' if outcome.wrong else 'right'}  {outcome.reported()}", flush=True)
    results = [json.loads(file_of(*one).read_text()) for one in trials if file_of(*one).exists()]
    right = sum(not one["wrong"] for one in results)
    print(f"{right} of {len(trials)} trials right")
    target = REPOSITORY / ("out" if options.smallest or options.only else "docs/measured") / "slurm_loop.json"
    command = " ".join(["python -m tests.acceptance.slurm_loop", *sys.argv[1:]])
    totals = {"trials": len(results), "right": right, "run_by_commits": sorted({one["commit"] for one in results})}
    document = provenance(command) | totals | {"rows": table(results)}
    target.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if right == len(trials) else 1


if __name__ == "__main__":
    sys.exit(main())
