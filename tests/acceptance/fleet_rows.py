"""Seeds of the simulated fleet, run side by side, each one's outcome kept beside a digest of the code that made it."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from rich.progress import track

from tests.bench.measure import REPOSITORY, provenance

Row = dict[str, Any]
Wanted = tuple[str, int]
"""A kind of scene and a seed."""


def code_digest() -> str:
    """Name the code that an outcome depends on."""
    digest = hashlib.sha256()
    for folder in ("analyzers", "collectors", "simulation"):
        for path in sorted((REPOSITORY / folder).rglob("*")):
            if path.suffix in (".py", ".toml"):
                digest.update(path.relative_to(REPOSITORY).as_posix().encode() + path.read_bytes())
    for name in ("support/simulated_fleet.py", "acceptance/healthy_fleet.py", "acceptance/blindness.py"):
        digest.update((REPOSITORY / "tests" / name).read_bytes())
    return digest.hexdigest()[:16]


def rows(name: str, wanted: Sequence[Wanted], run: Callable[[str, int], Row], workers: int) -> list[Row]:
    """Return the outcome of each seed; what this code has run before is not run again."""
    keep, digest = REPOSITORY / "out" / f"{name}.jsonl", code_digest()
    keep.parent.mkdir(exist_ok=True)
    lines = keep.read_text(encoding="utf-8").splitlines() if keep.exists() else []
    known = [json.loads(line) for line in lines]
    done = {(row["kind"], row["seed"]): row for row in known if row["digest"] == digest}
    missing = [one for one in wanted if one not in done]
    # No max_tasks_per_child: replacing workers can stop a pool for ever in Python 3.11. [CPython gh-115634]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool, keep.open("a", encoding="utf-8") as file:
        running = {pool.submit(run, *one): one for one in missing}
        for finished in track(as_completed(running), name.replace("_", " "), total=len(running)):
            kind, seed = running[finished]
            row = {"digest": digest, "kind": kind, "seed": seed} | finished.result()
            file.write(json.dumps(row) + "\n")
            file.flush()
            done[kind, seed] = row
    return [done[one] for one in wanted]


def by_kind(found: Iterable[Row]) -> dict[str, list[Row]]:
    """Return the rows of each kind, in the order of the kinds."""
    kinds: dict[str, list[Row]] = {}
    for row in found:
        kinds.setdefault(row["kind"], []).append(row)
    return kinds


def write(name: str, document: dict[str, Any], arguments: Sequence[str], *, full: bool) -> Path:
    """Write a document with its command, commit and machine: a full one where others look, a part of it into out/."""
    target = Path(REPOSITORY / ("docs/measured" if full else "out")) / f"{name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    command = " ".join([f"python -m tests.acceptance.{name}", *arguments])
    document = provenance(command) | {"code": code_digest()} | document
    target.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return target


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Return the median and the worst of some latencies."""
    ordered = sorted(values)
    if not ordered:
        return {"median": None, "worst": None}
    return {"median": round(ordered[len(ordered) // 2], 1), "worst": round(ordered[-1], 1)}
