"""What the probe does to a job on a GPU: seconds of a step, waits for the device, and how far its timings are from CUDA's.

A transformer is trained below DDP over NCCL with automatic mixed precision, in this process alone. Blocks of steps are run
without the probe, with it, and with a hash of the parameters at each step, by turns. Without a GPU it says so and ends.

    python -m tests.acceptance.gpu_probe [--smallest]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.acceptance.gpu_nvml import skipped
from tests.bench.bench_probe import more
from tests.bench.measure import REPOSITORY, provenance

MODES = ("off", "on", "hashing")  # the last: on, and the parameters are hashed after every step
SIZES = {"device_bound": (12, 1024, 8, 512, 5), "launch_bound": (4, 256, 4, 64, 20)}
"""Layers, width, sequences and their length, and steps a block: the device is the bottleneck, or the host that launches."""
BLOCKS = 60  # of each mode
COLLECTIVES = 4  # that Python issues in a step, beside DDP's buckets
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaEventQuery", "cudaEventRecord")
PHASES = ("forward", "backward", "optimizer")
COST_MAX = 0.01


class Trainer:
    """A model with what trains it; ``timed`` keeps CUDA's own events around each phase."""

    def __init__(self, layers: int, width: int, sequences: int, length: int) -> None:
        import torch

        self.torch = torch
        layer = torch.nn.TransformerEncoderLayer(width, width // 64, 4 * width, batch_first=True, dropout=0.0)
        model = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).cuda()
        self.parameters = sum(one.numel() for one in model.parameters())
        self.model = torch.nn.parallel.DistributedDataParallel(model)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        self.input = torch.randn(sequences, length, width, device="cuda")
        self.norm = torch.ones(4, device="cuda")

    def step(self, probe: Any, timed: list[tuple[str, Any, Any]] | None = None) -> None:
        """Train one step, in phases."""
        with probe.phase("forward"):
            begun = self.mark(timed)
            with self.torch.autocast("cuda", dtype=self.torch.bfloat16):
                loss = self.model(self.input).float().pow(2).mean()
            self.note(timed, "forward", begun)
        begun = self.mark(timed)
        loss.backward()
        self.note(timed, "backward", begun)
        for _ in range(COLLECTIVES):
            self.torch.distributed.all_reduce(self.norm)
        begun = self.mark(timed)
        self.optimizer.step()
        self.note(timed, "optimizer", begun)
        self.optimizer.zero_grad()

    def mark(self, timed: list[tuple[str, Any, Any]] | None) -> Any:
        """Record an event of our own where the step is timed."""
        if timed is None:
            return None
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def note(self, timed: list[tuple[str, Any, Any]] | None, phase: str, begun: Any) -> None:
        """Keep a phase's two events."""
        if timed is not None:
            timed.append((phase, begun, self.mark(timed)))


def chosen(probe: Any, mode: str) -> None:
    """Turn the probe off, on, or on with hashes."""
    probe._probe.off = mode == "off"
    probe._probe.parameters.every = int(mode == "hashing")


def timed_blocks(trainer: Trainer, probe: Any, blocks: int, steps: int) -> dict[str, list[float]]:
    """Return the seconds of a step in each block, by mode; the device is waited for only between blocks."""
    seconds: dict[str, list[float]] = {mode: [] for mode in MODES}
    for number in range(blocks):
        first = number % len(MODES)
        for mode in MODES[first:] + MODES[:first]:
            chosen(probe, mode)
            trainer.torch.cuda.synchronize()
            started_at = time.perf_counter()
            for _ in range(steps):
                trainer.step(probe)
            trainer.torch.cuda.synchronize()
            seconds[mode].append((time.perf_counter() - started_at) / steps)
    return seconds


