"""The GPU collector on a real GPU: its values beside those of `nvidia-smi` around the same instant, idle and under load.

Without a GPU it says so and ends.

    python -m tests.acceptance.gpu_nvml [--smallest]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from collectors.live import Readings
from collectors.live.gpu import GpuCollector
from collectors.live.sources.host import Host
from tests.bench.measure import REPOSITORY, gpus, provenance

MIB = 1 << 20
BESIDE: dict[str, tuple[str, Callable[[str], float], float]] = {
    "gpu_utilization_percent": ("utilization.gpu", float, 5),
    "memory_utilization_percent": ("utilization.memory", float, 10),
    "power_milliwatts": ("power.draw", lambda text: float(text) * 1e3, 30_000),
    "power_limit_milliwatts": ("enforced.power.limit", lambda text: float(text) * 1e3, 0),
    "gpu_temperature_celsius": ("temperature.gpu", float, 2),
    "memory_temperature_celsius": ("temperature.memory", float, 2),
    "sm_clock_mhz": ("clocks.sm", float, 200),
    "memory_clock_mhz": ("clocks.mem", float, 0),
    "performance_state": ("pstate", lambda text: float(text.removeprefix("P")), 0),
    "pcie_generation": ("pcie.link.gen.current", float, 0),
    "pcie_width_lanes": ("pcie.link.width.current", float, 0),
    "memory_used_bytes": ("memory.used", lambda text: float(text) * MIB, MIB),
    "throttle_reasons_mask": ("clocks_event_reasons.active", lambda text: float(int(text, 16)), 0),
    "ecc_sbe_volatile_total": ("ecc.errors.corrected.volatile.total", float, 0),
    "ecc_sbe_aggregate_total": ("ecc.errors.corrected.aggregate.total", float, 0),
    "ecc_dbe_volatile_total": ("ecc.errors.uncorrected.volatile.total", float, 0),
    "ecc_dbe_aggregate_total": ("ecc.errors.uncorrected.aggregate.total", float, 0),
    "remapped_rows_correctable_total": ("remapped_rows.correctable", float, 0),
    "remapped_rows_uncorrectable_total": ("remapped_rows.uncorrectable", float, 0),
    "remapped_rows_pending": ("remapped_rows.pending", lambda text: float(text in {"Yes", "1"}), 0),
    "remapped_rows_failed": ("remapped_rows.failure", lambda text: float(text in {"Yes", "1"}), 0),
}
"""Each metric: what nvidia-smi calls it, how its text is read in the metric's unit, and what may differ within a second."""
LOAD_SECONDS = 12
SAMPLES = 40


def skipped() -> bool:
    """Say that there is no GPU here, where there is none."""
    if gpus():
        return False
    print("skipped: nvidia-smi shows no GPU on this machine")
    return True


def values(collector: GpuCollector) -> dict[str, Any]:
    """Return one sample of the first GPU, by metric."""
    tables = [one for one in collector(None) if isinstance(one, Readings) and one.scope == "gpu"]
    return {metric: value for table in tables for metric, value in zip(table.metrics, table.values[0], strict=True)}


def of_nvidia_smi() -> dict[str, str]:
    """Return what nvidia-smi prints of the first GPU, by its own names; it refuses a query with one that it does not know."""
    names = [name for name, _, _ in BESIDE.values()]
    command = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits", "-i", "0"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return dict(zip(names, (part.strip() for part in printed.split(",")), strict=True))


def compared(collector: GpuCollector) -> dict[str, Any]:
    """Return what differs from nvidia-smi by more than it may, and which values neither or only one has."""
    before, own, after = of_nvidia_smi(), values(collector), of_nvidia_smi()
    differs, unread = {}, []
    for metric, (name, read, most) in BESIDE.items():
        texts = [text for text in (before[name], after[name]) if text not in {"[N/A]", "N/A", "[Not Supported]"}]
        if own[metric] is None or not texts:
            unread.append(metric)
            continue
        low, high = min(map(read, texts)) - most, max(map(read, texts)) + most
        if not low <= own[metric] <= high:
            differs[metric] = {"collector": own[metric], "nvidia_smi": [before[name], after[name]]}
    absent = sorted(metric for metric, value in own.items() if value is None)
    return {"compared": len(BESIDE) - len(unread), "differ": differs, "not_given": absent, "values": own}


def cost(collector: GpuCollector, samples: int) -> dict[str, float]:
    """Return milliseconds of the clock and of the processor of one sample."""
    clock, processor = [], []
    for _ in range(samples):
        started_at, used = time.perf_counter(), time.process_time()
        list(collector(None))
        clock.append(time.perf_counter() - started_at)
        processor.append(time.process_time() - used)
    return {
        "median_milliseconds": round(statistics.median(clock) * 1e3, 2),
        "longest_milliseconds": round(max(clock) * 1e3, 2),
        "processor_milliseconds": round(statistics.mean(processor) * 1e3, 2),
    }


@contextmanager
def load(seconds: float) -> Iterator[None]:
    """Multiply matrices on the first GPU meanwhile."""
    program = (
        "import time, torch\nx = torch.randn(8192, 8192, device='cuda', dtype=torch.bfloat16)\n"
        f"end = time.time() + {seconds}\nprint('begun', flush=True)\n"
        "while time.time() < end:\n    for _ in range(20): y = x @ x\n    torch.cuda.synchronize()\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(seconds / 3)
        yield
    finally:
        process.kill()
        process.wait()


def energy(collector: GpuCollector) -> dict[str, float]:
    """Return the mean power of three seconds, by the energy counter and by the power gauge."""
    first, started_at, watts = values(collector), time.monotonic(), []
    while (passed := time.monotonic() - started_at) < 3:
        watts.append(values(collector)["power_milliwatts"] / 1e3)
        time.sleep(0.2)
    spent = values(collector)["energy_millijoules_total"] - first["energy_millijoules_total"]
    return {"watts_by_energy": round(spent / 1e3 / passed, 1), "watts_by_power": round(statistics.mean(watts), 1)}


def main() -> int:
    """Compare, print, write the document; 1 where a value differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smallest", action="store_true", help="fewer samples, written to out/")
    options = parser.parse_args()
    if skipped():
        return 0
    collector = GpuCollector(Host(node="here"))
    started_at = time.perf_counter()
    devices = [str(getattr(one, "name", "")) for one in collector(None) if type(one).__name__ == "Device"]
    row: dict[str, Any] = {"gpus": devices, "first_milliseconds": round((time.perf_counter() - started_at) * 1e3, 2)}
    samples = 10 if options.smallest else SAMPLES
    row["idle"] = compared(collector) | {"cost": cost(collector, samples)}
    with load(LOAD_SECONDS):
        row["under_load"] = compared(collector) | {"cost": cost(collector, samples)} | energy(collector)
    path = REPOSITORY / ("out" if options.smallest else "docs/measured") / "gpu_nvml.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {**provenance(" ".join(["python -m tests.acceptance.gpu_nvml", *sys.argv[1:]])), **row}
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(row, indent=1))
    return int(bool(row["idle"]["differ"] or row["under_load"]["differ"]))


if __name__ == "__main__":
    sys.exit(main())
