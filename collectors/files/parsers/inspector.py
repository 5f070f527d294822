"""NCCL Inspector's log lines."""

from __future__ import annotations

from typing import Any

import msgspec

from collectors.formats.nccl.inspector_jsonl import Marker, gather, thinned
from collectors.records import block


def parse(data: bytes, most: int, marker: Any = None) -> tuple[bytes, list[tuple[str, str]], Any]:
    """Return a block of the operations, about ``most`` of them, what was not read and why, and the newest marker.

    ``marker``: what the lines before these gave; None: there are none, or they were left out.
    """
    gathered = gather(data.split(b"\n"), None if marker is None else msgspec.convert(marker, Marker))
    every = thinned(gathered.communicators, most)
    operations = block.encode(found for each in gathered.communicators for found in each.records(every))
    return operations, list(gathered.reasons()), msgspec.to_builtins(gathered.marker)
