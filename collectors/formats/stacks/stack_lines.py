"""Stacks among other lines: py-spy's text, gdb's and faulthandler's, one line at a time.

Each of the three is a ``StackReader``. ``StackLines`` keeps one of each for every stream of lines, so that stacks that several
processes print into one log at the same time stay apart.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from collectors.formats import Input
from collectors.formats.stacks.faulthandler_text import FaulthandlerReader
from collectors.formats.stacks.gdb_text import GdbReader
from collectors.formats.stacks.pyspy_text import PySpyReader
from collectors.formats.stacks.stack_building import StackReader
from collectors.records import StackDump

MAX_STREAMS = 4096
WORDS = (*PySpyReader.WORDS, *GdbReader.WORDS, *FaulthandlerReader.WORDS)
"""A line with none of these begins no stack."""


_READERS: tuple[Callable[[Input, int | None], StackReader], ...] = (PySpyReader, FaulthandlerReader, GdbReader)


class StackLines:
    """The stacks in one file, of every process that printed into it."""

    def __init__(self, input: Input) -> None:
        self._input = input
        self._streams: OrderedDict[str, tuple[StackReader, ...]] = OrderedDict()
        self._open: set[str] = set()

    @property
    def busy(self) -> bool:
        """True while any stream is inside a stack."""
        return bool(self._open)

    def is_open(self, stream: str) -> bool:
        """Return whether this stream is inside a stack."""
        return stream in self._open

    def feed(self, number: int, stream: str, text: str, rank: int | None) -> bool:
        """Take one line of a stream; True if it belongs to a stack."""
        readers = self._streams.get(stream)
        if readers is None:
            if len(self._streams) >= MAX_STREAMS:
                return False
            readers = self._streams[stream] = tuple(make(self._input, rank) for make in _READERS)
        taken = any(reader.feed(number, text) for reader in readers)
        (self._open.add if any(reader.busy for reader in readers) else self._open.discard)(stream)
        return taken

    def finished(self) -> Iterator[StackDump]:
        """Yield what is whole, once."""
        for readers in self._streams.values() if self._streams else ():
            for reader in readers:
                yield from reader.finished
                reader.finished.clear()

    def end(self) -> Iterator[StackDump]:
        """Yield all that is left: the file ended."""
        for readers in self._streams.values():
            for reader in readers:
                reader.end()
        yield from self.finished()
