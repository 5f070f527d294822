"""Runs of the jobs of ``probed_jobs``, with the probe beside them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from collectors.formats.probe_ring import Image, parse

REPOSITORY = Path(__file__).resolve().parents[2]


def start(tmp_path: Path, name: str, ranks: int = 1, **variables: str) -> list[subprocess.CompletedProcess[str]]:
    """Run a job of ``probed_jobs`` with the probe beside it, and return how its ranks ended."""
    for source in (
        REPOSITORY / "collectors" / "faulthound_probe.py",
        REPOSITORY / "tests" / "support" / "probed_jobs.py",
    ):
        shutil.copy(source, tmp_path)
    environment = {
        "PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
        "FAULTHOUND_PROBE_DIR": str(tmp_path), **variables,
    }  # fmt: skip
    (tmp_path / "rendezvous").unlink(missing_ok=True)
    processes = [
        subprocess.Popen(
            [sys.executable, "probed_jobs.py", name, str(rank), str(ranks), str(tmp_path)],
            cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    try:
        said = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    return [
        subprocess.CompletedProcess(process.args, process.returncode, *texts)
        for process, texts in zip(processes, said, strict=True)
    ]


def image(tmp_path: Path, rank: int = 0) -> Image:
    """Return the ring that a rank copied for us."""
    return parse((tmp_path / f"ring{rank}").read_bytes())
