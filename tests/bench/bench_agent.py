"""What the agent costs a node: all collectors at their default rates, beside eight Python processes that say they train.

Processor time and memory include the agent's children (py-spy, the worker with the driver's library) and what it has
reaped. NVML is the C stub of tests/nvml_stub with eight GPUs, so its figures are the bindings' and ours, not a driver's. In
the same run, one after the other: the naive control, which sends the same readings as a JSON row a value, a POST each tick.

    python -m tests.bench.bench_agent [--smallest]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.agent_load import RANKS, Memory, cpu_seconds, ranks
from tests.bench.measure import MEGABYTE, REPOSITORY, provenance
from tests.support.agent_service import AgentService, agent_service
from tests.support.nvml_stub import build

WARM_UP_SECONDS, SECONDS = 60.0, 180.0  # the slowest interval and the Coverage record are a minute
SMALLEST_WARM_UP_SECONDS, SMALLEST_SECONDS = 8.0, 20.0
CPU_PERCENT_MOST, RSS_MB_MOST, KB_A_MINUTE_A_GPU_MOST = 1.0, 80.0, 50.0


def measured(
    command: list[str], service: AgentService, environment: dict[str, str], *, smallest: bool
) -> dict[str, Any]:
    """Run one side, and return what it cost between its warm-up and its end."""
    seconds = SMALLEST_SECONDS if smallest else SECONDS
    with subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdin=subprocess.DEVNULL) as process:
        try:
            time.sleep(SMALLEST_WARM_UP_SECONDS if smallest else WARM_UP_SECONDS)
            batches, cpu, began_at = set(service.batches), cpu_seconds(process.pid), time.monotonic()
            with Memory(process.pid) as memory:
                time.sleep(seconds)
            took, cpu = time.monotonic() - began_at, cpu_seconds(process.pid) - cpu
            sent = [len(data) for key, data in list(service.batches.items()) if key not in batches]
        finally:
            process.terminate()
    return {
        "seconds": round(took, 1),
        "cpu_percent_of_a_core": round(100 * cpu / took, 3),
        "peak_rss_mb": round(memory.rss_bytes / MEGABYTE, 1),
        "peak_pss_mb": round(memory.pss_bytes / MEGABYTE, 1),
        "processes": memory.processes,
        "requests_a_minute": round(len(sent) * 60 / took, 1),
        "kb_a_minute_a_gpu": round(sum(sent) / 1000 * 60 / took / RANKS, 2),
    }


def sides(scratch: Path, *, smallest: bool) -> dict[str, Any]:
    """Measure the agent and the control, each beside its own ranks and with a service of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FAULTHOUND_")}
    has_gpus = shutil.which("gcc") is not None
    if has_gpus:
        (scratch / "scenario").write_text(f"* gpus {RANKS}\n", encoding="ascii")
        environment["LD_LIBRARY_PATH"] = str(build(scratch).parent)
        environment["NVML_STUB_SCENARIO"] = str(scratch / "scenario")
    found: dict[str, Any] = {"gpus": "the stub's" if has_gpus else "none: no C compiler"}
    with ranks(), agent_service() as service:
        flags = ["--service", service.url, "--state", str(scratch / "state"), "--log-level", "error"]
        command = [sys.executable, "-m", "collectors.agent", "run", *flags]
        found["agent"] = measured(command, service, environment, smallest=smallest)
        status = json.loads((scratch / "state/status.json").read_bytes())
        found["collectors"] = {
            one["name"]: {"runs": one.get("runs", 0), "seconds": one.get("seconds", 0), "error": one.get("error", "")}
            for one in status["collectors"]
        }
    with ranks(), agent_service() as service:
        command = [sys.executable, "-m", "tests.bench.naive_agent", service.url]
        found["naive"] = measured(command, service, environment, smallest=smallest)
    return found


def broken_claims(agent: dict[str, Any]) -> list[str]:
    """Return which part of the budget this run exceeds."""
    return [
        f"{name}: {agent[name]}, {most:g} claimed"
        for name, most in (
            ("cpu_percent_of_a_core", CPU_PERCENT_MOST),
            ("peak_rss_mb", RSS_MB_MOST),
            ("kb_a_minute_a_gpu", KB_A_MINUTE_A_GPU_MOST),
        )
        if agent[name] >= most
    ]


def line(name: str, side: dict[str, Any]) -> str:
    """Render one side."""
    return (
        f"{name:<7} {side['cpu_percent_of_a_core']:6.2f} % of a core  {side['peak_rss_mb']:6.1f} MB resident"
        f" ({side['peak_pss_mb']:.1f} MB proportional, {side['processes']} processes)"
        f"  {side['kb_a_minute_a_gpu']:7.2f} kB a minute a GPU  {side['requests_a_minute']:6.1f} requests a minute"
    )


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write the document; 1 if the budget is exceeded in a full run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smallest", action="store_true", help="half a minute a side, written to out/")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        found = sides(Path(scratch), smallest=options.smallest)
    for name in ("agent", "naive"):
        print(line(name, found[name]), flush=True)
    target = REPOSITORY / ("out" if options.smallest else "docs/measured") / "agent.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    document = {**provenance("make bench" + " BENCH=smallest" * options.smallest), "ranks": RANKS, **found}
    target.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"written to {target.relative_to(REPOSITORY)}")
    # Half a minute holds the start of everything: no share of a core can be distinguished from it.
    broken = [] if options.smallest else broken_claims(found["agent"])
    for claim in broken:
        print(f"claim broken: {claim}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