def calls_of_the_runtime(trainer: Trainer, probe: Any, steps: int = 5) -> dict[str, dict[str, float]]:
    """Return how often a step calls what waits for the device or asks it, as torch.profiler counts, by mode."""
    from torch.profiler import ProfilerActivity, profile

    counted = {}
    for mode in MODES:
        chosen(probe, mode)
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            for _ in range(steps):
                trainer.step(probe)
        names = Counter(str(event.name()) for event in profiler.profiler.kineto_results.events())  # type: ignore[union-attr]
        counted[mode] = {name: names[name] / steps for name in WAITS}
    return counted


def differences(trainer: Trainer, probe: Any, steps: int) -> dict[str, dict[str, float]]:
    """Return by how much the ring's times of phases differ from CUDA events of our own around the same calls."""
    from collectors.formats.probe_ring import parse

    chosen(probe, "on")
    timed: list[tuple[str, Any, Any]] = []
    trainer.torch.cuda.synchronize()
    probe._probe.device.read()
    before = parse(Path(probe._probe.ring.path).read_bytes()).timings[-1][0]
    for _ in range(steps):
        trainer.step(probe, timed)
        trainer.torch.cuda.synchronize()
    probe._probe.device.read()
    image = parse(Path(probe._probe.ring.path).read_bytes())
    found: dict[str, dict[str, float]] = {}
    for phase in PHASES:
        own = [start.elapsed_time(end) for name, start, end in timed if name == phase]
        rings = [ns / 1e6 for number, name, _, ns in image.timings if name == phase and number > before]
        pairs = list(zip(own, rings, strict=True))
        found[phase] = {
            "events_ms": round(statistics.median(own), 4),
            "ring_ms": round(statistics.median(rings), 4),
            "median_difference_microseconds": round(statistics.median(ring - one for one, ring in pairs) * 1e3, 1),
            "largest_difference_microseconds": round(max(abs(ring - one) for one, ring in pairs) * 1e3, 1),
            "pairs": len(pairs),
        }
    return found


def captured() -> dict[str, Any]:
    """Return whether a whole step can be captured as a CUDA graph while the probe is on, and replays as it must."""
    import faulthound_probe as probe  # type: ignore[import-not-found]
    import torch

    chosen(probe, "hashing")
    weight = torch.nn.Parameter(torch.ones(64, 64, device="cuda"))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    failures = probe._probe.failures

    def step() -> None:
        weight.grad = torch.ones_like(weight)
        with probe.phase("forward"):
            torch.distributed.all_reduce(weight.grad)
        optimizer.step()

    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            step()
        before = weight.detach().clone()
        graph.replay()
        torch.cuda.synchronize()
        same = bool((weight == before - 0.5).all())
    except RuntimeError as error:
        return {"captured": False, "error": str(error).splitlines()[0]}
    return {"captured": True, "replays_right": same, "failures_inside": probe._probe.failures - failures}


def trained(size: str, blocks: int) -> dict[str, Any]:
    """Train as the only rank of a job, and return what was measured."""
    import faulthound_probe  # type: ignore[import-not-found]
    import torch

    layers, width, sequences, length, steps = SIZES[size]
    trainer = Trainer(layers, width, sequences, length)
    for mode in MODES:
        chosen(faulthound_probe, mode)
        for _ in range(10):
            trainer.step(faulthound_probe)
    seconds = timed_blocks(trainer, faulthound_probe, blocks, steps)
    off, on, hashing = (statistics.median(seconds[mode]) for mode in MODES)
    cost, bounds = more(seconds["on"], seconds["off"])
    hashed, hashed_bounds = more(seconds["hashing"], seconds["on"])
    return {
        "gpu": torch.cuda.get_device_name(0),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        "parameters": trainer.parameters,
        "blocks_of_each": blocks,
        "steps_a_block": steps,
        "step_seconds_without": round(off, 6),
        "step_seconds_with": round(on, 6),
        "cost_of_a_step": cost,
        "cost_of_a_step_95_percent": bounds,
        "cost_of_a_step_microseconds": round((on - off) * 1e6, 1),
        "step_seconds_hashed": round(hashing, 6),
        "cost_of_hashing_in_its_step": hashed,
        "cost_of_hashing_in_its_step_95_percent": hashed_bounds,
        "calls_a_step": calls_of_the_runtime(trainer, faulthound_probe),
        "timings_beside_events": differences(trainer, faulthound_probe, 30),
        "failures_inside": faulthound_probe._probe.failures,
    }


