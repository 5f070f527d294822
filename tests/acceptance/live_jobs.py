"""Every fault in real jobs below agents and a service: how many exported bundles are diagnosed right.

Data-parallel jobs run without the probe, pipelines without and with it: gloo's recorder knows no send and no receive, so
that there the probe's ring is the only record of who waits for whom. The bundles are kept in out/live_jobs, so that a
second call runs only what is missing; the verdicts are asked anew every time.

    python -m tests.acceptance.live_jobs [--smallest] [--runs 3] [--only FAULT…]
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from collectors.records import StackDump
from collectors.records.block import decode, encode
from collectors.records.bundle import Batch, Manifest, read, write
from tests.bench.measure import REPOSITORY, provenance
from tests.support.jobs import live
from tests.support.jobs.judged import (
    complaints,
    complaints_about_nodes,
    innocents_evicted,
    left_over,
    summary,
    verdict_of,
)
from tests.support.jobs.scenarios import FAULTS, Scenario, Topology

KEPT = REPOSITORY / "out" / "live_jobs"
RUNS = 2
FORMS: tuple[tuple[Topology, bool], ...] = (("ddp", False), ("pipeline", False), ("pipeline", True))
SMALLEST: tuple[tuple[str, Topology, bool], ...] = (("spin", "pipeline", True),)
WAITS = ("spin", "data_loader", "gil", "sigstop")


def key(scenario: Scenario, probe: bool) -> str:
    """Return a name for files."""
    return f"{scenario.key}{'-probe' * probe}"


def bundle_of(scenario: Scenario, probe: bool) -> tuple[Path, float]:
    """Return the bundle of a scenario and the seconds its run took, running it if an earlier call has not."""
    bundle, note = KEPT / f"{key(scenario, probe)}.fhz", KEPT / f"{key(scenario, probe)}.json"
    wanted = {"culprits": list(scenario.culprits), "step": scenario.step}
    if note.exists() and (kept := json.loads(note.read_text()))["scenario"] == wanted:
        return bundle, kept["seconds"]
    workplace = KEPT / "running"
    shutil.rmtree(workplace, ignore_errors=True)
    started_at = time.perf_counter()
    live.run(scenario, workplace, probe=probe).replace(bundle)
    seconds = round(time.perf_counter() - started_at, 1)
    shutil.rmtree(workplace)
    note.write_text(json.dumps({"scenario": wanted, "seconds": seconds, "commit": provenance("")["commit"]}))
    return bundle, seconds


def without_stacks(bundle: Path, target: Path) -> Path:
    """Copy a bundle without stacks: what recorder, ring and process states tell by themselves."""
    with bundle.open("rb") as stream:
        entries = list(read(stream))
    manifest = next(entry for entry in entries if isinstance(entry, Manifest))
    kept = (
        Batch(entry.sequence, entry.received_at, encode(one for one in decode(entry.block) if not isinstance(one, StackDump)))
        for entry in entries if isinstance(entry, Batch)
    )  # fmt: skip
    target.write_bytes(b"".join(write(manifest, kept)))
    return target


def judged(scenario: Scenario, probe: bool) -> dict[str, Any]:
    """Run or reuse one job and return what the verdict on its bundle got wrong."""
    bundle, seconds = bundle_of(scenario, probe)
    verdict = verdict_of(bundle)
    wrong = complaints(scenario, verdict) + complaints_about_nodes(scenario, verdict)
    result: dict[str, Any] = {
        "scenario": key(scenario, probe), "fault": scenario.fault, "topology": scenario.topology, "probe": probe,
        "seconds": seconds, "wrong": wrong, "innocents_evicted": innocents_evicted(scenario, verdict),
        "bundle_bytes": bundle.stat().st_size,
    }  # fmt: skip
    if wrong:
        print(f"   {scenario.name}\n{summary(verdict)}")
    if scenario.topology == "pipeline" and scenario.fault in WAITS:
        alone = verdict_of(without_stacks(bundle, KEPT / "without_stacks.fhz"))
        result["suspects_without_stacks"] = sorted(left_over(alone))
        result["exact_without_stacks"] = left_over(alone) == set(scenario.culprits)
    return result


def table(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row a fault, topology and probe."""
    rows = []
    for fault, topology, probe in sorted({(one["fault"], one["topology"], one["probe"]) for one in results}):
        of = [one for one in results if (one["fault"], one["topology"], one["probe"]) == (fault, topology, probe)]
        alone = [one for one in of if "exact_without_stacks" in one]
        rows.append({
            "fault": fault, "topology": topology, "probe": probe, "runs": len(of),
            "right": sum(not one["wrong"] for one in of),
            "innocent_machines_evicted": sum(len(one["innocents_evicted"]) for one in of),
            "wrong": [{"scenario": one["scenario"], "wrong": one["wrong"]} for one in of if one["wrong"]],
            **({"exact_without_stacks": sum(one["exact_without_stacks"] for one in alone),
                "largest_set_without_stacks": max(len(one["suspects_without_stacks"]) for one in alone)} if alone else {}),
        })  # fmt: skip
    return rows


def _commits(results: list[dict[str, Any]]) -> list[str]:
    """Return which commits ran the jobs: the bundles are kept, and only the verdicts are always of today's code."""
    notes = (json.loads((KEPT / f"{result['scenario']}.json").read_text()) for result in results)
    return sorted({note.get("commit", "unknown") for note in notes})


def main() -> int:
    """Run what is missing, judge everything, write the document; 0 only if every verdict was right."""
    parser = argparse.ArgumentParser(description="Judge the bundles of real jobs below agents and a service.")
    parser.add_argument("--smallest", action="store_true", help="one run, written to out/")
    parser.add_argument("--runs", type=int, default=RUNS, help="runs of each fault in each form")
    parser.add_argument("--only", nargs="*", default=[], choices=sorted(FAULTS), help="only these faults")
    options = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    wanted = SMALLEST if options.smallest else [(fault, *form) for fault in options.only or FAULTS for form in FORMS]
    results = []
    for seed in range(1 if options.smallest else options.runs):
        for fault, topology, probe in wanted:
            results.append(judged(Scenario.draw(fault, topology, seed), probe))
            verdict = "wrong" if results[-1]["wrong"] else "right"
            print(f"{verdict}  {results[-1]['scenario']}", *results[-1]["wrong"], flush=True)
    right = sum(not one["wrong"] for one in results)
    print(f"{right} of {len(results)} verdicts right")
    target = REPOSITORY / ("out" if options.smallest or options.only else "docs/measured") / "live_jobs.json"
    command = " ".join(["python -m tests.acceptance.live_jobs", *sys.argv[1:]])
    totals = {"runs": len(results), "right": right, "jobs_run_by_commits": _commits(results)}
    target.write_text(json.dumps(provenance(command) | totals | {"rows": table(results)}, indent=1) + "\n")
    return 0 if right == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
