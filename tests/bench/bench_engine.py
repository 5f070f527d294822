"""The engine under a fleet at the agents' real rates: ticks, batches, a judgement, memory, lag, and how they grow.

200 jobs of 64 GPUs, and one job of 16,384, at a quarter, a half and the whole of it; simulated agents, no database. Each
size runs in a process of its own, once with the engine and once without, for the memory of the simulator is not the
engine's. The lag is that of one thread that takes every batch when it is received, or when it has done with those before.

    python -m tests.bench.bench_engine [--smallest]
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import subprocess
import sys
import time
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any

import psutil

from analyzers.incidents.messages import EngineEvent, EngineTick, Judge, Judged, Received
from collectors.records import Samples, block
from simulation.live.course import Course, Interruption
from simulation.live.fleet import Delivery, Fleet
from simulation.live.habits import Habits
from simulation.live.job import Attempt, LiveJob
from simulation.live.scenes import BEGAN_AT
from tests.bench.fleet_load import Node
from tests.bench.measure import MEGABYTE, REPOSITORY, provenance
from tests.support.simulated_fleet import Drive

GPUS = 8
JOB_NODES, ONE_NODES = 8, 2048
SIZES = {"jobs_of_64": ((50, JOB_NODES), (100, JOB_NODES), (200, JOB_NODES)),
         "one_job": ((1, ONE_NODES // 4), (1, ONE_NODES // 2), (1, ONE_NODES))}  # fmt: skip
SMALLEST = {"jobs_of_64": ((4, JOB_NODES), (8, JOB_NODES)), "one_job": ((1, 8), (1, 16))}
WARM_SECONDS, MEASURED_SECONDS, HANG_SECONDS = 90.0, 120.0, 150.0
HABITS = Habits(step_seconds=4.0, checkpoint_every=0, evaluation_every=0, start_seconds=10.0, first_step_seconds=5.0)
SAMPLES = tuple(record for record in Node(0).records(BEGAN_AT) if isinstance(record, Samples))
"""What a node with eight GPUs samples in ten seconds: the engine does not keep it, and has to unpack it."""
TICK_MS_MAX, LAG_SECONDS_MAX = 1000.0, 5.0


@dataclass(slots=True)
class Timings:
    """What each kind of event took, in seconds, and how far behind the thread was."""

    batches: list[float] = field(default_factory=list)
    records: int = 0
    bytes: int = 0
    ticks: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)  # ticks that looked at changed jobs only
    lags: list[float] = field(default_factory=list)
    judgements: list[float] = field(default_factory=list)
    judging: list[float] = field(default_factory=list)  # of these, processor time
    busy_until: float = 0.0
    newest_at: float = 0.0  # batches of several senders overtake one another by fractions of a second


class Timed(Drive):
    """The engine with a watch: what it takes up comes as blocks, as it would from the log."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet, naive=False)
        self.timings = Timings()
        self.measuring = False

    def _received(self, delivery: Delivery) -> None:
        packed = block.encode([*delivery.records, *SAMPLES], pack=True)
        began = time.perf_counter()
        event = Received(
            sequence=delivery.sequence, received_at=delivery.received_at, node=delivery.node,
            records=tuple(block.decode(packed)), sent_at=delivery.sent_at,
        )  # fmt: skip
        self._do(event, delivery.received_at)
        if self.measuring:
            self.timings.records += len(event.records)
            self.timings.bytes += len(packed)
            self._took(self.timings.batches, time.perf_counter() - began, delivery.received_at)

    def _do(self, event: EngineEvent, now: float) -> None:
        whole = isinstance(event, EngineTick) and now - self.state.ticked_at >= 10.0
        began = time.perf_counter()
        super()._do(event, now)
        if self.measuring and isinstance(event, EngineTick):
            kept = self.timings.ticks if whole else self.timings.between
            self._took(kept, time.perf_counter() - began, now)

    def _took(self, kept: list[float], seconds: float, now: float) -> None:
        timings = self.timings
        kept.append(seconds)
        timings.newest_at = max(timings.newest_at, now)
        timings.busy_until = max(timings.busy_until, timings.newest_at) + seconds
        timings.lags.append(timings.busy_until - timings.newest_at)

    def _conclude(self, asked: Judge) -> Judged:
        gc.disable()  # as in the forked child that judges (service/engine/judge_child.py)
        began, used = time.perf_counter(), time.process_time()
        judged = super()._conclude(asked)
        self.timings.judgements.append(time.perf_counter() - began)
        self.timings.judging.append(time.process_time() - used)
        gc.enable()
        return judged


