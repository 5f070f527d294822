"""Faults on order, to try what notices them: a file ``rollout-2.dead`` in the folder RL_JOB_FAULTS has rollout 2 do that.

``raise`` and ``memory`` end a process; ``slow`` makes its work take three times as long; ``dead``, ``hung`` and ``stalled`` block
an engine, a tool and the sender of weights for as long as the file is there, while the process lives and its heartbeats go on.
``tail`` blocks one call of a tool, and is no fault.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = os.environ.get("RL_JOB_FAULTS")
NAME = f"{os.environ.get('FAULTHOUND_ROLE', '')}-{os.environ.get('RANK', '')}"
SLOW = 3.0
ROOM_BYTES = 64 << 20

_ONE = threading.Lock()


def ordered(what: str) -> bool:
    """Return whether this process is to do that."""
    return FOLDER is not None and (Path(FOLDER) / f"{NAME}.{what}").exists()


def end() -> None:
    """Fail where that is ordered: by an exception, or for want of memory."""
    if ordered("raise"):
        raise ValueError("sample 812 has 17 tokens, more than the table's 16")
    if ordered("memory"):
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ROOM_BYTES, used + ROOM_BYTES))
        held = []
        while True:
            held.append(bytearray(4 << 20))


def block(what: str) -> None:
    """Stay here as long as that is ordered."""
    while ordered(what):
        time.sleep(0.2)


def block_one(what: str) -> None:
    """Keep one caller here as long as that is ordered, and let the others pass: the long tail of a tool."""
    if ordered(what) and _ONE.acquire(blocking=False):
        try:
            block(what)
        finally:
            _ONE.release()


@contextmanager
def work() -> Iterator[None]:
    """Take three times as long where that is ordered."""
    began_at = time.monotonic()
    yield
    if ordered("slow"):
        time.sleep((SLOW - 1.0) * (time.monotonic() - began_at))
