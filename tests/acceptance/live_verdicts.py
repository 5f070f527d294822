"""Every fault in real jobs that nobody watches: what the first verdict over REST says, and after how many seconds.

Agents run at their usual settings on four nodes: a data-parallel job has a rank a node, a pipeline two. Each outcome and
its bundle is kept in out/live_verdicts, so that a second call goes on. With --again those that were wrong are tried once
more, which may be because the machine was busy; what was wrong with them before stays in the document.

    python -m tests.acceptance.live_verdicts [--smallest] [--runs 7] [--together 1] [--only FAULT…] [--again]
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import traceback
from collections.abc import Iterator
from concurrent.futures import as_completed
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench.measure import REPOSITORY, provenance
from tests.support.jobs import live, verdicts
from tests.support.jobs.judged import innocents_evicted
from tests.support.jobs.scenarios import FAULTS, Topology
from tests.support.jobs.verdicts import Outcome, Trial

KEPT = REPOSITORY / "out" / "live_verdicts"
RUNS = 7  # of each form, of which there are three: more than twenty trials a fault
FORMS: tuple[tuple[Topology, bool], ...] = (("ddp", False), ("pipeline", False), ("pipeline", True))
SMALLEST: tuple[tuple[str, Topology, bool], ...] = (("spin", "ddp", False),)
TRIALS_OF_ONE_SERVICE = 24  # then a fresh one, with fresh agents


def planned(options: argparse.Namespace) -> list[Trial]:
    """Return the trials, every fault once before any comes again."""
    # Neighbours are of different faults: two ranks that spin at once would leave the judge of both no processor.
    wanted = SMALLEST if options.smallest else [(fault, *form) for form in FORMS for fault in options.only or FAULTS]
    seeds = range(1 if options.smallest else options.runs)
    return [Trial.draw(fault, topology, seed, probe=probe) for seed in seeds for fault, topology, probe in wanted]


def kept(trial: Trial) -> dict[str, Any] | None:
    """Return what an earlier call noted of a trial."""
    note = KEPT / trial.job / "outcome.json"
    if not note.exists():
        return None
    found: dict[str, Any] = {"wrong_before": []} | json.loads(note.read_text())
    return found


def run(trials: list[Trial], together: int) -> Iterator[dict[str, Any]]:
    """Run the trials below one service, so many at once, and note each; one that does not reach its fault is not noted."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="verdicts-")))
        nodes = stack.enter_context(live.cluster(folder / "cluster", verdicts.nodes_for(together)))
        futures = stack.enter_context(verdicts.side_by_side(nodes, trials, folder, together))
        for future in as_completed(futures.values()):
            try:
                yield note(future.result(), folder)
            except Exception:
                traceback.print_exc()
                print(nodes.log(), flush=True)


def note(outcome: Outcome, folder: Path) -> dict[str, Any]:
    """Keep a trial's bundle and documents, and what came of it."""
    trial, kept_in = outcome.trial, KEPT / outcome.trial.job
    before = kept(trial)
    shutil.rmtree(kept_in, ignore_errors=True)
    shutil.move(folder / trial.job, kept_in)
    evicted = {node for document in outcome.documents for node in innocents_evicted(trial.scenario, document)}
    result = {
        "trial": trial.job, "fault": trial.scenario.fault, "topology": trial.scenario.topology, "probe": trial.probe,
        "scenario": asdict(trial.scenario), "first_seconds": outcome.first_seconds, "seconds": outcome.seconds,
        "versions": len(outcome.documents), "incidents": len(outcome.incidents), "innocents_evicted": sorted(evicted),
        "action": outcome.documents[-1]["action"]["kind"] if outcome.documents else None,
        "replayed_the_same": bool(outcome.documents) and not outcome.replayed,
        "wrong": [*verdicts.wrong(outcome), *verdicts.late(outcome)], "commit": provenance("")["commit"],
        "wrong_before": [*before["wrong_before"], *before["wrong"]] if before is not None else [],
    }  # fmt: skip
    (kept_in / "documents.json").write_text(json.dumps(outcome.documents, indent=1))
    (kept_in / "outcome.json").write_text(json.dumps(result, indent=1))
    return result


