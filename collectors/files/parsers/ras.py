"""The answer of NCCL RAS: JSON or text, communicators and lost processes."""

from __future__ import annotations

import io

import msgspec

from collectors.formats import Input
from collectors.formats.nccl import ras_json, ras_text
from collectors.records import RasCommunicator, RasPeerDead, Unread, block


def parse(data: bytes, source: str, at: float) -> bytes:
    """Return a block of what RAS reported at an instant."""
    read = ras_json.read if data.lstrip()[:1] in {b"{", b"["} else ras_text.read
    found = read(Input(source, io.BytesIO(data), data[: 1 << 16], at=at))
    # RAS's own stamp is local time without a zone; it was made while the agent waited.
    return block.encode(
        msgspec.structs.replace(one, at=at) if isinstance(one, RasCommunicator | RasPeerDead) else one
        for one in found
        if isinstance(one, RasCommunicator | RasPeerDead | Unread)
    )
