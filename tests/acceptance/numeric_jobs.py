"""Numbers that go wrong in real jobs that run on: NaN on one rank first, on all, hidden by a reduction, spikes; and sound ones.

Each is DDP × 4 over gloo below agents and a service, at their usual settings. No verdict may be healthy where the numbers are
wrong, none may evict, the first rank is named where its own loss shows it, and fp16's skipped steps open no incident. Each
outcome is kept in out/numeric_jobs, so that a second call goes on; ``--files`` diagnoses the files of the same jobs,
without agents, and notes in out/numeric_files; ``first_try`` counts what was right without a repetition.

    python -m tests.acceptance.numeric_jobs [--smallest] [--runs 5] [--together 2] [--only FAULT…] [--again] [--files]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import traceback
from concurrent.futures import as_completed
from pathlib import Path
from typing import Any

from tests.bench.measure import REPOSITORY, provenance
from tests.support.jobs import driver, live, verdicts
from tests.support.jobs.judged import EVICTIONS, complaints, named, verdict_of
from tests.support.jobs.scenarios import NUMERIC, Scenario
from tests.support.jobs.verdicts import Outcome, Trial

KEPT = REPOSITORY / "out" / "numeric_jobs"
KEPT_FILES = REPOSITORY / "out" / "numeric_files"
RUNS = 5  # of each of six kinds


def planned(options: argparse.Namespace) -> list[Trial]:
    """Return the trials, every kind once before any comes again."""
    if options.smallest:
        return [Trial.draw("nan_first", "numbers", 1)]
    return [Trial.draw(fault, "numbers", seed) for seed in range(options.runs) for fault in options.only or NUMERIC]


def row_of(outcome: Outcome) -> dict[str, Any]:
    """Return what came of a trial: what was wrong, and what no trial may show."""
    quiet = outcome.trial.scenario.truth.symptom == "healthy"
    return {
        "trial": outcome.trial.job, "fault": outcome.trial.scenario.fault, "culprits": outcome.trial.scenario.culprits,
        "first_seconds": outcome.first_seconds, "late": verdicts.late(outcome),
        "wrong": verdicts.wrong(outcome),
        "healthy": 0 if quiet else sum(one["symptom"] == "healthy" for one in outcome.documents),
        "evicting": sum(one["action"]["kind"] in EVICTIONS for one in outcome.documents),
        "named": [sorted({rank for culprit in one["culprits"] for rank in culprit["ranks"]}) for one in outcome.documents],
        "first_symptoms": [(one["first_symptom"] or {}).get("text") for one in outcome.documents[:1]],
        "commit": provenance("")["commit"],
    }  # fmt: skip


def from_files(trial: Trial, folder: Path) -> dict[str, Any]:
    """Run a trial without agents; return what the verdict on its logs, dumps and stacks comes to."""
    scenario = Scenario.draw(trial.scenario.fault, "numbers", trial.scenario.seed)
    document = verdict_of(driver.run(scenario, folder))
    quiet = scenario.truth.symptom == "healthy"
    wrong = complaints(scenario, document)
    if quiet:  # with dumps it is healthy, without it may be undecided: numeric is wrong, and so is any culprit
        wrong = [] if document["symptom"] in {"healthy", "unknown"} and not document["culprits"] else wrong
    return {
        "trial": trial.job, "fault": scenario.fault, "culprits": scenario.culprits, "wrong": wrong, "late": [],
        "healthy": 0 if quiet else int(document["symptom"] == "healthy"),
        "evicting": int(document["action"]["kind"] in EVICTIONS), "named": [sorted(named(document))],
        "first_symptoms": [(document["first_symptom"] or {}).get("text")], "commit": provenance("")["commit"],
    }  # fmt: skip


def run_files(trials: list[Trial]) -> None:
    """Run trials one after the other and note each."""
    KEPT_FILES.mkdir(parents=True, exist_ok=True)
    for trial in trials:
        with tempfile.TemporaryDirectory(prefix="numbers-") as name:
            try:
                row = from_files(trial, Path(name) / "files")
            except (driver.JobFailed, RuntimeError):
                traceback.print_exc()
                continue
        before = kept(trial, KEPT_FILES)
        row["wrong_before"] = [*before["wrong_before"], *before["wrong"]] if before else []
        (KEPT_FILES / f"{trial.job}.json").write_text(json.dumps(row, indent=1))
        print(row["trial"], row["named"], *row["wrong"], flush=True)


def kept(trial: Trial, folder: Path = KEPT) -> dict[str, Any] | None:
    """Return what an earlier call noted of a trial."""
    note = folder / f"{trial.job}.json"
    found: dict[str, Any] | None = json.loads(note.read_text()) if note.exists() else None
    return found


def run(trials: list[Trial], together: int) -> None:
    """Run trials below one service and note each."""
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="numbers-") as name:
        folder = Path(name)
        with (
            live.cluster(folder / "cluster", verdicts.nodes_for(together)) as nodes,
            verdicts.side_by_side(nodes, trials, folder, together) as futures,
        ):
            for future in as_completed(futures.values()):
                try:
                    outcome = future.result()
                except Exception:
                    traceback.print_exc()
                    continue
                before, row = kept(outcome.trial), row_of(outcome)
                row["wrong_before"] = [*before["wrong_before"], *before["wrong"]] if before else []
                (KEPT / f"{outcome.trial.job}.json").write_text(json.dumps(row, indent=1))
                (KEPT / f"{outcome.trial.job}.documents.json").write_text(json.dumps(outcome.documents, indent=1))
                print(row["trial"], row["first_seconds"], row["named"], *row["wrong"], *row["late"], flush=True)


def main() -> int:
    """Run what is missing and write the document; 0 only if every trial was right."""
    parser = argparse.ArgumentParser(description="What verdicts say of real jobs whose numbers go wrong.")
    parser.add_argument("--smallest", action="store_true", help="one trial, written to out/")
    parser.add_argument("--runs", type=int, default=RUNS, help="trials of each kind")
    parser.add_argument("--together", type=int, default=1, help="trials at once, each on four nodes of its own")
    parser.add_argument("--only", nargs="*", default=[], choices=sorted(NUMERIC), help="only these kinds")
    parser.add_argument("--files", action="store_true", help="no agents: the logs, dumps and stacks are diagnosed")
    parser.add_argument("--again", action="store_true", help="try those that were wrong once more")
    options = parser.parse_args()
    trials = planned(options)
    folder = KEPT_FILES if options.files else KEPT
    missing = [trial for trial in trials if (one := kept(trial, folder)) is None or (options.again and one["wrong"])]
    if missing and options.files:
        run_files(missing)
    elif missing:
        run(missing, options.together)
    rows = [found for trial in trials if (found := kept(trial, folder)) is not None]
    totals = {
        "trials": len(trials), "run": len(rows), "right": sum(not row["wrong"] for row in rows),
        "first_try": sum(not row["wrong"] and not row["wrong_before"] for row in rows),
        "late": sum(bool(row["late"]) for row in rows), "healthy": sum(row["healthy"] for row in rows),
        "evicting": sum(row["evicting"] for row in rows), "run_by_commits": sorted({row["commit"] for row in rows}),
    }  # fmt: skip
    print(totals)
    small = options.smallest or options.only or options.runs != RUNS
    target = REPOSITORY / ("out" if small else "docs/measured") / f"{folder.name}.json"
    command = " ".join(["python -m tests.acceptance.numeric_jobs", *sys.argv[1:]])
    target.write_text(json.dumps(provenance(command) | totals | {"rows": rows}, indent=1) + "\n")
    return 0 if totals["right"] == totals["trials"] else 1


if __name__ == "__main__":
    sys.exit(main())
