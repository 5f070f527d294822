"""Real jobs in which one rank asks a server that does not answer: what the verdict says.

A plain torchrun job over gloo, four ranks on four nodes, whose collectors answer twice as for a command. The server's process
is on the rank's node, stopped, on another node of the job, on no node of it, or in a network namespace of its own. Outcomes
are kept in out/network_calls, so that a second call goes on.

    python -m tests.acceptance.network_calls [--smallest] [--runs 25] [--again]
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from typing import Any

from analyzers.model.verdict import to_json
from tests.bench.measure import REPOSITORY, provenance
from tests.support.jobs import network
from tests.support.jobs.network import WHERES, Trial

KEPT = REPOSITORY / "out" / "network_calls"
RUNS = 25
CLIENTS = ("urlopen", "raw socket", "tls", "httpx", "event loop")


def planned(runs: int) -> list[Trial]:
    """Return the trials: each place of the server with each client once in 25, the ranks in turn."""
    return [
        Trial(number, number % network.RANKS, CLIENTS[(number + number // 5) % 5], WHERES[number % 5])
        for number in range(runs)
    ]


def run(trials: list[Trial]) -> None:
    """Run the trials in one job, one after the other, and note each as it ends."""
    with network.asking() as job:
        for trial in trials:
            note(job.run(trial))


def note(outcome: network.Outcome) -> None:
    """Keep what came of a trial, with what was wrong at earlier tries."""
    path = KEPT / outcome.trial.name / "outcome.json"
    before = json.loads(path.read_text()) if path.exists() else {"wrong": [], "wrong_before": []}
    result = {
        "trial": outcome.trial.name, "where": outcome.trial.where, "client": outcome.trial.client,
        "wrong": network.wrong(outcome), "wrong_before": [*before["wrong_before"], *before["wrong"]],
        "control_names": outcome.control, "commit": provenance("")["commit"],
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    for looks, verdict in enumerate(outcome.verdicts, 1):
        (path.parent / f"verdict{looks}.json").write_bytes(to_json(verdict))
    path.write_text(json.dumps(result, indent=1))
    print("wrong" if result["wrong"] else "right", outcome.trial.name, *result["wrong"], flush=True)


def kept(trial: Trial) -> dict[str, Any] | None:
    """Return what an earlier call noted of a trial."""
    path = KEPT / trial.name / "outcome.json"
    return json.loads(path.read_text()) if path.exists() else None


def row(where: str, of: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of one place of the server."""
    return {
        "server": where, "trials": len(of), "right": sum(not one["wrong"] for one in of),
        "right_at_the_first_try": sum(not one["wrong"] and not one["wrong_before"] for one in of),
        "control_right": sum(not one["control_names"] for one in of),
        "wrong": {one["trial"]: one["wrong"] for one in of if one["wrong"]},
        "wrong_before": {one["trial"]: one["wrong_before"] for one in of if one["wrong_before"]},
    }  # fmt: skip


def main() -> int:
    """Run what is missing and write the document; 0 only if every trial was right."""
    parser = argparse.ArgumentParser(description="One rank asks a server that does not answer.")
    parser.add_argument("--smallest", action="store_true", help="one trial, written to out/")
    parser.add_argument("--runs", type=int, default=RUNS, help="trials, the five places of the server in turn")
    parser.add_argument("--again", action="store_true", help="try those that were wrong once more")
    options = parser.parse_args()
    if options.smallest:
        shutil.rmtree(KEPT / planned(1)[0].name, ignore_errors=True)
    trials = planned(1 if options.smallest else options.runs)
    missing = [one for one in trials if (old := kept(one)) is None or (options.again and old["wrong"])]
    KEPT.mkdir(parents=True, exist_ok=True)
    if missing:
        run(missing)
    results = [found for trial in trials if (found := kept(trial)) is not None]
    every = row("all", results)
    print(f"{every['right']} of {len(trials)} right, {every['right_at_the_first_try']} at the first try")
    rows = [every, *(row(where, of) for where in WHERES if (of := [one for one in results if one["where"] == where]))]
    target = REPOSITORY / ("out" if options.smallest else "docs/measured") / "network_calls.json"
    command = " ".join(["python -m tests.acceptance.network_calls", *sys.argv[1:]])
    commits = sorted({one["commit"] for one in results})
    target.write_text(json.dumps(provenance(command) | {"run_by_commits": commits, "rows": rows}, indent=1) + "\n")
    return 0 if every["right"] == len(trials) else 1


if __name__ == "__main__":
    sys.exit(main())
