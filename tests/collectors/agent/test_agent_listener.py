"""A listener of the job's own user answers RAS with two megabytes of brackets: a real agent and a real service go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from collectors.records import Coverage, Samples
from tests.collectors.live.test_live_ras import Server
from tests.support.agent_service import AgentService, agent_service
from tests.support.bounds import in_time

pytestmark = pytest.mark.system

REPOSITORY = Path(__file__).resolve().parents[3]
LEAVING_SECONDS = 5.0  # docs/agent.md
EVERY_SECONDS = 0.5
ANSWERS = 4


@contextmanager
def agent(folder: Path, service: AgentService, ras: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run an agent beside a process that says it is rank 0."""
    config = folder / "agent.toml"
    each = f"every_seconds = {EVERY_SECONDS}"
    config.write_text(f'[collector.ras]\naddress = "{ras}"\n{each}\n[collector.host]\n{each}\n', encoding="ascii")
    flags = [
        "--config",
        str(config),
        "--service",
        service.url,
        "--state",
        str(folder / "state"),
        "--ship-seconds",
        "0.2",
    ]
    command = [sys.executable, "-m", "collectors.agent", "run", *flags, "--collectors", "ras,host,placement,process"]
    own = {name: value for name, value in os.environ.items() if not name.startswith("FAULTHOUND_")}
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    with subprocess.Popen(sleep, env=own | {"RANK": "0", "WORLD_SIZE": "2", "FAULTHOUND_JOB": folder.name}) as rank:
        try:
            with subprocess.Popen(command, cwd=REPOSITORY, env=own) as process:
                try:
                    yield process
                finally:
                    process.kill()
        finally:
            rank.kill()


def ticks(service: AgentService) -> list[float]:
    """Return when the host's load was read."""
    return sorted({at for one in service.records(Samples) if one.source == "host" for at in array("d", one.ticks)})


def test_two_megabytes_of_brackets_stop_nothing(tmp_path: Path) -> None:
    """RAS is asked again and again; no other collector waits for it, nor does SIGTERM."""
    with Server(json="{" * (2 << 20)).serving() as listener, agent_service() as service:
        with agent(tmp_path, service, listener.address) as process:
            assert service.wait(lambda: listener.heard.count("VERBOSE STATUS") >= ANSWERS)
            assert service.wait(lambda: bool(service.records(Samples)))
            below = psutil.Process(process.pid).children()
            began_at = time.monotonic()
            process.send_signal(signal.SIGTERM)
            code = process.wait(60)
            took_seconds = time.monotonic() - began_at
        seen = ticks(service)
        (*_, coverage) = service.records(Coverage)
        gone, alive = psutil.wait_procs(below, timeout=30)

    assert (code, in_time(took_seconds, LEAVING_SECONDS)) == (0, True)
    assert (len(gone), alive) == (len(below), [])
    assert len(seen) >= ANSWERS
    assert in_time(max(after - before for before, after in pairwise(seen)), 2 * EVERY_SECONDS)
    counts = {one.name: (one.failures, one.overran) for one in coverage.collectors}
    assert {counts[name] for name in ("host", "placement", "process")} == {(0, 0)}
