"""Simulated dumps as the files that jobs leave."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from collectors.records import FlightRecorderDump
from simulation.files import NAMES, Format, encode


def write_files(
    dumps: Iterable[FlightRecorderDump], folder: Path, format: Format = "pickle", name: str = NAMES[0]
) -> list[Path]:
    """Write each dump into the folder; a file's modification time is the instant of its dump."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for dump in dumps:
        assert dump.rank is not None
        path = folder / name.format(rank=dump.rank, host=f"node-{dump.rank // 8:04d}")
        path.write_bytes(encode(dump, format))
        if dump.at is not None:
            os.utime(path, (dump.at, dump.at))
        paths.append(path)
    return paths
