"""Simulated hangs from 8 to 16,384 ranks: how often the verdict is as good as the dumps allow, with 95 % bounds.

Each seed's score is kept in out/simulated_hangs.jsonl beside a digest of the code that it was made with, so that a second
call runs only what is missing or was made by other code.

    python -m tests.acceptance.simulated_hangs [--smallest] [--workers 2] [--only 256 1024 16384] [--seeds 440]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.progress import track

from tests.bench.measure import REPOSITORY, provenance
from tests.support.simulated_hangs import Score, run_seed, totals

SEEDS = {256: 440, 1024: 50, 16384: 10}  # most ranks → seeds
SMALLEST = {64: 14}
KEPT = REPOSITORY / "out" / "simulated_hangs.jsonl"
SHARE_MIN = 0.99


def code_digest() -> str:
    """Name the code that a score depends on."""
    digest = hashlib.sha256()
    for folder in ("analyzers", "collectors"):
        for path in sorted((REPOSITORY / folder).rglob("*")):
            if path.suffix in (".py", ".toml"):
                digest.update(path.relative_to(REPOSITORY).as_posix().encode() + path.read_bytes())
    digest.update((REPOSITORY / "tests" / "support" / "simulated_hangs.py").read_bytes())
    return digest.hexdigest()[:16]


def kept(digest: str) -> dict[tuple[int, int], Score]:
    """Return the scores that this code made before, by most ranks and seed."""
    if not KEPT.exists():
        return {}
    rows = (json.loads(line) for line in KEPT.read_text(encoding="utf-8").splitlines())
    return {(row["most_ranks"], row["score"]["seed"]): Score(**row["score"]) for row in rows if row["digest"] == digest}


def run_one(most_ranks: int, seed: int) -> tuple[int, Score]:
    """Score one seed, in a process of its own."""
    return most_ranks, run_seed(seed, most_ranks)[0]


def run_missing(wanted: list[tuple[int, int]], digest: str, workers: int) -> Iterator[tuple[int, Score]]:
    """Score what is not kept yet, keeping each as it comes."""
    KEPT.parent.mkdir(exist_ok=True)
    # No max_tasks_per_child: replacing workers can stop a pool for ever in Python 3.11. [CPython gh-115634]
    context = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(workers, mp_context=context) as pool,
        KEPT.open("a", encoding="utf-8") as keep,
    ):
        running = [pool.submit(run_one, *one) for one in wanted]
        for done in track(as_completed(running), "simulated hangs", total=len(running)):
            most_ranks, score = done.result()
            keep.write(json.dumps({"digest": digest, "most_ranks": most_ranks, "score": asdict(score)}) + "\n")
            keep.flush()
            yield most_ranks, score


def by_kind(scores: Iterable[Score]) -> dict[str, dict[str, int]]:
    """Count the outcomes of each class of hang."""
    counts: dict[str, dict[str, int]] = {}
    for score in scores:
        row = counts.setdefault(score.kind or "healthy", {})
        key = f"{'decided' if score.decided else 'open'}_{score.outcome}"
        row[key] = row.get(key, 0) + 1
    return dict(sorted(counts.items()))


def report(scores: dict[int, list[Score]]) -> dict[str, Any]:
    """Sum up by size and in all, and list what was not as good as the dumps allow."""
    everything = [score for of in scores.values() for score in of]
    return {
        "total": totals(everything),
        "by_most_ranks": {str(size): totals(of) for size, of in sorted(scores.items())},
        "by_kind": by_kind(everything),
        "slowest_analysis_seconds": {str(size): max(score.seconds for score in of) for size, of in scores.items()},
        "not_as_good_as_the_dumps_allow": [
            {"most_ranks": size} | score.row()
            for size, of in sorted(scores.items())
            for score in of
            if not score.good or score.innocent_evicted
        ],
    }


def holds(document: dict[str, Any]) -> bool:
    """Tell whether the claims hold: ≥ 99 % exact where decided, no innocent machine replaced."""
    total = document["total"]
    return bool(total["decided"]["share"] >= SHARE_MIN and total["innocent_machines_evicted"] == 0)


def main() -> int:
    """Run what is missing, write the document; 0 only if the claims hold."""
    parser = argparse.ArgumentParser(description="Judge simulated hangs against the oracle.")
    parser.add_argument("--smallest", action="store_true", help="one seed of each kind up to 64 ranks, written to out/")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    parser.add_argument("--only", type=int, nargs="*", choices=sorted(SEEDS), help="only these sizes, written to out/")
    parser.add_argument("--seeds", type=int, help="no more seeds than this a size, written to out/")
    options = parser.parse_args()
    sizes = SMALLEST if options.smallest else {size: SEEDS[size] for size in options.only or SEEDS}
    wanted = [(size, seed) for size, n in sizes.items() for seed in range(min(n, options.seeds or n))]
    digest = code_digest()
    done = {one: score for one, score in kept(digest).items() if one in set(wanted)}
    for most_ranks, score in run_missing([one for one in wanted if one not in done], digest, options.workers):
        done[most_ranks, score.seed] = score
    scores = {size: [done[one] for one in wanted if one[0] == size] for size in sizes}
    document = report(scores)
    full = not (options.smallest or options.only or options.seeds)
    target = Path(REPOSITORY / ("docs/measured" if full else "out")) / "simulated_hangs.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    command = " ".join(["python -m tests.acceptance.simulated_hangs", *sys.argv[1:]])
    target.write_text(json.dumps(provenance(command) | {"code": digest} | document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document["total"], indent=1))
    print(f"{len(document['not_as_good_as_the_dumps_allow'])} not as good as the dumps allow: {target}")
    return 0 if holds(document) else 1


if __name__ == "__main__":
    sys.exit(main())
