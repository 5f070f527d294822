"""Every fault in real jobs of both topologies, at least five times with different culprits: how many verdicts are right.

The files of each job are kept in out/real_jobs, so that a second call runs only the jobs that are missing; the verdicts
are asked anew every time. Pipeline hangs are judged once more from their dumps alone: gloo records no send and no
receive, so that the right answer is a set which contains the culprits, and what would split it.

    python -m tests.acceptance.real_jobs [--smallest] [--runs 5] [--only FAULT…]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

from tests.bench.measure import REPOSITORY, provenance
from tests.support.jobs import driver
from tests.support.jobs.judged import (
    complaints,
    complaints_about_set,
    dumps_alone,
    innocents_evicted,
    left_over,
    summary,
    verdict_of,
)
from tests.support.jobs.scenarios import FAULTS, Scenario, Topology

KEPT = REPOSITORY / "out" / "real_jobs"
RUNS = 5
TOPOLOGIES: tuple[Topology, ...] = ("ddp", "pipeline")
SMALLEST: tuple[tuple[str, Topology], ...] = (("data_loader", "pipeline"), ("exception", "ddp"))
UNDECIDED_BY_DUMPS = ("spin", "data_loader", "gil", "two_culprits")


def scenarios(runs: int, smallest: bool, only: list[str]) -> list[Scenario]:
    """Return what is to be run: faults × topologies × seeds, or one of each of two."""
    if smallest:
        return [Scenario.draw(fault, topology, 1) for fault, topology in SMALLEST]
    return [
        Scenario.draw(fault, topology, seed)
        for fault in only or FAULTS
        for topology in TOPOLOGIES
        for seed in range(runs)
    ]  # fmt: skip


def files_of(scenario: Scenario) -> tuple[Path, float]:
    """Return the files of a scenario's job and the seconds it took, running it if an earlier call has not."""
    folder, note = KEPT / scenario.key, KEPT / f"{scenario.key}.json"
    wanted = {"culprits": list(scenario.culprits), "step": scenario.step, "fixture": _fixture()}
    if note.exists():
        kept = json.loads(note.read_text())
        if kept["scenario"] == wanted:
            return folder, kept["seconds"]
    shutil.rmtree(folder, ignore_errors=True)
    started_at = time.perf_counter()
    driver.run(scenario, folder)
    seconds = round(time.perf_counter() - started_at, 1)
    note.write_text(json.dumps({"scenario": wanted, "seconds": seconds}))  # last: it says that the folder is whole
    return folder, seconds


@cache
def _fixture() -> str:
    """Return a digest of what starts, breaks and collects a job: files of another fixture are not reused."""
    sources = sorted(
        path for path in (REPOSITORY / "tests" / "support" / "jobs").glob("*.py") if path.name != "judged.py"
    )
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]


def judged(scenario: Scenario) -> dict[str, Any]:
    """Run or reuse one job and return what its verdicts got wrong."""
    folder, seconds = files_of(scenario)
    verdict = verdict_of(folder)
    result: dict[str, Any] = {
        "scenario": scenario.key,
        "fault": scenario.fault,
        "topology": scenario.topology,
        "culprits": list(scenario.culprits),
        "job_seconds": seconds,
        "wrong": complaints(scenario, verdict),
        "innocents_evicted": innocents_evicted(scenario, verdict),
    }
    if result["wrong"]:
        print(f"   {scenario.name}\n" + summary(verdict))
    if scenario.topology == "pipeline" and scenario.fault in UNDECIDED_BY_DUMPS:
        result |= _from_dumps_alone(scenario, folder)
    return result


def _from_dumps_alone(scenario: Scenario, folder: Path) -> dict[str, Any]:
    alone = KEPT / f"{scenario.key}-dumps"
    shutil.rmtree(alone, ignore_errors=True)
    verdict = verdict_of(dumps_alone(folder, alone))
    return {
        "set_from_dumps": sorted(left_over(verdict)),
        "set_wrong": complaints_about_set(scenario, verdict),
        "set_innocents_evicted": innocents_evicted(scenario, verdict),
    }


def table(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row a fault and topology: runs, how many were right, what was wrong, the sets from dumps alone."""
    rows = []
    for fault, topology in sorted({(result["fault"], result["topology"]) for result in results}):
        of = [result for result in results if (result["fault"], result["topology"]) == (fault, topology)]
        sets = [result for result in of if "set_wrong" in result]
        row = {
            "fault": fault,
            "topology": topology,
            "runs": len(of),
            "right": sum(not result["wrong"] for result in of),
            "innocent_machines_evicted": sum(len(result["innocents_evicted"]) for result in of),
            "wrong": [{"scenario": result["scenario"], "wrong": result["wrong"]} for result in of if result["wrong"]],
        }
        if sets:
            row["from_dumps_alone"] = {
                "right": sum(not result["set_wrong"] for result in sets),
                "largest_set": max(len(result["set_from_dumps"]) for result in sets),
                "innocent_machines_evicted": sum(len(result["set_innocents_evicted"]) for result in sets),
                "wrong": [result["set_wrong"] for result in sets if result["set_wrong"]],
            }
        rows.append(row)
    return rows


def main() -> int:
    """Run what is missing, judge everything, write the document; 0 only if every verdict was right."""
    parser = argparse.ArgumentParser(description="Judge real jobs with real faults.")
    parser.add_argument("--smallest", action="store_true", help="one run of each of two scenarios, written to out/")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each fault in each topology")
    parser.add_argument("--only", nargs="*", default=[], choices=sorted(FAULTS), help="only these faults")
    options = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    results = []
    for scenario in scenarios(options.runs, options.smallest, options.only):
        results.append(judged(scenario))
        print(f"{'wrong' if results[-1]['wrong'] else 'right'}  {scenario.name}", *results[-1]["wrong"], flush=True)
    rows = table(results)
    right = sum(row["right"] for row in rows)
    sets_wrong = sum(len(row.get("from_dumps_alone", {}).get("wrong", [])) for row in rows)
    print(f"{right} of {len(results)} verdicts right, {sets_wrong} sets from dumps alone wrong")
    target = REPOSITORY / ("out" if options.smallest or options.only else "docs/measured") / "real_jobs.json"
    command = " ".join(["python -m tests.acceptance.real_jobs", *sys.argv[1:]])
    totals = {"runs": len(results), "right": right, "sets_from_dumps_wrong": sets_wrong}
    target.write_text(json.dumps(provenance(command) | totals | {"rows": rows}, indent=1) + "\n")
    return 0 if right == len(results) and not sets_wrong else 1


if __name__ == "__main__":
    sys.exit(main())
