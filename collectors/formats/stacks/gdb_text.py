"""gdb's ``thread apply all bt``: ``Thread 3 (Thread 0x7f… (LWP 12) "python3"):`` and numbered frames, innermost first.

Frames of the interpreter that name a Python function (python-gdb, py-bt) become that function, so that the stacks of
every tool read alike. A new process begins at ``Attaching to``, ``Inferior``, or where the thread numbers start again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from collectors.formats import Input, reader
from collectors.formats.stacks.stack_building import StackBuilder, ThreadBuilder, dumps, frame
from collectors.formats.text_lines import lines
from collectors.records import Frame, Record, StackDump

_THREAD = re.compile(r'Thread (?:\d+\.)?(\d+) \((?:Thread 0x[0-9a-fA-F]+ )?\(?(?:LWP|process) (\d+)\)?(?: "(.*)")?\):')
_BOUNDARY = re.compile(
    r"(?:Attaching to (?:process|program:.*process) (\d+)|\[Inferior \d+ \(process (\d+)\) detached\])"
)
_FRAME = re.compile(r"#\d+ +(?:0x[0-9a-fA-F]+ in )?(<signal handler called>|.+?)(?: \(.*| *$)")
_BARE = re.compile(r"(?:\(gdb\) )?#0 +(?:0x[0-9a-fA-F]+ in )?[\w:~<>.@]{1,500} ?\(")
_PLACE = re.compile(r" at (\S+?):(\d+)\s*$")
_LIBRARY = re.compile(r" from (\S+)\s*$")
_PYTHON = re.compile(r"for file (\S+), line (\d+), in ([\w.<>]+)")
_PY_BT = re.compile(r'  File "(.*)", line (\d+), in (.+)$')
_SNIFF = re.compile(rb"(?m)^Thread (?:\d+\.)?\d+ \((?:Thread 0x[0-9a-fA-F]+ )?\(?(?:LWP|process) \d+")


def _sniff(head: bytes, _source: str) -> int:
    if not _SNIFF.search(head):
        return 0
    return 93 if re.search(rb"(?m)^#0 ", head) else 60


@reader(
    "gdb_text",
    made_by="gdb -p PID -batch -ex 'thread apply all bt'",
    gives="where each thread of a process is, native frames included",
    sniff=_sniff,
    by_line=True,
)
def read(input: Input) -> Iterator[Record]:
    """Yield one stack dump per process."""
    yield from dumps(GdbReader(input), lines(input.stream))


class GdbReader:
    """Takes lines. ``bt`` alone prints no thread: its innermost frame, number 0, begins one."""

    WORDS = ("Thread ", "#0 ", "Attaching to", "[Inferior ")

    def __init__(self, input: Input, rank: int | None = None) -> None:
        self.finished: list[StackDump] = []
        self._input = input
        self._rank = rank
        self._builder = self._begin(1)
        self._thread: ThreadBuilder | None = None
        self._numbers: list[int] = []

    @property
    def busy(self) -> bool:
        """True inside a thread's frames."""
        return self._thread is not None

    def feed(self, number: int, text: str) -> bool:
        """Take one line; True if it belongs to a stack."""
        if found := _THREAD.match(text):
            self._take_thread(number, int(found.group(1)[:9]), found.group(2), found.group(3))
            return True
        if found := _BOUNDARY.match(text):
            self._take_boundary(number, *found.groups())
            return True
        made = _frame(text.removeprefix("(gdb) "))
        if made is None:
            if text.strip() and not text.startswith((" ", "\t")):
                self._thread = None
            return False
        if _BARE.match(text) and (self._thread is None or self._thread.frames):
            self.end(number)  # a backtrace of its own
            self._thread = self._builder.begin(ThreadBuilder(None, self._builder.pid, main=True))
        if self._thread is None:
            return False
        self._thread.add(made)
        return True

    def end(self, number: int = 1) -> None:
        """Finish the process that is open."""
        pid = self._builder.pid
        if self._builder.threads:
            self.finished.append(self._builder.build())
            pid = None
        self._builder = self._begin(number)
        self._builder.pid = pid
        self._thread, self._numbers = None, []

    def _take_thread(self, number: int, index: int, lwp: str, name: str | None) -> None:
        if _starts_again(self._numbers, index):
            self.end(number)
        self._numbers = [*self._numbers[-1:], index]
        self._thread = self._builder.begin(_thread(index, lwp, name))
        if index == 1 and self._builder.pid is None:
            self._builder.pid = self._thread.os_thread_id

    def _take_boundary(self, number: int, attached: str | None, detached: str | None) -> None:
        if detached and self._builder.threads:
            self._builder.pid = int(detached[:9])
        self.end(number)
        if attached:
            self._builder.pid = int(attached[:9])

    def _begin(self, number: int) -> StackBuilder:
        whose = self._input.rank if self._rank is None else self._rank
        source = f"{self._input.source}:{number}"
        return StackBuilder("gdb", source, at=self._input.at, node=self._input.node, rank=whose)


def _thread(index: int, lwp: str, name: str | None) -> ThreadBuilder:
    # gdb numbers the thread it attached to first: the main one.
    return ThreadBuilder(name, int(lwp[:9]), main=index == 1)


def _starts_again(numbers: list[int], index: int) -> bool:
    """Whether this thread number cannot belong to the same listing: gdb counts down, or up with ``-ascending``."""
    if not numbers:
        return False
    if len(numbers) == 1:
        return index not in {numbers[0] - 1, numbers[0] + 1} and index >= numbers[0]
    falling = numbers[1] < numbers[0]
    return index >= numbers[1] if falling else index <= numbers[1]


def _frame(text: str) -> Frame | None:
    """Read one frame line, or return None."""
    if found := _PY_BT.match(text):
        return frame(found.group(3), found.group(1), int(found.group(2)[:9]))
    if not text.startswith("#"):
        return None
    if found := _PYTHON.search(text):
        return frame(found.group(3), found.group(1), int(found.group(2)[:9]))
    found = _FRAME.match(text)
    if not found:
        return None
    function = found.group(1).strip()
    if place := _PLACE.search(text):
        return frame(function, place.group(1), int(place.group(2)[:9]))
    library = _LIBRARY.search(text)
    return frame(function, library.group(1) if library else "")
