"""The first hour: `make serve` and `make agent`, as the Makefile has them, beside one's own unmodified torchrun job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.bounds import in_time
from tests.support.needs import needs_torch
from tests.support.sources import REPOSITORY

needs_torch("a job cannot be started")

SEEN_SECONDS = 30.0  # from the agent's start to the job in `jobs list`
PATIENCE_SECONDS = 240.0
JOB = "my-own-job"
SCRIPT = """
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
for step in range(10_000):
    time.sleep(0.2)
    total = torch.ones(1)
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        print(f"step {step} loss {1 / (step + 1):.4f}", flush=True)
"""


def recipe(target: str) -> list[str]:
    """Return the command of a target of the Makefile, with this interpreter instead of the environment that make makes."""
    printed = subprocess.run(
        ["make", "--dry-run", "--always-make", "--no-print-directory", target],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    program, *arguments = printed[-1].split()
    start = {
        "faulthound": "from faulthound import main; main()",
        "faulthound-agent": "from faulthound import agent; agent()",
    }
    return [sys.executable, "-c", start[Path(program).name], *arguments]


@contextmanager
def started(command: list[str], folder: Path, log: str, **variables: str) -> Iterator[Path]:
    """Run a command in a group of its own until the block ends; give its log."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FAULTHOUND_")}
    own = {"HOME": str(folder / "home"), "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    with (folder / log).open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=clean | own | variables, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        yield folder / log
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=30)


def faulthound(folder: Path, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a verb beside the service."""
    return subprocess.run(
        [sys.executable, "-c", "from faulthound import main; main()", *arguments, "--service", url], cwd=folder,
        env=os.environ | {"HOME": str(folder / "home"), "PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.timeout(600)
def test_ones_own_job_is_listed_soon(tmp_path: Path) -> None:
    """A job that knows nothing of Faulthound is in `jobs list` within half a minute of the agent's start, then with its steps."""
    (tmp_path / "train.py").write_text(SCRIPT)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    training = [*launcher, "--rdzv-endpoint", "127.0.0.1:0", "--rdzv-id", JOB, "train.py"]
    with (
        started([*recipe("serve"), "--port", "0"], tmp_path, "service.log") as service,
        started(training, tmp_path, "training.log") as trained,
    ):
        _await(lambda: "listens on" in service.read_text(), service)
        _await(lambda: "step 3 " in trained.read_text(), trained)
        url = service.read_text().partition("listens on ")[2].split()[0]
        agent = [word.replace("http://127.0.0.1:4747", url) for word in recipe("agent")]
        began_at = time.monotonic()
        with started(agent, tmp_path, "agent.log", FAULTHOUND_STATE=str(tmp_path / "state")) as log:
            _await(lambda: JOB in faulthound(tmp_path, url, "jobs", "list", "--quiet").stdout.split(), log)
            seen_seconds = time.monotonic() - began_at
            print(f"from the agent's start to the job in `jobs list`: {seen_seconds:.1f} s")
            _await(lambda: _steps(tmp_path, url) is not None, log)
            print(f"with its steps: {time.monotonic() - began_at:.1f} s")
            status = faulthound(tmp_path, url, "status")

    assert in_time(seen_seconds, SEEN_SECONDS)
    assert status.returncode == 0, status.stderr
    assert f"{JOB}: 2 ranks; step " in status.stdout


def _steps(folder: Path, url: str) -> object:
    done = faulthound(folder, url, "jobs", "show", JOB, "--json")
    return json.loads(done.stdout)["steps"] if done.returncode == 0 else None


def _await(holds: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-3000:]
        time.sleep(0.2)
