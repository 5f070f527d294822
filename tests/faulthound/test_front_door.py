"""What is started here is ours, whatever packages of our names lie in the current folder and on PYTHONPATH."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPTS = Path(sys.executable).parent
NOT_OURS = 66
HOSTILE = f"import os, sys\nprint('NOT OURS', __name__, file=sys.stderr, flush=True)\nos._exit({NOT_OURS})\n"
CONSOLE_SCRIPT, MODULE = [str(SCRIPTS / "faulthound")], [sys.executable, "-m", "faulthound"]


@pytest.fixture
def job_folder(tmp_path: Path) -> Path:
    """Return a job's folder with packages of its own that have our names."""
    for package in ("service", "collectors", "analyzers", "simulation"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(HOSTILE)
    return tmp_path


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a program that is started in a job's folder, which is on its PYTHONPATH too."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FAULTHOUND_")}
    return kept | {"PYTHONPATH": f"{folder}:{folder / 'elsewhere'}", "FAULTHOUND_DATA": str(folder / "data")}


def started(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a job's folder to its end."""
    return subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("command", [CONSOLE_SCRIPT, MODULE], ids=["console script", "module"])
def test_diagnosing_is_ours(job_folder: Path, command: list[str]) -> None:
    """`faulthound diagnose` in a job's folder diagnoses, by every way to start it."""
    done = started([*command, "diagnose", str(REPOSITORY / "examples/hung_job"), "--json", "--quiet"], job_folder)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["schema"].startswith("faulthound.verdict/")


def test_the_agent_is_ours_and_so_are_its_workers(job_folder: Path) -> None:
    """`faulthound-agent once` runs our collectors, also the one that has a process of its own."""
    done = started([str(SCRIPTS / "faulthound-agent"), "once", "--collectors", "gpu"], job_folder)

    assert "NOT OURS" not in done.stderr
    assert done.returncode == 0, done.stderr


@pytest.mark.system
def test_the_service_is_ours_and_so_is_its_engine(job_folder: Path) -> None:
    """`faulthound serve` answers, and its engine works."""
    with (job_folder / "log").open("w") as log:
        process = subprocess.Popen(
            [*CONSOLE_SCRIPT, "serve", "--port", "0"], cwd=job_folder, env=environment(job_folder),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip().rpartition(" ")[2]
        assert url.startswith("http"), (job_folder / "log").read_text()
        engine = "down"
        deadline = time.monotonic() + 120
        while engine != "working" and time.monotonic() < deadline:
            time.sleep(0.1)
            try:
                with urllib.request.urlopen(f"{url}/readyz", timeout=10) as answer:
                    engine = json.load(answer)["engine"]
            except OSError:
                assert process.poll() is None, (job_folder / "log").read_text()
        assert engine == "working", (job_folder / "log").read_text()
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert "NOT OURS" not in (job_folder / "log").read_text()


def test_a_child_process_is_ours(job_folder: Path) -> None:
    """A module that a program of ours starts as a process gets its arguments, and imports ours alone."""
    from faulthound import child_command

    done = started(child_command("collectors.agent", "--version"), job_folder)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("faulthound-agent ")
