"""Flight Recorder pickles are read without running anything: only plain values can come out.

The restricted unpickler refuses every class and every persistent object. What a hostile pickle can still do, which is to
ask for memory and time, is bounded by the process that reads it (``collectors.files.reading``).
"""

from __future__ import annotations

import io
import pickle
import re
import struct
from collections.abc import Iterator
from typing import Any, NoReturn, cast

from collectors.formats import Input, reader
from collectors.formats.flight_recorder import document as flight_recorder
from collectors.records import FlightRecorderDump, Unread

PEEKED_BYTES = 1 << 17
SALVAGED_BYTES = 32 << 20  # the salvaging unpickler is some twenty times slower
_KEYS = (b"pg_config", b"pg_status", b"entries", b"nccl_version", b"comm_lib_version")
# Protocols 0 and 1 have no mark of their own; this is how one begins that imports something.
_IMPORTING = re.compile(rb"\A[(\]}]{0,4}c[A-Za-z_][\w.]*\n[A-Za-z_]\w*\n")
BROKEN = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    struct.error,
)


class PickleRefused(Exception):
    """The pickle asks for something that no dump holds; the message names it."""


def _refuse(what: str) -> NoReturn:
    raise PickleRefused(f"it asks to load {what[:200]}, which no Flight Recorder dump does: nothing of it was run")


class PlainUnpickler(pickle.Unpickler):
    """The standard unpickler without the power to name anything."""

    def find_class(self, module: str, name: str, /) -> NoReturn:
        """Refuse every class and function."""
        _refuse(f"{module}.{name}")

    def persistent_load(self, _identifier: object, /) -> NoReturn:
        """Refuse every object kept elsewhere."""
        _refuse("an object kept outside it")


class SalvagingUnpickler(pickle._Unpickler):  # type: ignore[name-defined, misc, unused-ignore]
    """The same in Python, whose half-built values can be had when the data ends too early."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse every class and function."""
        _refuse(f"{module}.{name}")

    def persistent_load(self, _identifier: object) -> NoReturn:
        """Refuse every object kept elsewhere."""
        _refuse("an object kept outside it")

    def get_extension(self, code: int) -> NoReturn:
        """Refuse every registered class."""
        _refuse(f"extension {code}")

    def harvest(self) -> dict[Any, Any] | None:
        """Return the outermost dictionary with what was complete inside it; None: there is none."""
        levels: list[list[Any]] = [*getattr(self, "metastack", []), getattr(self, "stack", [])]
        growing = bool(levels[-1]) and levels[-1][-1] in ({}, [])
        while len(levels) > 1:
            items = levels.pop()
            if growing and len(levels) > 1:  # what is deeper than pg_config or entries and still growing is not whole
                items = items[:-1]
            container = levels[-1][-1] if levels[-1] else None
            growing = isinstance(container, (dict, list))
            if isinstance(container, list):
                container.extend(items)
            elif isinstance(container, dict):
                container.update(
                    (key, value) for key, value in zip(items[::2], items[1::2], strict=False) if isinstance(key, str)
                )
        root = levels[0][0] if levels[0] else None
        return root if isinstance(root, dict) else None


def _sniff(head: bytes, _source: str) -> int:
    if head[:1] == b"\x80" and head[1:2] in (b"", b"\x02", b"\x03", b"\x04", b"\x05"):
        return 100 if any(key in head for key in _KEYS) else 60
    return 60 if _IMPORTING.match(head) else 0


@reader(
    "flight_recorder_pickle",
    made_by="PyTorch on a timeout (TORCH_FR_BUFFER_SIZE, TORCH_NCCL_DUMP_ON_TIMEOUT=1), or its dump pipe",
    gives="the last collectives of one rank: which group, which operation, how far it came",
    sniff=_sniff,
)
def read(input: Input) -> Iterator[FlightRecorderDump | Unread]:
    """Read one dump; of a damaged one, the entries before the damage."""
    data = flight_recorder.whole(input)
    if isinstance(data, Unread):
        yield data
        return
    try:
        # From a stream that cannot be peeked into, the unpickler fetches every opcode by a call: half the speed.
        document = PlainUnpickler(io.BufferedReader(cast("io.RawIOBase", io.BytesIO(data)), PEEKED_BYTES)).load()
    except PickleRefused as error:
        yield flight_recorder.unread(input, str(error), "refused")
    except BROKEN as error:
        yield from _salvage(data, input, str(error) or type(error).__name__)
    else:
        yield from flight_recorder.record(document, input)


def _salvage(data: bytes, input: Input, reason: str) -> Iterator[FlightRecorderDump | Unread]:
    stream = io.BytesIO(data[:SALVAGED_BYTES])
    unpickler = SalvagingUnpickler(stream)
    try:
        unpickler.load()
    except PickleRefused as error:
        yield flight_recorder.unread(input, str(error), "refused")
        return
    except BROKEN as error:
        reason = reason or str(error)
    document = unpickler.harvest()
    if document:
        yield from flight_recorder.record(document, input, truncated=True)
    kept = (
        f"{len(found):,} entries before it are used" if (found := _entries(document)) else "nothing before it is of use"
    )
    yield flight_recorder.unread(
        input,
        f"the pickle is damaged at byte {stream.tell():,} of {len(data):,} ({reason}); {kept}",
        "damaged",
        stream.tell(),
    )


def _entries(document: dict[Any, Any] | None) -> list[Any]:
    entries = (document or {}).get("entries")
    return entries if isinstance(entries, list) else []