def table(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row a fault, topology and probe, and one a fault over all of them."""
    rows = []
    for fault in sorted({one["fault"] for one in results}):
        of = [one for one in results if one["fault"] == fault]
        rows.append({"fault": fault, "topology": "all", **_row(of)})
        for topology, probe in FORMS:
            some = [one for one in of if (one["topology"], one["probe"]) == (topology, probe)]
            rows += [{"fault": fault, "topology": topology, "probe": probe, **_row(some)}] if some else []
    return rows


def _row(results: list[dict[str, Any]]) -> dict[str, Any]:
    seconds = [one["first_seconds"] for one in results if one["first_seconds"] is not None]
    return {
        "trials": len(results), "right": sum(not one["wrong"] for one in results),
        "median_seconds": round(statistics.median(seconds), 1) if seconds else None,
        "worst_seconds": round(max(seconds), 1) if seconds else None,
        "evicting": sum(one["action"] == "evict" for one in results),
        "innocents_evicted": sum(len(one["innocents_evicted"]) for one in results),
        "replayed_the_same": sum(one["replayed_the_same"] for one in results),
        "wrong": {one["trial"]: one["wrong"] for one in results if one["wrong"]},
        "wrong_before": {one["trial"]: one["wrong_before"] for one in results if one["wrong_before"]},
    }  # fmt: skip


def main() -> int:
    """Run what is missing and write the document; 0 only if every trial was right."""
    parser = argparse.ArgumentParser(description="Time the first verdict on faults in real jobs below agents.")
    parser.add_argument("--smallest", action="store_true", help="one trial, written to out/")
    parser.add_argument("--runs", type=int, default=RUNS, help="trials of each fault in each form")
    parser.add_argument("--together", type=int, default=1, help="trials at once, each on four nodes of its own")
    parser.add_argument("--only", nargs="*", default=[], choices=sorted(FAULTS), help="only these faults")
    parser.add_argument("--again", action="store_true", help="try those that were wrong once more")
    options = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    trials = planned(options)
    known = {trial.job: kept(trial) for trial in trials}
    missing = [trial for trial in trials if (one := known[trial.job]) is None or (options.again and one["wrong"])]
    print(f"{len(trials) - len(missing)} of {len(trials)} trials are kept from before", flush=True)
    done = 0
    for begin in range(0, len(missing), TRIALS_OF_ONE_SERVICE):
        for result in run(missing[begin : begin + TRIALS_OF_ONE_SERVICE], options.together):
            done += 1
            verdict = "wrong" if result["wrong"] else "right"
            after = "no verdict" if result["first_seconds"] is None else f"{result['first_seconds']:5.1f} s"
            reported = f"[{done}/{len(missing)}] {verdict}  {after}  {result['trial']} in {result['seconds']:.0f} s"
            print(reported, *result["wrong"], flush=True)
    results = [found for trial in trials if (found := kept(trial)) is not None]
    right = sum(not one["wrong"] for one in results)
    print(f"{right} of {len(trials)} trials right")
    target = REPOSITORY / ("out" if options.smallest or options.only else "docs/measured") / "live_verdicts.json"
    command = " ".join(["python -m tests.acceptance.live_verdicts", *sys.argv[1:]])
    totals = {"trials": len(results), "right": right, "tried_again": sum(bool(one["wrong_before"]) for one in results),
              "run_by_commits": sorted({one["commit"] for one in results})}  # fmt: skip
    target.write_text(json.dumps(provenance(command) | totals | {"rows": table(results)}, indent=1) + "\n")
    return 0 if right == len(trials) else 1


if __name__ == "__main__":
    sys.exit(main())
