"""A real job of two trainers and four rollouts, each role counting from 0: each of the six is stopped in turn, and named.

The same job runs in two forms: with FAULTHOUND_ROLE and RANK, and without either, its processes titled as Ray's actors
are. Two agents at their usual settings read it. Listed are the processes that the service knows, named whom any version
of a verdict named.

    python -m tests.acceptance.shared_rank_numbers [--smallest] [--stops 10]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, get_args

from tests.bench.measure import REPOSITORY, provenance
from tests.support.jobs import live
from tests.support.jobs.roles import NODE, SEATS, Variant, role_job, stops

NODES = sorted(set(NODE.values()))


def form(variant: Variant, count: int, folder: Path, nodes: live.Cluster) -> dict[str, Any]:
    """Run one job; return what was listed, and of each stop who was named."""
    with role_job(f"rl-{variant}", variant, folder / variant, nodes) as job:
        job.until(120.0, lambda: len(job.listed()) >= len(SEATS), f"listed are only {job.listed()}")
        listed = job.listed()
        trials = []
        for seat in stops(0 if variant == "variables" else 3, count):
            trials.append(job.stop_and_hear(seat))
            print(variant, json.dumps(trials[-1]), flush=True)
    return {"variant": variant, "listed": [list(one) for one in listed], "stops": trials}


def main() -> int:
    """Run both forms side by side; 0 only if all six are listed and every stopped one alone is named."""
    parser = argparse.ArgumentParser(description="Stop each process of a job whose roles share rank numbers.")
    parser.add_argument("--smallest", action="store_true", help="one stop a form, into out/")
    parser.add_argument("--stops", type=int, default=10, help="of each form")
    parser.add_argument("--only", choices=get_args(Variant), help="this form; the other stays as it was measured")
    options = parser.parse_args()
    variants = [options.only] if options.only else get_args(Variant)
    count = 1 if options.smallest else options.stops
    with tempfile.TemporaryDirectory(prefix="roles-") as name, ExitStack() as stack:
        nodes = stack.enter_context(live.cluster(Path(name) / "cluster", NODES))
        pool = stack.enter_context(ThreadPoolExecutor(2))
        running = [pool.submit(form, variant, count, Path(name), nodes) for variant in variants]
        forms = [one.result() for one in running]
    kept = REPOSITORY / ("out" if options.smallest else "docs/measured") / "shared_rank_numbers.json"
    if options.only and kept.exists():
        forms += [one for one in json.loads(kept.read_text())["forms"] if one["variant"] != options.only]
    every = [trial for one in forms for trial in one["stops"]]
    document = {
        **provenance("python -m tests.acceptance.shared_rank_numbers"),
        "listed": [len(one["listed"]) for one in forms],
        "of": len(SEATS),
        "stopped": len(every),
        "right": sum(trial["right"] for trial in every),
        "innocents_named": sum(one != trial["stopped"] for trial in every for one in trial["named"]),
        "forms": forms,
    }
    kept.parent.mkdir(exist_ok=True)
    kept.write_text(json.dumps(document, indent=2) + "\n")
    print(json.dumps({name: value for name, value in document.items() if name != "forms"}, indent=2))
    return 0 if document["right"] == len(every) and all(count == len(SEATS) for count in document["listed"]) else 1


if __name__ == "__main__":
    sys.exit(main())
