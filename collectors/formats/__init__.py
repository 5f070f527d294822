"""One public format a file: bytes in, records out. Formats are recognised by content, never by a flag.

A reader module registers itself with ``@reader``; nothing else is edited to add one. The modules below this folder are
imported one after the other, and only until a reader is certain that a content is its own: a dump costs no other reader.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import RLock
from typing import BinaryIO

from collectors.records import Damaged, Record

__all__ = ["Damaged", "Format", "Input", "Read", "Sniff", "reader", "recognise", "registry"]

Sniff = Callable[[bytes, str], int]
Read = Callable[["Input"], Iterator[Record]]


@dataclass(frozen=True, slots=True)
class Input:
    """One opened file: its bytes, and the owner that its name gives.

    ``stream`` is bounded by the opener and yields decompressed bytes. ``head`` is its first 64 KiB at most (the stream
    itself still starts at 0). ``at`` is the file's modification time, UTC seconds, None where it cannot be trusted.
    ``local_rank`` is that of torchrun's folder, where no other folder shows a second node.
    ``trailing_number`` is what the file's name ends in, as every Flight Recorder dump's does.
    ``number`` is that beside the role in its path: its rank, unless its lines name others.
    ``latest_at`` is the latest instant that its stamps without a year may be of, where other stamps show that.
    """

    source: str
    stream: BinaryIO
    head: bytes
    rank: int | None = None
    node: str | None = None
    at: float | None = None
    trailing_number: int | None = None
    local_rank: int | None = None
    number: int | None = None
    latest_at: float | None = None

    @property
    def dated_by(self) -> float | None:
        """Return the latest instant of stamps without a year: without other stamps, the file's time."""
        return self.at if self.latest_at is None else self.latest_at


@dataclass(frozen=True, slots=True)
class Format:
    """A registered reader: ``sniff(head, source) -> 0..100`` (0: not mine), ``read(input) -> records``."""

    name: str
    made_by: str  # the command that writes such a file, shown by `faulthound formats`
    gives: str  # what evidence, in one line
    sniff: Sniff
    read: Read = field(compare=False)
    by_line: bool = (
        False  # a text whose lines each stand for themselves: other kinds of evidence may stand between them
    )
    maps_bytes: int = 0  # address space that the library it is read by needs, beyond what a file may


_formats: dict[str, Format] = {}


def reader(
    name: str, *, made_by: str, gives: str, sniff: Sniff, by_line: bool = False, maps_bytes: int = 0
) -> Callable[[Read], Read]:
    """Register the decorated function as the reader of one format."""

    def register(read: Read) -> Read:
        if name in _formats:
            raise ValueError(f"two readers are named {name!r}: rename one")
        _formats[name] = Format(name, made_by, gives, sniff, read, by_line, maps_bytes)
        return read

    return register


_modules = pkgutil.walk_packages(__path__, f"{__name__}.")
_importing = RLock()  # a generator runs in one thread at a time


def _in_turn() -> Iterator[Format]:
    """Yield the readers that are registered, then import one module after the other and yield what it registers."""
    asked = 0
    while True:
        known = list(_formats.values())
        yield from known[asked:]
        asked = len(known)
        with _importing:
            module = next(_modules, None)
            if module is not None:
                importlib.import_module(module.name)
        if module is None and len(_formats) == asked:
            return


def registry() -> tuple[Format, ...]:
    """Return every reader, sorted by name."""
    return tuple(sorted(_in_turn(), key=lambda known: known.name))


def recognise(head: bytes, source: str, likely: Format | None = None) -> Format | None:
    """Return the reader that is surest this content is its own, or None; of equally sure ones the first by name.

    A reader that is certain (100) ends the question, and ``likely`` is asked first: a folder of 16,384 dumps is not tried
    on every other format.
    """
    if likely is not None and likely.sniff(head, source) >= 100:
        return likely
    best, most = None, 0
    for format in _in_turn():
        score = format.sniff(head, source)
        if score > most or (best is not None and score == most and format.name < best.name):
            best, most = format, score
        if most >= 100:
            break
    return best
