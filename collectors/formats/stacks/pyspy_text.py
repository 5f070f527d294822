"""py-spy's ``dump`` as text: ``Process 12: python train.py``, then threads and frames, innermost first.

Lines of ``--locals`` (indented deeper than frames) are passed over. ``--subprocesses`` prints one such block a process,
with ``Parent Process``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from collectors.formats import Input, reader
from collectors.formats.stacks.stack_building import StackBuilder, ThreadBuilder, frame
from collectors.formats.text_lines import lines
from collectors.records import Record

_PROCESS = re.compile(r"Process (\d+): ?(.*)")
_PARENT = re.compile(r"Parent Process (\d+):", re.IGNORECASE)
_THREAD = re.compile(r'Thread (0x[0-9a-fA-F]+|\d+) \(([a-z+]+)\)(?:: "(.*)")?\s*$')
_FRAME = re.compile(r"    (\S.*?) \(([^()]*?)(?::(\d+))?\)$")
_HEAD = re.compile(rb"(?m)^(?:Process \d+: |Thread (?:0x[0-9a-fA-F]+|\d+) \((?:idle|active|active\+gil|idle\+gil)\))")
_VERSION = re.compile(rb"(?m)^Python v\d+\.\d+")


def _sniff(head: bytes, _source: str) -> int:
    found = _HEAD.search(head)
    if not found:
        return 0
    if not re.search(rb"(?m)^Thread (?:0x[0-9a-fA-F]+|\d+) \([a-z+]+\)", head):
        return 0
    return 92 if _VERSION.search(head) or found.start() < 200 else 50


@reader(
    "pyspy_text",
    made_by="py-spy dump --nonblocking --pid PID",
    gives="where each Python thread of a process is",
    sniff=_sniff,
)
def read(input: Input) -> Iterator[Record]:
    """Yield one stack dump per process."""
    builder: StackBuilder | None = None
    thread: ThreadBuilder | None = None
    for number, text in lines(input.stream):
        if found := _PROCESS.match(text):
            if builder is not None:
                yield builder.build()
            builder, thread = _begin(input, number, int(found.group(1)), found.group(2)), None
        elif found := _THREAD.match(text):
            builder = builder or _begin(input, number, None, "")
            thread = builder.begin(_thread(*found.groups()))
        elif (found := _PARENT.match(text)) and builder is not None:
            builder.parent_pid = int(found.group(1))
        elif thread is not None and (found := _FRAME.match(text)):
            thread.add(frame(found.group(1), found.group(2), int((found.group(3) or "0")[:9])))
    if builder is not None:
        yield builder.build()


def _begin(input: Input, number: int, pid: int | None, command: str) -> StackBuilder:
    source = f"{input.source}:{number}"
    return StackBuilder("py-spy", source, at=input.at, node=input.node, rank=input.rank, pid=pid, command=command)


def _thread(identity: str, state: str, name: str | None) -> ThreadBuilder:
    # A hexadecimal identity is pthread's, not the kernel's.
    os_thread_id = None if identity.startswith("0x") else int(identity[:18])
    # An idle thread that holds the lock is printed as idle too, so `idle` does not show who holds the lock.
    owns_gil = "gil" in state if "active" in state else None
    return ThreadBuilder(name, os_thread_id, active="active" in state, owns_gil=owns_gil)
