"""A message between the agent and a process of its own, MessagePack behind its length, and that process's memory."""

from __future__ import annotations

import contextlib
import resource
import struct
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

LENGTH = struct.Struct("<I")
ANSWER_BYTES = 32 << 20


def framed(message: Any) -> bytes:
    """Return a message with its length before it."""
    body = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(body)) + body


def read_framed(pipe: BinaryIO) -> bytes | None:
    """Return the next message's body; None where the pipe is at its end."""
    header = pipe.read(LENGTH.size)
    return pipe.read(LENGTH.unpack(header)[0]) if len(header) == LENGTH.size else None


def limit_memory(more_bytes: int) -> None:
    """Let this process's address space grow by so much from where it is, where the system supports it."""
    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        soft = _memory_bytes(0) + more_bytes
        resource.setrlimit(resource.RLIMIT_AS, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def resident_bytes() -> int:
    """Return how much memory this process holds."""
    return _memory_bytes(1)


def _memory_bytes(column: int) -> int:
    pages = int(Path("/proc/self/statm").read_bytes().split()[column])  # proc(5): size, resident, …
    return pages * resource.getpagesize()
