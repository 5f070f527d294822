"""Where tests keep their files: in memory where there is room, because a disk makes every commit of a database wait."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

MEMORY = Path("/dev/shm")
ROOM_BYTES = 4 << 30  # a whole run takes less than one; what a container gives by default is not enough


def in_memory() -> str | None:
    """Return the folder of a file system in memory with room for a run's files, None where there is none."""
    if not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < ROOM_BYTES:
        return None
    return str(MEMORY)
