"""A message between the agent and a process of its own: MessagePack behind its length."""

from __future__ import annotations

import struct
from typing import Any

import msgspec

LENGTH = struct.Struct("<I")
ANSWER_BYTES = 32 << 20


def framed(message: Any) -> bytes:
    """Return a message with its length before it."""
    body = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(body)) + body
