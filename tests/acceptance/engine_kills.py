"""The engine, the service and the database are killed at random points of an incident: none lost, none doubled.

A hang and a crash of real jobs are recorded once (out/engine_kills), reported again in every round to a service of its own,
and judged once undisturbed. In a round something is killed one to three times, at any moment between the job's first
batch and the last verdict. What the newest verdict says must be what it says undisturbed.

    python -m tests.acceptance.engine_kills [--smallest] [--rounds 18] [--together 1]
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from threading import Semaphore
from typing import Any

from tests.bench.measure import REPOSITORY, provenance
from tests.support.durability.engine_rounds import VICTIMS, played
from tests.support.durability.played import Recording, recorded
from tests.support.jobs import live, verdicts
from tests.support.jobs.scenarios import FAULTS, Topology
from tests.support.jobs.verdicts import Trial

KEPT = REPOSITORY / "out" / "engine_kills"
STORIES: tuple[tuple[str, Topology], ...] = (("spin", "ddp"), ("exception", "ddp"))
ROUNDS = 18  # of each story with each victim: more than a hundred


def recording(fault: str, topology: Topology) -> Recording:
    """Return a job with a fault as its agents reported it, from a real one where no earlier call has kept it."""
    kept = KEPT / f"{fault}-{topology}.fhz"
    if not kept.exists():
        trial = Trial.draw(fault, topology, 0)
        with tempfile.TemporaryDirectory(prefix="recorded-") as folder:
            with live.cluster(Path(folder) / "cluster", verdicts.nodes_for(1)) as nodes:
                outcome = verdicts.run(nodes, trial, Path(folder) / "trial", Semaphore())
                nodes.faulthound("export", trial.job, "--since", "10m", str(Path(folder) / "job.fhz"))
            if faulty := verdicts.wrong(outcome):
                raise RuntimeError(f"the job that was to be recorded was judged wrongly: {'; '.join(faulty)}")
            shutil.move(Path(folder) / "job.fhz", kept)
    return recorded(kept, ends=FAULTS[fault].symptom == "crash")


def rounds(smallest: bool, times: int, together: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Play what no earlier call has played, every victim once before any comes again; give each round's story and result."""
    for fault, topology in STORIES[:1] if smallest else STORIES:
        story, name = recording(fault, topology), f"{fault}-{topology}"
        said = _kept(f"{name}-nobody-0", partial(played, story, "nobody", 0, None))["final"]
        print(f"undisturbed, {name} says {json.dumps(said)}", flush=True)
        wanted = [(victim, seed) for seed in range(1, times + 1) for victim in VICTIMS]
        with ThreadPoolExecutor(together) as pool:
            futures = [
                pool.submit(_kept, f"{name}-{victim}-{seed}", partial(played, story, victim, seed, said))
                for victim, seed in wanted
            ]
            for future in as_completed(futures):
                yield name, future.result()


def _kept(name: str, play: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    note = KEPT / f"{name}.json"
    if note.exists():
        found: dict[str, Any] = json.loads(note.read_text())
        return found
    result = play() | {"commit": provenance("")["commit"]}
    note.write_text(json.dumps(result, indent=1))
    return result


def table(results: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return one row a story and victim."""
    rows = []
    for name, victim in sorted({(name, one["victim"]) for name, one in results}):
        of = [one for story, one in results if (story, one["victim"]) == (name, victim)]
        rows.append({
            "story": name, "killed": victim, "rounds": len(of), "kills": sum(len(one["kills"]) for one in of),
            "right": sum(not one["wrong"] for one in of),
            "wrong": {one["seed"]: one["wrong"] for one in of if one["wrong"]},
        })  # fmt: skip
    return rows


def main() -> int:
    """Play what is missing and write the document; 0 only if no incident was lost, doubled or judged otherwise."""
    parser = argparse.ArgumentParser(description="Kill engine, service and database while an incident is judged.")
    parser.add_argument(
        "--smallest", action="store_true", help="one round with each victim, all at once, written to out/"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of each story with each victim")
    parser.add_argument("--together", type=int, default=1, help="rounds at once")
    options = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    results = []
    # A round mostly waits for a recording to pass.
    times, together = (1, len(VICTIMS)) if options.smallest else (options.rounds, options.together)
    for name, result in rounds(options.smallest, times, together):
        results.append((name, result))
        verdict = "wrong" if result["wrong"] else "right"
        print(f"{verdict}  {name} {result['victim']} {result['seed']} killed at {result['kills']} s "
              f"in {result['seconds']:.0f} s", *result["wrong"], flush=True)  # fmt: skip
    right = sum(not result["wrong"] for _, result in results)
    print(f"{right} of {len(results)} rounds right")
    target = REPOSITORY / ("out" if options.smallest else "docs/measured") / "engine_kills.json"
    command = " ".join(["python -m tests.acceptance.engine_kills", *sys.argv[1:]])
    totals = {"rounds": len(results), "right": right, "kills": sum(len(result["kills"]) for _, result in results),
              "run_by_commits": sorted({result["commit"] for _, result in results})}  # fmt: skip
    target.write_text(json.dumps(provenance(command) | totals | {"rows": table(results)}, indent=1) + "\n")
    return 0 if right == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
