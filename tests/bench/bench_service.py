"""A fleet of simulated agents against one service: processor, memory, acknowledgements; and the window of a job.

The fleet is 2,048 nodes of eight GPUs at the agents' default rates (tests/bench/fleet_load.py), on the same machine as the
service and in competition with it. The naive control, a row a value in JSON and in the table, takes what it can of the same
readings in the same run. Then the fleet grows until acknowledgements take longer than a second: what the machine holds.

    python -m tests.bench.bench_service [--smallest]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

from collectors.records import Samples
from service.store.window.tail import Tail
from tests.bench.measure import MEGABYTE, REPOSITORY, provenance
from tests.support.durability.scenes import Service, free_port

NODES, NAIVE_NODES = 2048, 32
GROWTH = (4096, 6144, 8192)
SECONDS, SMALLEST_SECONDS = 90.0, 10.0
P99_AIM_MS, HELD_MS = 200.0, 1000.0
WINDOW_AIM_MS = 15.0


@contextmanager
def faulthound(folder: Path) -> Iterator[tuple[str, int]]:
    """Run the service with its default settings; yield its URL and process."""
    service = Service(folder)
    service.start()
    assert service.process is not None
    try:
        yield service.url, service.process.pid
    finally:
        service.kill()


@contextmanager
def naive(folder: Path) -> Iterator[tuple[str, int]]:
    """Run the control."""
    folder.mkdir(parents=True)
    port = free_port()
    command = [sys.executable, "-m", "tests.bench.naive_door", str(folder), str(port)]
    process = subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.DEVNULL)
    try:
        _wait_for(f"http://127.0.0.1:{port}/docs")
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.kill()
        process.wait()


def _wait_for(url: str) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            httpx.get(url, timeout=1)
        except httpx.HTTPError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"{url} does not answer")


def loaded(run: Callable[[Path], Any], folder: Path, nodes: int, seconds: float, *extra: str) -> dict[str, Any]:
    """Load a service with a fleet and return what both came to."""
    with run(folder) as (url, pid):
        process = psutil.Process(pid)
        command = [
            sys.executable,
            "-m",
            "tests.bench.fleet_load",
            url,
            "--nodes",
            str(nodes),
            "--seconds",
            str(seconds),
        ]
        fleet = subprocess.Popen([*command, *extra], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
        time.sleep(20.0)  # START_SECONDS of the fleet
        used, started = _cpu_seconds(process), time.monotonic()
        output, _ = fleet.communicate(timeout=seconds + 120)
        share = (_cpu_seconds(process) - used) / (time.monotonic() - started)
        found: dict[str, Any] = json.loads(output)
        found["core_share"] = round(share, 3)
        found["cpu_ms_per_shipment"] = round(share * seconds / max(1, found["acknowledged"]) * 1e3, 3)
        found["resident_mb"] = round(process.memory_info().rss / MEGABYTE)
        return found


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def window(nodes: int) -> dict[str, Any]:
    """Return how long ten minutes of a job's GPUs × 20 metrics take to assemble, and one shipment to take up."""
    tail, metrics = Tail(600.0), tuple(f"metric_{n}" for n in range(20))
    names, start = [f"gpu-{number:05d}" for number in range(nodes)], 1.8e9
    values = np.random.default_rng(1).random((61, nodes, 8, 20, 1), dtype=np.float32)
    began = time.perf_counter()
    for tick in range(61):
        ticks = np.array([start + 10 * tick]).tobytes()
        for place, name in enumerate(names):
            devices = tuple(f"GPU-{gpu}" for gpu in range(8))
            record = Samples(
                scope="gpu", devices=devices, metrics=metrics, ticks=ticks, values=values[tick, place].tobytes()
            )
            tail.add(name, start + 10 * tick, [record])
    taken = (time.perf_counter() - began) / 61 / nodes
    runs = []
    for _ in range(30):
        began = time.perf_counter()
        cube = tail.assemble("gpu", names, metrics, start, start + 600)
        runs.append((time.perf_counter() - began) * 1e3)
    assert cube.values.shape == (60, nodes * 8, 20)
    assert np.array_equal(cube.values[7].reshape(nodes, 8, 20), values[7, ..., 0])
    return {
        "gpus": nodes * 8, "metrics": 20, "ticks": 60, "median_ms": round(statistics.median(runs), 2),
        "longest_ms": round(max(runs), 2), "take_up_us_per_shipment": round(taken * 1e6, 1), "aim_ms": WINDOW_AIM_MS,
    }  # fmt: skip


def main() -> int:
    """Measure, print, write docs/measured/service.json (smallest: out/)."""
    parser = argparse.ArgumentParser(description="Load one service with the agents of a fleet.")
    parser.add_argument("--smallest", action="store_true", help="128 nodes for some seconds, written to out/")
    options = parser.parse_args()
    nodes, seconds = (128, SMALLEST_SECONDS) if options.smallest else (NODES, SECONDS)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        found: dict[str, Any] = {"fleet": loaded(faulthound, root / "fleet", nodes, seconds)}
        print("service", found["fleet"], flush=True)
        found["naive"] = loaded(naive, root / "naive", NAIVE_NODES, min(seconds, 30.0), "--rows")
        print("naive  ", found["naive"], flush=True)
        found["held"] = []
        for size in () if options.smallest else GROWTH:
            found["held"].append(loaded(faulthound, root / f"held{size}", size, 45.0))
            print("grown  ", found["held"][-1], flush=True)
            if found["held"][-1]["p99_ms"] > HELD_MS:
                break
    found["window"] = window(16 if options.smallest else 128)
    print("window ", found["window"], flush=True)
    ratio = found["naive"]["cpu_ms_per_shipment"] / found["fleet"]["cpu_ms_per_shipment"]
    found["naive_cpu_ratio"] = round(ratio, 1)
    print(f"a shipment costs the naive control {ratio:.1f} times the processor time")
    target = REPOSITORY / ("out" if options.smallest else "docs/measured") / "service.json"
    target.parent.mkdir(exist_ok=True)
    command = " ".join(["python -m tests.bench.bench_service", *sys.argv[1:]])
    target.write_text(json.dumps(provenance(command) | found, indent=1) + "\n")
    fleet = found["fleet"]
    whole = fleet["acknowledged"] and not fleet["other_answers"] and not fleet["failures"]
    # In some seconds of a small fleet the service's own clockwork is most of what it costs: no ratio to hold it to.
    return 0 if whole and (options.smallest or ratio > 1) else 1


if __name__ == "__main__":
    sys.exit(main())
