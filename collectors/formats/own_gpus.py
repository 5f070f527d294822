"""The GPUs that a job's processes use, as NCCL reports them when a communicator is made (``NCCL_DEBUG=INFO``).

Form: ``HOST:PID:TID [0] NCCL INFO comm … rank 0 nranks 8 cudaDev 0 nvmlDev 0 busId 1b000 …``. The rank is that in the
communicator, which may be another than the world, so the node and the address are kept. ``busId`` is that without separators.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from collectors.records import Device

WORD = b" busId "
OF_JOB = {"shown_by": "job"}
MOST = 4096  # GPUs of one log
_USES = re.compile(
    r"(?:^|[\s:\]>|])(?P<node>[A-Za-z][\w.-]{0,100}):\d{1,8}:\d{1,8} \[\d{1,2}\] "
    r"NCCL INFO .{0,120}\bbusId (?P<bus>[0-9a-f]{4,9})\b"
)


class OwnGpus:
    """What one log shows."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], None] = {}

    def take(self, texts: Iterable[str]) -> None:
        """Read lines with the word."""
        for text in texts:
            if len(self._seen) < MOST and (found := _USES.search(text)):
                digits = found["bus"].zfill(9)
                self._seen[found["node"], f"{digits[:4]}:{digits[4:6]}:{digits[6:8]}"] = None

    def records(self, source: str) -> Iterator[Device]:
        """Yield each GPU once."""
        for node, pci in self._seen:
            yield Device(type="gpu", id=pci, pci=pci, node=node, attributes=dict(OF_JOB), source=source)
