"""A flight-recorder dump: JSON, or a pickle of which nothing but plain values is taken."""

from __future__ import annotations

import io

import msgspec

from collectors.files.reading import read_input
from collectors.formats import Input
from collectors.formats.flight_recorder import flight_recorder_json
from collectors.records import FlightRecorderDump, Unread, block


def parse(data: bytes, source: str, rank: int, at: float) -> bytes:
    """Return a block with the dump of a rank at an instant, and with what of it could not be read."""
    input = Input(source, io.BytesIO(data), data[: 1 << 16], rank=rank)
    found = flight_recorder_json.read(input) if data[:1] in {b"{", b""} else read_input(input)
    kept = [record for record in found if isinstance(record, FlightRecorderDump | Unread)]
    return block.encode(msgspec.structs.replace(record, at=at) for record in kept)