def fleet_of(jobs: int, nodes: int) -> tuple[Fleet, float]:
    """Return so many jobs of so many nodes, and when a rank of the first begins to spin."""
    strikes_at = BEGAN_AT + WARM_SECONDS + MEASURED_SECONDS
    made = []
    for number in range(jobs):
        names = tuple(f"gpu-{number:03d}-{node:04d}" for node in range(nodes))
        hang = (Interruption(strikes_at, "spin", inf, frozenset({nodes * GPUS // 2})),) if not number else ()
        course = Course(HABITS, Random(number), BEGAN_AT, 0, hang)
        made.append(LiveJob(name=f"job-{number}", habits=HABITS, nodes=names, ranks_a_node=GPUS,
                            attempts=[Attempt(1, course)]))  # fmt: skip
    return Fleet(made, 1, BEGAN_AT), strikes_at


def measure(jobs: int, nodes: int) -> dict[str, Any]:
    """Run one size with the engine; memory is that of the process before the hang."""
    fleet, strikes_at = fleet_of(jobs, nodes)
    driver = Timed(fleet)
    driver.run(BEGAN_AT + WARM_SECONDS)
    gc.collect()
    gc.freeze()
    driver.measuring = True
    driver.run(strikes_at)
    driver.measuring = False
    resident = psutil.Process().memory_info().rss
    seen = driver.run(strikes_at + HANG_SECONDS)
    timings = driver.timings
    named = [one for one in seen.published if one.verdict.culprits and one.at > strikes_at]
    spent = sum(timings.batches) + sum(timings.ticks) + sum(timings.between)
    return {
        "jobs": jobs,
        "ranks": jobs * nodes * GPUS,
        "nodes": jobs * nodes,
        "batches_a_second": round(len(timings.batches) / MEASURED_SECONDS, 1),
        "records_a_batch": round(timings.records / max(1, len(timings.batches)), 1),
        "batch_ms": _spread(timings.batches),
        "tick_ms": _spread(timings.ticks),
        "tick_between_ms": _spread(timings.between),
        "share_of_a_core": round(spent / MEASURED_SECONDS, 4),
        "lag_ms": _spread(timings.lags),
        "judgement_seconds": [round(seconds, 2) for seconds in timings.judgements],
        "judgement_processor_seconds": [round(seconds, 2) for seconds in timings.judging],
        "named_seconds": round(named[0].at - strikes_at, 1) if named else None,
        "proposed_seconds": round(seen.replacing[0].at - strikes_at, 1) if seen.replacing else None,
        "proposed": sorted({node for one in seen.replacing for node in one.replaces}),
        "false_openings": sum(one.opened_at < strikes_at for one in seen.opened),
        "resident_mb": round(resident / MEGABYTE),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEGABYTE),
    }


def without_engine(jobs: int, nodes: int) -> dict[str, Any]:
    """Return the memory of the simulator alone, at the same instant."""
    fleet, strikes_at = fleet_of(jobs, nodes)
    while fleet.next_at < strikes_at:
        if (delivery := fleet.receive()) is not None:
            tuple(block.decode(block.encode([*delivery.records, *SAMPLES], pack=True)))
    return {"resident_mb": round(psutil.Process().memory_info().rss / MEGABYTE)}


def _spread(seconds: list[float]) -> dict[str, float | None]:
    ordered = sorted(seconds)
    if not ordered:
        return {"mean": None, "p50": None, "p99": None, "longest": None}
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    reported = {
        "mean": sum(ordered) / len(ordered),
        "p50": ordered[len(ordered) // 2],
        "p99": p99,
        "longest": ordered[-1],
    }
    return {name: round(value * 1e3, 3) for name, value in reported.items()}


def in_process(jobs: int, nodes: int, *extra: str) -> dict[str, Any]:
    """Run one size in a fresh interpreter."""
    command = [sys.executable, "-m", "tests.bench.bench_engine", "--one", str(jobs), str(nodes), *extra]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def grown(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return how many times more the largest size costs than the smallest, beside how much larger it is."""
    first, last = rows[0], rows[-1]
    return {
        "ranks": last["ranks"] / first["ranks"],
        "tick": round(last["tick_ms"]["mean"] / first["tick_ms"]["mean"], 2),
        "batch": round(last["batch_ms"]["mean"] / first["batch_ms"]["mean"], 2),
        "memory": round(last["engine_mb"] / max(1, first["engine_mb"]), 2),
        "judgement": round(max(last["judgement_seconds"]) / max(0.01, *first["judgement_seconds"]), 2),
    }


def main() -> int:
    """Measure, print, write docs/measured/engine.json (smallest: out/)."""
    parser = argparse.ArgumentParser(description="Run the engine under simulated fleets.")
    parser.add_argument("--smallest", action="store_true", help="small fleets, written to out/")
    parser.add_argument("--one", type=int, nargs=2, metavar=("JOBS", "NODES"), help="one size, printed")
    parser.add_argument("--without-engine", action="store_true", help="with --one: the simulator alone")
    options = parser.parse_args()
    if options.one:
        print(json.dumps((without_engine if options.without_engine else measure)(*options.one)))
        return 0
    found: dict[str, Any] = {}
    for name, sizes in (SMALLEST if options.smallest else SIZES).items():
        found[name] = []
        for jobs, nodes in sizes:
            row = in_process(jobs, nodes)
            row["engine_mb"] = row["resident_mb"] - in_process(jobs, nodes, "--without-engine")["resident_mb"]
            found[name].append(row)
            print(name, json.dumps(row), flush=True)
        found[f"{name}_growth"] = grown(found[name])
    target = REPOSITORY / ("out" if options.smallest else "docs/measured") / "engine.json"
    target.parent.mkdir(exist_ok=True)
    command = " ".join(["python -m tests.bench.bench_engine", *sys.argv[1:]])
    target.write_text(json.dumps(provenance(command) | found, indent=1) + "\n", encoding="utf-8")
    rows = [row for name in SIZES for row in found[name]]
    quick = all(row["tick_ms"]["longest"] < TICK_MS_MAX for row in rows)
    on_time = all(row["lag_ms"]["longest"] < LAG_SECONDS_MAX * 1e3 for row in rows)
    return 0 if quick and on_time and all(row["named_seconds"] is not None for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
