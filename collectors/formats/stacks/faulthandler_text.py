"""Python's faulthandler: ``Thread 0x… (most recent call first):`` and ``  File "x.py", line 3 in f``.

Threads come newest first, so the main thread is last. A dump carries no process id; a new one begins at its header
(``Fatal Python error:``, ``Timeout (0:00:10)!``) or where a thread comes again. Launchers' ``[rank3]:`` prefixes are
understood, interleaved or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from collectors.formats import Input, reader
from collectors.formats.stacks.stack_building import NAME_CHARACTERS, StackBuilder, ThreadBuilder, frame
from collectors.formats.text_lines import lines
from collectors.records import LogEvent, Record, StackDump

PREFIXES = 65_536
_PREFIX = re.compile(r"\[(?:rank|default)?(\d{1,7})\]: ?")
_HEADER = re.compile(r"Fatal Python error: |Timeout \(\d+:\d\d:\d\d(?:\.\d+)?\)!")
_FATAL = re.compile(r"Fatal Python error: (.*)")
_SIGNALS = (("Segmentation fault", 11), ("Bus error", 7), ("Aborted", 6), ("Floating point exception", 8))
_THREAD = re.compile(r"(Current thread|Thread) (0x[0-9a-fA-F]+)(?: \[(.*)\])? \(most recent call first\):")
_STACK = re.compile(r"Stack \(most recent call first\):")
_FRAME = re.compile(r' {1,4}File "(.*)", line (\d+|\?\?\?) in (.+)$')
_SNIFF = re.compile(
    rb"(?m)^(?:\[\w{1,20}\]: ?)?(?:(?:Current thread|Thread) 0x[0-9a-fA-F]{1,16}\b.{0,300}|Stack )\(most recent call first\):"
)


def _sniff(head: bytes, _source: str) -> int:
    found = _SNIFF.search(head)
    if not found:
        return 0
    before = head[: found.start()].decode("utf-8", "replace").splitlines()
    bare = (_PREFIX.sub("", line, count=1) for line in before)
    return 90 if all(not line.strip() or _HEADER.match(line) for line in bare) else 35


@reader(
    "faulthandler_text",
    made_by="kill -USR1 PID (faulthandler.register), or a crash",
    gives="where each Python thread of a process is, and the signal that it died of",
    sniff=_sniff,
    by_line=True,
)
def read(input: Input) -> Iterator[Record]:
    """Yield one stack dump per process and occasion."""
    speakers: dict[int | None, FaulthandlerReader] = {}
    for number, text in lines(input.stream):
        prefix = _PREFIX.match(text)
        rank = int(prefix.group(1)) if prefix else None
        speaker = speakers.get(rank)
        if speaker is None:
            if len(speakers) >= PREFIXES:
                continue
            speaker = speakers[rank] = FaulthandlerReader(input, rank)
        bare = text[prefix.end() :] if prefix else text
        if found := _FATAL.match(bare):
            yield _fatal(input, number, rank, found.group(1))
        speaker.feed(number, bare)
        yield from speaker.finished
        speaker.finished.clear()
    for speaker in speakers.values():
        speaker.end()
        yield from speaker.finished


class FaulthandlerReader:
    """Takes the lines of one process."""

    WORDS = ("(most recent call first)",)

    def __init__(self, input: Input, rank: int | None = None) -> None:
        self.finished: list[StackDump] = []
        self._input = input
        self._rank = rank
        self._builder: StackBuilder | None = None
        self._identities: set[str] = set()
        self._thread: ThreadBuilder | None = None

    @property
    def busy(self) -> bool:
        """True inside a thread's frames."""
        return self._thread is not None

    def feed(self, number: int, text: str) -> bool:
        """Take one line; True if it belongs to a stack."""
        if self._thread is not None and (found := _FRAME.match(text)):
            line = found.group(2)
            self._thread.add(frame(found.group(3), found.group(1), int(line[:9]) if line.isdigit() else 0))
            return True
        thread, stack = _THREAD.match(text), _STACK.match(text)
        if text.strip() and not text.startswith("  "):
            self._thread = None
        if not (thread or stack):
            if _HEADER.match(text):
                self.end()
            return False
        identity = thread.group(2) if thread else ""
        if stack or identity in self._identities:
            self.end()
        if self._builder is None:
            whose = self._input.rank if self._rank is None else self._rank
            source = f"{self._input.source}:{number}"
            self._builder = StackBuilder(
                "faulthandler", source, at=self._input.at, node=self._input.node, rank=whose, main_last=True
            )
        self._identities.add(identity)
        self._thread = self._builder.begin(ThreadBuilder(thread.group(3) if thread else None, main=stack is not None))
        return True

    def end(self) -> None:
        """Finish the process that is open."""
        if self._builder is not None and self._builder.threads:
            self.finished.append(self._builder.build())
        self._builder, self._identities, self._thread = None, set(), None


def _fatal(input: Input, number: int, rank: int | None, what: str) -> LogEvent:
    """Say how the process died, as a job's log would: the same words come from the same crash."""
    signal = next((signal for word, signal in _SIGNALS if what.startswith(word)), None)
    return LogEvent(
        source=f"{input.source}:{number}",
        at=input.at,
        node=input.node,
        rank=input.rank if rank is None else rank,
        event="exit" if signal else "fatal_python",
        signal=signal,
        text=f"Fatal Python error: {what}"[:NAME_CHARACTERS],
    )
