"""What the controller of the example of reinforcement learning has written, and the end of one of its processes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any


def entries(folder: Path) -> list[dict[str, Any]]:
    """Return what the controller has accepted so far."""
    journal = folder / "journal.jsonl"
    return (
        [json.loads(line) for line in journal.read_text().splitlines() if line.endswith("}")]
        if journal.exists()
        else []
    )


def commits(folder: Path) -> list[dict[str, Any]]:
    """Return the steps that were committed so far."""
    return [entry for entry in entries(folder) if "commit" in entry]


def kill(folder: Path, script: str, environment: str) -> None:
    """Kill the process of a script that has this variable and belongs to this folder's job."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command, variables = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
            except OSError:
                continue
            if (
                f"/{script}".encode() in command
                and environment.encode() in variables
                and str(folder).encode() in variables
            ):
                os.kill(int(entry.name), signal.SIGKILL)
                return
    raise AssertionError(f"no {script} runs")
