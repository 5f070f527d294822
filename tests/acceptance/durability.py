"""Nothing is lost or doubled in more than a hundred kills, an absence of ten minutes, a bad network, a full disk.

Each scene runs real agents' spools and shippers (64 in one process) against the real service in its own process, and
reads the log afterwards. Finished scenes are kept in out/durability.json, so that a second call goes on.

    python -m tests.acceptance.durability [--smallest] [--only SCENE…]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.measure import REPOSITORY, provenance
from tests.support.durability.matrix import FULL, SCENES, TEST, cannot, complaints

KEPT = REPOSITORY / "out" / "durability_scenes.json"
SMALLEST = ("PostgreSQL crashed", "disk full", "agents killed")  # which `make test` does not play


def played(name: str, smallest: bool) -> dict[str, Any]:
    """Play one scene and return its numbers."""
    if reason := cannot(name):
        return {"scene": name, "skipped": reason, "wrong": []}
    started_at = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        outcome = SCENES[name](Path(folder), TEST if smallest else FULL)
    lost = sum(map(len, outcome.found.lost(outcome.reported["last"]).values()))
    return {
        "scene": name, "did": outcome.did, "agents": len(outcome.reported["last"]), "records_spooled": outcome.records,
        "batches_in_log": outcome.found.batches, "records_missing": lost,
        "records_told_dropped": sum(outcome.found.told_dropped.values()),
        "records_twice": sum(map(len, outcome.found.twice().values())), "wrong": complaints(name, outcome),
        "seconds": round(time.perf_counter() - started_at, 1), "commit": provenance("")["commit"],
    }  # fmt: skip


def main() -> int:
    """Play what is missing and write the document; 0 only if nothing was lost, doubled or untold."""
    parser = argparse.ArgumentParser(description="Kill everything, many times, and count.")
    parser.add_argument("--smallest", action="store_true", help="two scenes at the size of a test, written to out/")
    parser.add_argument("--only", nargs="*", default=[], choices=sorted(SCENES), help="only these scenes, anew")
    options = parser.parse_args()
    KEPT.parent.mkdir(exist_ok=True)
    kept = json.loads(KEPT.read_text()) if KEPT.exists() and not options.smallest else {}
    results = []
    for name in options.only or (SMALLEST if options.smallest else SCENES):
        result = kept.get(name) if name not in options.only else None
        result = result or played(name, options.smallest)
        results.append(result)
        print(f"{'wrong' if result['wrong'] else 'right'}  {json.dumps(result)}", flush=True)
        if not options.smallest and not result["wrong"]:
            KEPT.write_text(json.dumps(kept | {name: result}))
            kept[name] = result
    target = REPOSITORY / ("out" if options.smallest or options.only else "docs/measured") / "durability.json"
    command = " ".join(["python -m tests.acceptance.durability", *sys.argv[1:]])
    target.write_text(json.dumps(provenance(command) | {"scenes": results}, indent=1) + "\n")
    return 1 if any(result["wrong"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
