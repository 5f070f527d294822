"""What the agent keeps across its restarts, in one small file that is replaced as a whole."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import msgspec

from collectors.files import private


class Dropped(msgspec.Struct):
    """What the spool's bound has cost since the state folder was made."""

    batches: int = 0
    records: int = 0
    bytes: int = 0
    from_at: float | None = None  # UTC seconds: the span of what was dropped
    until_at: float | None = None

    def add(self, batches: int, records: int, bytes: int, from_at: float, until_at: float) -> None:
        """Count what is dropped now."""
        self.batches += batches
        self.records += records
        self.bytes += bytes
        self.from_at = from_at if self.from_at is None else min(self.from_at, from_at)
        self.until_at = until_at if self.until_at is None else max(self.until_at, until_at)


class State(msgspec.Struct):
    """The content of ``state.json``. It grows: unknown fields of a later version are ignored."""

    number: int = 0  # of the newest segment
    cursors: dict[str, Any] = {}
    dropped: Dropped = msgspec.field(default_factory=Dropped)
    refused_batches: int = 0
    rejected_records: int = 0  # of batches that the service accepted otherwise
    dropping: list[str] = []  # batches that are counted as dropped and may still be in the folder


def load(path: Path) -> tuple[State, str]:
    """Return the state, and why it is a new one; a damaged file is put aside."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=State), ""
    except FileNotFoundError:
        return State(), ""
    except (OSError, msgspec.DecodeError) as error:
        with contextlib.suppress(OSError):
            path.rename(path.with_suffix(".damaged"))
        return State(), f"{path} is not what was written ({error}): its counters and cursors start anew"


def replace(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a file so that its name holds the old content or the new, never a part; raise OSError on failure."""
    new = path.with_name(path.name + ".tmp")
    try:
        with open(new, "wb", opener=private.opened) as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        new.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
