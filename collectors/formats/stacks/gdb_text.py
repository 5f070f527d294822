"""gdb's ``thread apply all bt``: ``Thread 3 (Thread 0x7f… (LWP 12) "python3"):`` and numbered frames, innermost first.

Frames of the interpreter that name a Python function (python-gdb, py-bt) become that function, so that the stacks of
every tool read alike. A new process begins at ``Attaching to``, ``Inferior``, or where the thread numbers start again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from collectors.formats import Input, reader
from collectors.formats.stacks.stack_building import StackBuilder, ThreadBuilder, frame
from collectors.formats.text_lines import lines
from collectors.records import Frame, Record

_THREAD = re.compile(r'Thread (?:\d+\.)?(\d+) \((?:Thread 0x[0-9a-fA-F]+ )?\(?(?:LWP|process) (\d+)\)?(?: "(.*)")?\):')
_BOUNDARY = re.compile(
    r"(?:Attaching to (?:process|program:.*process) (\d+)|\[Inferior \d+ \(process (\d+)\) detached\])"
)
_FRAME = re.compile(r"#\d+ +(?:0x[0-9a-fA-F]+ in )?(<signal handler called>|.+?)(?: \(.*| *$)")
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
)
def read(input: Input) -> Iterator[Record]:
    """Yield one stack dump per process."""
    builder = _begin(input, 1)
    thread: ThreadBuilder | None = None
    numbers: list[int] = []
    for line_number, text in lines(input.stream):
        if found := _THREAD.match(text):
            index = int(found.group(1)[:9])
            if _starts_again(numbers, index):
                yield builder.build()
                builder, numbers = _begin(input, line_number), []
            numbers = [*numbers[-1:], index]
            thread = builder.begin(_thread(index, found.group(2), found.group(3)))
            if index == 1 and builder.pid is None:
                builder.pid = thread.os_thread_id
        elif found := _BOUNDARY.match(text):
            attached, detached = found.groups()
            if detached and builder.threads:
                builder.pid = int(detached[:9])
            if builder.threads:
                yield builder.build()
                builder, thread, numbers = _begin(input, line_number), None, []
            if attached:
                builder.pid = int(attached[:9])
        elif thread is not None and (made := _frame(text)):
            thread.add(made)
    if builder.threads:
        yield builder.build()


def _begin(input: Input, number: int) -> StackBuilder:
    return StackBuilder("gdb", f"{input.source}:{number}", at=input.at, node=input.node, rank=input.rank)


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