def forked() -> dict[str, Any]:
    """Join a group over gloo without using the GPU; then return whether this process holds it, and whether a child may."""
    import faulthound_probe  # type: ignore[import-not-found]
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    with faulthound_probe.phase("forward"):
        dist.all_reduce(torch.ones(4))
    uses, (read, write) = torch.cuda.is_initialized(), os.pipe()
    if os.fork() == 0:
        try:
            said = str(torch.ones(2, device="cuda").sum().item())
        except RuntimeError as error:
            said = str(error).splitlines()[0]
        os.write(write, said.encode())
        os._exit(0)
    os.wait()
    failures = faulthound_probe._probe.failures
    return {"uses_the_gpu": uses, "child": os.read(read, 500).decode(), "failures_inside": failures}


def part_main(part: str, blocks: int) -> None:
    """Measure one part as the only rank of a job, and print it as one line."""
    import faulthound_probe  # type: ignore[import-not-found]  # noqa: F401  first, as a job does
    import torch
    import torch.distributed as dist

    if part == "gloo":
        found = forked()
    else:
        torch.cuda.set_device(0)
        dist.init_process_group("nccl")
        found = captured() if part == "graph" else trained(part, blocks)
        dist.destroy_process_group()
    print(json.dumps(found), flush=True)


def run(part: str, blocks: int) -> dict[str, Any]:
    """Run one part in a process of its own with the probe beside it, and return what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(REPOSITORY / "collectors" / "faulthound_probe.py", folder)
        own = {
            "PYTHONPATH": f"{folder}:{REPOSITORY}", "FAULTHOUND_PROBE_DIR": folder, "FAULTHOUND_PROBE_HASH": "1", "RANK": "0",
            "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29731",
        }  # fmt: skip
        command = [sys.executable, "-m", "tests.acceptance.gpu_probe", "--part", part, "--blocks", str(blocks)]
        path = own["PYTHONPATH"] + os.pathsep + os.environ.get("PYTHONPATH", "")
        ended = subprocess.run(
            command,
            env=os.environ | own | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
    if ended.returncode:
        raise RuntimeError(f"{part} left with {ended.returncode}: {ended.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Measure, print, write the document; 1 if a claim is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smallest", action="store_true", help="a few blocks, written to out/")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--blocks", type=int, default=BLOCKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        part_main(options.part, options.blocks)
        return 0
    if skipped():
        return 0
    row = {part: run(part, 6 if options.smallest else options.blocks) for part in (*SIZES, "graph", "gloo")}
    path = REPOSITORY / ("out" if options.smallest else "docs/measured") / "gpu_probe.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {**provenance(" ".join(["python -m tests.acceptance.gpu_probe", *sys.argv[1:]])), **row}
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(row, indent=1))
    waits = [
        name for size in SIZES for name in WAITS[:3]
        if max(row[size]["calls_a_step"][mode][name] for mode in MODES[1:]) > row[size]["calls_a_step"]["off"][name]
    ]  # fmt: skip
    broken = {
        "a step costs more than 1 %": row["device_bound"]["cost_of_a_step_95_percent"][0] > COST_MAX,
        f"the probe waits for the device: {waits}": bool(waits),
        "a graph cannot be captured": not row["graph"]["captured"] or not row["graph"]["replays_right"],
        "a job over gloo is given the GPU, or its child cannot use it": row["gloo"]["uses_the_gpu"]
        or row["gloo"]["child"] != "2.0",
    }
    for claim in (text for text, found in broken.items() if found):
        print(f"claim broken: {claim}", file=sys.stderr)
    return int(any(broken.values()))


if __name__ == "__main__":
    sys.exit(main())
