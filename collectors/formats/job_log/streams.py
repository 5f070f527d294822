"""The processes that print into one log: of each, the traceback, the launcher's summary or the quotation that goes on.

A line of a stream is offered to blocks of known shapes, to the launcher's shapes (``launchers``), to the traceback that the
stream may be printing (``tracebacks``), and to the marks of trouble (``log_marks``).
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from collectors.formats.job_log import families, log_marks
from collectors.formats.job_log.job_lines import STAMPED, Line
from collectors.formats.job_log.launchers import Launcher
from collectors.formats.job_log.shapes import Blocks, without_endless_numbers
from collectors.formats.job_log.traceback_events import event_of, is_cut_of, names_service, quoted_in
from collectors.formats.job_log.tracebacks import HEADER, Assembler, goes_on_in_message, last_line
from collectors.formats.quotations import Quotes
from collectors.records import LogEvent

MAX_TAIL = 8  # lines of a message, counted from the exception's own
MAX_STREAMS = 20_000  # of one file: tracebacks that are being printed at the same time
Add = Callable[[str, Iterable[LogEvent]], None]


@dataclass(slots=True)
class _Stream:
    """One process's lines: the traceback it may be printing, its launcher's summary, the rank it turned out to have."""

    assembler: Assembler = field(default_factory=Assembler)
    launcher: Launcher = field(default_factory=Launcher)
    blocks: Blocks = field(default_factory=lambda: Blocks(families.BLOCKS))
    head: Line | None = None  # where the current traceback began
    spawned: int | None = None  # "-- Process 3 terminated": the next traceback is that process's
    quotes: Quotes = field(default_factory=Quotes)
    tail: int = 0  # so many more lines may be of the message of an exception that stands alone
    quoted: bool = False  # the traceback that is being printed is a text that was read or written

    @property
    def is_open(self) -> bool:
        return self.assembler.busy or self.launcher.busy or self.blocks.busy or self.tail > 0


class Streams:
    """The streams of one log, bounded. ``add`` takes a stream's name and its events."""

    def __init__(self, add: Add) -> None:
        self._add = add
        self._streams: OrderedDict[str, _Stream] = OrderedDict()
        self.open: set[str] = set()  # inside a traceback or a launcher's summary: each of their lines counts
        self.last_line: Line | None = None  # the newest that may be the end of a cut traceback
        self.last_message: list[str] = []  # the lines of its message below it
        self._stamped: str | None = None  # the stream of a traceback whose first line alone has a logger's stamp
        self.quotes_texts = False  # texts of a model were seen: a step ends one

    def continued(self, line: Line) -> Line:
        """Give a line without a prefix to the traceback that is being printed after a logger's stamp.

        Where the second line has the prefix too, the others without it are another process's.
        """
        if line.stream or self._stamped is None:
            if line.stream == self._stamped:
                self._stamped = None
            return line
        if self._stamped not in self.open:
            self._stamped = None
            return line
        return replace(line, stream=self._stamped)

    def end_quotation(self, name: str) -> None:
        """A step was reported: what the stream quoted ends."""
        if self.quotes_texts and (stream := self._streams.get(name)) is not None:
            stream.quotes.end()

    def take(self, line: Line, words: tuple[str, ...]) -> None:
        """Read a line of a stream. ``words``: of trouble, some of which it holds."""
        stream = self._of(line.stream)
        self._read(without_endless_numbers(line), stream, words)
        if stream.is_open:
            self.open.add(line.stream)
        else:
            self.open.discard(line.stream)

    def close(self) -> None:
        """Take what is being printed as ended here."""
        for name, stream in list(self._streams.items()):
            self._close(name, stream)
        self.open.clear()

    @property
    def is_torchrun(self) -> bool:
        """Whether a line of torchrun's was among them."""
        return any(stream.launcher.is_torchrun for stream in self._streams.values())

    def _read(self, line: Line, stream: _Stream, words: tuple[str, ...]) -> None:
        known = [word for word in words if word in log_marks.TROUBLE_WORDS]  # a statement looks itself what it quotes
        if words and stream.quotes.take(line.number, line.text, known, stamped=line.at is not None):
            self._pass_over(line, stream)
            self.quotes_texts = True
            return
        if HEADER in line.text and line.stream.startswith(STAMPED):
            self._stamped = line.stream
        self._add(line.stream, stream.blocks.feed(line))
        of_launcher = stream.launcher.feed(line)
        if of_launcher is not None:
            if stream.assembler.busy and of_launcher:
                stream.assembler.close()
            self._finished(line.stream, stream)
            self._add(line.stream, of_launcher)
            return
        if found := re.match(r"-- Process (\d{1,6}) terminated with the following", line.text):
            stream.spawned = int(found[1])
        # Where the header was cut off, only a stamp before the line is of when it was written: a message may hold another.
        at = line.at if HEADER in line.text or (line.stamp and not stream.assembler.busy) else None
        if stream.assembler.feed(line.number, line.text, at):
            stream.head = stream.head or line
            self._finished(line.stream, stream)
            return
        self._finished(line.stream, stream)
        if last_line(line.text) and not is_cut_of(line, self.last_line) and not self._only_wraps(line):
            self.last_line, self.last_message, stream.tail = line, [], MAX_TAIL
        elif stream.tail:
            self._take_tail(line, stream)
        self._add(line.stream, log_marks.events_of(line))

    def _only_wraps(self, line: Line) -> bool:
        """Whether an exception closely follows one that names a service, which is the first cause then."""
        first = self.last_line
        near = first is not None and first.stream == line.stream and line.number - first.number <= MAX_TAIL
        return near and first is not None and names_service(first)

    def _take_tail(self, line: Line, stream: _Stream) -> None:
        """Take a line below an exception as a part of its message, up to a blank or a stamped one."""
        goes_on = self.last_line is not None and self.last_line.stream == line.stream and goes_on_in_message(line.text)
        stream.tail = stream.tail - 1 if goes_on and not line.is_stamped else 0
        if stream.tail:
            self.last_message.append(line.text)

    def _pass_over(self, line: Line, stream: _Stream) -> None:
        """Read a quotation: as a part of the traceback that is being printed, or as the first line of one that is no event."""
        begins = HEADER in line.text
        if begins or stream.assembler.busy:
            stream.assembler.feed(line.number, line.text, None)
            self._finished(line.stream, stream)
        stream.quoted = stream.quoted or begins

    def _of(self, name: str) -> _Stream:
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = _Stream()
            if len(self._streams) > MAX_STREAMS:
                oldest, dropped = self._streams.popitem(last=False)
                self.open.discard(oldest)
                self._close(oldest, dropped)
        return stream

    def _close(self, name: str, stream: _Stream) -> None:
        stream.assembler.close()
        self._finished(name, stream)
        self._add(name, stream.launcher.close())
        self._add(name, stream.blocks.close())

    def _finished(self, name: str, stream: _Stream) -> None:
        for traceback in stream.assembler.finished:
            if stream.head is not None and not stream.quoted:
                whole = event_of(traceback, stream.head, stream.spawned)
                self._add(name, [whole, *quoted_in(whole, stream.head)])
            stream.head, stream.quoted = None, False
        stream.assembler.finished.clear()
