"""Runs of the jobs of ``probed_jobs``, with the probe beside them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from collectors.formats.probe_ring import Image, parse
from tests.support.forked_ranks import forks

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
    started: list[dict[str, Any]] = [
        {
            "arguments": ["probed_jobs.py", name, str(rank), str(ranks), str(tmp_path)],
            "folder": str(tmp_path), "environment": environment,
            "output": str(tmp_path / f"{rank}.out"), "errors": str(tmp_path / f"{rank}.err"),
        }
        for rank in range(ranks)
    ]  # fmt: skip
    return [
        subprocess.CompletedProcess(
            one["arguments"], status, Path(one["output"]).read_text(), Path(one["errors"]).read_text()
        )
        for one, status in zip(started, forks().run(started), strict=True)
    ]


def image(tmp_path: Path, rank: int = 0) -> Image:
    """Return the ring that a rank copied for us."""
    return parse((tmp_path / f"ring{rank}").read_bytes())
