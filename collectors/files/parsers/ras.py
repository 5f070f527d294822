"""The answer of NCCL RAS: JSON or text, communicators and lost processes."""

from __future__ import annotations

import io

import msgspec

from collectors.formats import Input
from collectors.formats.nccl import ras_json, ras_text
from collectors.records import RasCommunicator, RasPeerDead, Unread, block


def parse(data: bytes, source: str, at: float) -> bytes:
    """Return a block of what RAS reported at an instant."""
    format = ras_json if data.lstrip()[:1] in {b"{", b"["} else ras_text
    head = data[: 1 << 16]
    # RAS's own stamp is local time without a zone; it was made while the agent waited.
    found = [
        msgspec.structs.replace(one, at=at) if isinstance(one, RasCommunicator | RasPeerDead) else one
        for one in format.read(Input(source, io.BytesIO(data), head, at=at))
        if isinstance(one, RasCommunicator | RasPeerDead | Unread)
    ]
    if not found and not format.sniff(head, source):
        reason = f"{len(data):,} bytes without a report of NCCL RAS: ask `ncclras -v` on this node what listens there"
        found = [Unread(source=source, reason=reason, outcome="damaged", offset=0)]
    return block.encode(found)
