"""Ten minutes of a slow job's operations, 128 to 16,384 ranks: how long they are judged, in how much memory, who is named.

Each size is judged in a process of its own. A job has 8 stages, 4 microbatches and steps of ten seconds, as the simulator
schedules them (``simulation/traces``), with jitter drawn for every operation; from the middle on one rank computes twice as
long. Reading files is not part of it.

    python -m tests.bench.bench_slow [--smallest]
"""

from __future__ import annotations

import resource
import time
from typing import Any

import numpy as np

from analyzers.model.topology import infer
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.records import OP_COLUMNS, OpTimings
from service.packaged_knowledge import load
from simulation.traces.op_traces import OpJob
from tests.bench.measure import MEGABYTE
from tests.bench.sizes import BySize

STAGES, MICROBATCHES, STEPS, STEP_SECONDS = 8, 4, 60, 10.0
JITTER, SLOWER = 0.02, 2.0
HOSTED = 8


def one_replica() -> tuple[tuple[str, ...], list[dict[str, Any]]]:
    """Return the names of operations, and the columns of each stage of one replica for all steps."""
    job = OpJob(stages=STAGES, replicas=1, microbatches=MICROBATCHES, steps=STEPS, jitter=0.0, ahead_seconds=0.0)
    rows = [(stage, step, *row) for stage, _, step, found in job.rows() for row in found]
    names = tuple(sorted({row[2] for row in rows}))
    times = STEP_SECONDS * STEPS / max(row[3] + row[4] for row in rows)
    stages = []
    for stage in range(STAGES):
        mine = [row for row in rows if row[0] == stage]
        stages.append({
            "operation": np.array([names.index(row[2]) for row in mine]), "step": np.array([row[1] for row in mine]),
            "started": np.array([row[3] for row in mine]) * times, "duration": np.array([row[4] for row in mine]) * times,
            "microbatch": np.array([row[5] for row in mine]), "chunk": np.full(len(mine), -1),
            "work": np.full(len(mine), np.nan),
        })  # fmt: skip
        made = stages[-1]
        made["gap"] = made["started"] - np.concatenate([[0.0], (made["started"] + made["duration"])[:-1]])
    return names, stages


def job_records(ranks: int) -> tuple[list[OpTimings], int]:
    """Return one record a rank, and the rank that is slow."""
    names, stages = one_replica()
    replicas, draws = ranks // STAGES, np.random.default_rng(ranks)
    guilty = (STAGES // 2) * replicas + replicas // 3
    records = []
    for rank in range(ranks):
        stage, replica = divmod(rank, replicas)
        base = stages[stage]
        compute = np.array(["compute" in name for name in names])[base["operation"]]
        seconds = base["duration"] * np.exp(draws.normal(0, JITTER, len(base["duration"])))
        if rank == guilty:
            seconds = np.where(compute & (base["step"] >= STEPS // 2), seconds * SLOWER, seconds)
        started = np.cumsum(base["gap"] + seconds) - seconds
        drawn = base | {"duration": seconds, "started": started}
        columns = {name: drawn[name].astype(code).tobytes() for name, code in OP_COLUMNS.items()}
        records.append(
            OpTimings(source=f"trace/rank{rank}", node=f"gpu-{rank // HOSTED:04}", rank=rank, strings=names, count=len(seconds),
                      coordinates={"dp": replica, "pp": stage}, columns=columns, told_by="op_trace")
        )  # fmt: skip
    return records, guilty


def judged(ranks: int) -> dict[str, Any]:
    """Judge one job in this process."""
    (records, guilty), knowledge = job_records(ranks), load()
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    wall, before = time.perf_counter(), time.process_time()
    window = Window.build(records)
    verdict = judge(window, infer(window), knowledge)
    return {
        "ranks": ranks,
        "operations": sum(record.count for record in records),
        "clock_seconds": round(time.perf_counter() - wall, 2),
        "processor_seconds": round(time.process_time() - before, 2),
        "records_mb": round(held / MEGABYTE),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEGABYTE),
        "right": [culprit.id for culprit in verdict.culprits] in ([str(guilty)], [f"gpu-{guilty // HOSTED:04}"]),
    }


if __name__ == "__main__":
    BySize("bench_slow", "slow_judgement", __doc__, seconds_max=10.0, peak_mb_max=4_000.0).main(judged)
