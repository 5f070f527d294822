"""A hang of 128 to 16,384 ranks: how long its dumps are judged, in how much memory, and whether as well as they allow.

Each size is judged in a process of its own, from one seed of the simulator (``simulation/scenarios.py``); the oracle says what
the dumps determine. Reading files is not part of it.

    python -m tests.bench.bench_hang [--smallest]
"""

from __future__ import annotations

import gc
import resource
import time
from typing import Any

from analyzers.model.topology import infer
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from simulation.scenarios import draw, play
from tests.bench.measure import MEGABYTE
from tests.bench.sizes import BySize
from tests.support.simulated_hangs import knowledge, score
from tests.support.waits_alone import evicting

SEED = 1


def judged(ranks: int) -> dict[str, Any]:
    """Judge one hang in this process. The simulator's own objects are left out of garbage collection."""
    played, known = play(draw(SEED, ranks, ranks)), knowledge()
    records = played.records()
    gc.collect()
    gc.freeze()
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    wall, before = time.perf_counter(), time.process_time()
    window = Window.build(records)
    with evicting():
        verdict = judge(window, infer(window), known)
    clock, processor = time.perf_counter() - wall, time.process_time() - before
    return {
        "ranks": played.scenario.shape.world,
        "kind": played.scenario.kind,
        "dumps": len(records),
        "clock_seconds": round(clock, 2),
        "processor_seconds": round(processor, 2),
        "records_mb": round(held / MEGABYTE),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MEGABYTE),
        "right": score(played, verdict, clock).good,
    }


if __name__ == "__main__":
    BySize("bench_hang", "hang_judgement", __doc__, seconds_max=6.0, peak_mb_max=4_000.0).main(judged)
