"""The command line in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from collectors.records import KernelEvent, Unread
from tests.support.sample_verdicts import BEGAN_AT

REPOSITORY = Path(__file__).resolve().parents[2]
AN_EVENT = KernelEvent(
    source="kern.log:3", at=BEGAN_AT, node="gpu-7", event="xid", code=79, pci="0000:9b:00", text="Xid 79"
)
NOT_READ = Unread(source="core", reason="no reader knows it")


def faulthound(*arguments: str, before: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a fresh interpreter."""
    program = f"{before}\nfrom service.cli import main\nmain()"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=REPOSITORY, capture_output=True, text=True, check=False, env={**os.environ, **environment},
    )  # fmt: skip
