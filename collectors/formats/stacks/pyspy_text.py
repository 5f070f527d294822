"""py-spy's ``dump`` as text: ``Process 12: python train.py``, then threads and frames, innermost first.

Lines of ``--locals`` (indented deeper than frames) are passed over. ``--subprocesses`` prints one such block a process,
with ``Parent Process``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from collectors.formats import Input, reader
from collectors.formats.stacks.stack_building import StackBuilder, ThreadBuilder, dumps, frame
from collectors.formats.text_lines import lines
from collectors.records import Record, StackDump

_PROCESS = re.compile(r"Process (\d+): ?(.*)")
_PARENT = re.compile(r"Parent Process (\d+):", re.IGNORECASE)
_THREAD = re.compile(r'Thread (0x[0-9a-fA-F]+|\d+) \(([a-z+]+)\)(?:: "(.*)")?\s*$')
_FRAME = re.compile(r"    (\S.*?) \(([^()]*?)(?::(\d+))?\)$")
LABEL = re.compile(r"\W{0,8}(?:global[ _-]?)?rank[ _:#=-]{0,3}(\d{1,7})\W{0,8}$", re.IGNORECASE)
MOST_ALIKE = 4096  # heads above one stack
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
    by_line=True,
)
def read(input: Input) -> Iterator[Record]:
    """Yield one stack dump per process."""
    yield from dumps(PySpyReader(input), lines(input.stream))


class PySpyReader:
    """Takes lines. Without ``Process N:`` a process begins where a main thread comes again; a label gives its rank."""

    WORDS = ("Process ", "Thread ")

    def __init__(self, input: Input, rank: int | None = None) -> None:
        self.finished: list[StackDump] = []
        self._input = input
        self._rank = rank
        self._builder: StackBuilder | None = None
        self._thread: ThreadBuilder | None = None
        self._named = False  # the process has its "Process N:" line
        self._label: int | None = None  # "Rank 3:", on a line of its own before the dump
        # Heads without frames: a person puts those of equal stacks above one of them.
        self._alike: list[StackBuilder] = []

    @property
    def busy(self) -> bool:
        """True inside a thread's frames."""
        return self._thread is not None

    def feed(self, number: int, text: str) -> bool:
        """Take one line; True if it belongs to a stack."""
        if self._thread is not None and (found := _FRAME.match(text)):
            self._thread.add(frame(found.group(1), found.group(2), int((found.group(3) or "0")[:9])))
            return True
        if found := _PROCESS.match(text):
            self._begin(number, int(found.group(1)[:18]), found.group(2))
            self._named = True
            return True
        if found := _THREAD.match(text):
            thread = _thread(*found.groups())
            again = thread.name == "MainThread" and any(t.name == "MainThread" for t in self._threads())
            if self._builder is None or (again and not self._named):
                self._set_aside()
                self._begin(number, None, "")
            if self._builder is not None:
                self._thread = self._builder.begin(thread)
            return True
        if (found := _PARENT.match(text)) and self._builder is not None:
            self._builder.parent_pid = int(found.group(1)[:18])
            return True
        if found := LABEL.match(text):
            self._label = int(found.group(1))
        if text.strip() and not text.startswith("    "):  # a variable of --locals is indented deeper than frames
            self._thread = None
        return False

    def end(self) -> None:
        """Finish the process that is open."""
        if self._builder is not None and (self._builder.threads or self._named):
            self._share(self._builder.threads)
            self.finished.append(self._builder.build())
        self._builder = self._thread = None

    def _share(self, threads: list[ThreadBuilder]) -> None:
        """Finish the processes whose heads stand above these threads, with their frames."""
        frames = threads[0].frames if threads else []
        for one in self._alike:
            one.threads[0].frames = list(frames)
            self.finished.append(one.build())
        self._alike = []

    def _set_aside(self) -> None:
        """Keep a process of which there is no more than the head of its main thread for the frames that come."""
        bare = not any(one.frames for one in self._threads())
        if self._builder is not None and self._thread is not None and bare and len(self._alike) < MOST_ALIKE:
            self._alike.append(self._builder)
            self._builder = None

    def _threads(self) -> list[ThreadBuilder]:
        return self._builder.threads if self._builder is not None else []

    def _begin(self, number: int, pid: int | None, command: str) -> None:
        self.end()
        label, self._label = self._label, None
        rank = self._rank if self._rank is not None else label
        self._builder = _begin(self._input, number, pid, command, rank)
        self._named = False


def _begin(input: Input, number: int, pid: int | None, command: str, rank: int | None) -> StackBuilder:
    source, whose = f"{input.source}:{number}", input.rank if rank is None else rank
    return StackBuilder("py-spy", source, at=input.at, node=input.node, rank=whose, pid=pid, command=command)


def _thread(identity: str, state: str, name: str | None) -> ThreadBuilder:
    # A hexadecimal identity is pthread's, not the kernel's.
    os_thread_id = None if identity.startswith("0x") else int(identity[:18])
    # An idle thread that holds the lock is printed as idle too, so `idle` does not show who holds the lock.
    owns_gil = "gil" in state if "active" in state else None
    return ThreadBuilder(name, os_thread_id, active="active" in state, owns_gil=owns_gil)
