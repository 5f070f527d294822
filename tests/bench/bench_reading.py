"""A long job log: how long `faulthound diagnose` reads it on one core, and how much memory it takes.

The log is written by this script from a fixed seed: eight ranks' lines as launchers prefix them, of which a third report steps,
a few have words of trouble that mean nothing, and two end the job: a port that failed and a peer that was lost. The answer is
checked. The processor's seconds stand beside those on the clock, which other work on the machine stretches.

    python -m tests.bench.bench_reading [--smallest]
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import tempfile
from pathlib import Path

from tests.bench.measure import REPOSITORY, provenance, run

LINES, SMALLEST_LINES = 10_000_000, 500_000
SECONDS_MAX, PEAK_MB_MAX = 60.0, 300.0
BLOCK_LINES = 100_000
RANKS = 8
LAST = (
    "gpu-12:40211:40388 [0] transport/net_ib.cc:93 NCCL WARN NET/IB : mlx5_2:1 Got async event : port error\n"
    "gpu-31:51873:52185 [4] transport/net_ib.cc:1238 NCCL WARN NET/IB : Got completion from peer gpu-12<37140> with error 12, "
    "opcode 2, len 1, vendor err 129\n"
)
NAMED = "gpu-12"


def line(number: int, chosen: random.Random) -> str:
    """One line of a healthy job, about 100 bytes."""
    rank, step, kind = number % RANKS, number // (3 * RANKS), chosen.random()
    day, hour, minute, second = (
        21 + number // 5_000_000,
        number // 360_000 % 24,
        number // 6_000 % 60,
        number // 100 % 60,
    )
    stamp = f"2026-11-{day} {hour:02}:{minute:02}:{second:02}"
    ranked, shard, tenths = (
        f"[rank{rank}]: {stamp}",
        f"shard {number % 4096:05} of part-{number % 77:04}.tar",
        chosen.uniform(10, 40),
    )
    if kind < 0.33:
        return f"{ranked} iteration {step}/ 900000 | lm loss: {tenths / 13:.6E} | grad norm: {tenths / 40:.3f} |"
    if kind < 0.66:
        return f"{ranked} INFO prefetched {shard}, {number % 991} samples wait for the next batch"
    if kind < 0.93:
        return f"[default{rank}]:{stamp} DEBUG cache: kept {number % 9001} blocks, dropped {number % 13}, nothing else changed"
    if kind < 0.97:
        return f"gpu-{rank}:4000{rank}:4100{rank} [{rank}] NCCL INFO Channel {number % 32:02}/0 : {rank} -> {7 - rank} by P2P"
    if kind < 0.99:
        return f"{ranked} WARNING reader: checksum error in {shard}, skipped (2 of 3 retries left)"
    return f"{ranked} INFO saved checkpoint at step {step} to /mnt/ckpt/step_{step}, took {tenths:.1f} s in all"


def write(path: Path, lines: int) -> None:
    """Write the log. Its blocks repeat lines of one block with other numbers only in their order: that costs a reader no less."""
    chosen = random.Random(7)
    with path.open("w") as target:
        for first in range(0, lines, BLOCK_LINES):
            target.write(
                "\n".join(line(first + number, chosen) for number in range(min(BLOCK_LINES, lines - first))) + "\n"
            )
        target.write(LAST)


def measured(lines: int) -> dict[str, float | int | bool]:
    """Read a log of so many lines with the command of a user."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "train.log"
        write(log, lines)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = run([sys.executable, "-m", "faulthound", "diagnose", str(log), "--json", "--workers", "1"])
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        size = log.stat().st_size
    verdict = json.loads(done.output) if done.output.startswith("{") else {}
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "lines": lines,
        "megabytes": round(size / 1e6),
        "clock_seconds": round(done.seconds, 1),
        "processor_seconds": round(processor, 1),
        "peak_mb": round(done.peak_mb),
        "right": [culprit["id"] for culprit in verdict.get("culprits", ())] == [NAMED],
    }


def main() -> None:
    """Measure, print, and write docs/measured/reading.json (smallest: out/reading.json)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smallest", action="store_true", help="50 MB, no bounds")
    smallest = parser.parse_args().smallest
    found = measured(SMALLEST_LINES if smallest else LINES)
    print(json.dumps(found))
    folder = REPOSITORY / ("out" if smallest else "docs/measured")
    folder.mkdir(exist_ok=True)
    document = {**provenance("python -m tests.bench.bench_reading" + " --smallest" * smallest), "reading": found}
    (folder / "reading.json").write_text(json.dumps(document, indent=1) + "\n")
    assert found["right"], "the verdict on the log is wrong"
    if not smallest:
        assert found["processor_seconds"] <= SECONDS_MAX, found
        assert found["peak_mb"] <= PEAK_MB_MAX, found


if __name__ == "__main__":
    main()
