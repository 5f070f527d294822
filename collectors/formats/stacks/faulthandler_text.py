"""Python's faulthandler: ``Thread 0x… (most recent call first):`` and ``  File "x.py", line 3 in f``.

Threads come newest first, so the main thread is last. A dump carries no process id; a new one begins at its header
(``Fatal Python error:``, ``Timeout (0:00:10)!``) or where a thread comes again. Launchers' ``[rank3]:`` prefixes are
understood, interleaved or not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

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
_NATIVE = re.compile(r"Current thread's C stack trace")
_FRAME = re.compile(r' {1,4}File "(.*)", line (\d+|\?\?\?) in (.+)$')
_SNIFF = re.compile(
    rb"(?m)^(?:\[\w{1,20}\]: ?)?(?:(?:Current thread|Thread) 0x[0-9a-fA-F]+.*|Stack )\(most recent call first\):"
)


def _sniff(head: bytes, _source: str) -> int:
    found = _SNIFF.search(head)
    if not found:
        return 0
    before = head[: found.start()].decode("utf-8", "replace").splitlines()
    bare = (_PREFIX.sub("", line, count=1) for line in before)
    return 90 if all(not line.strip() or _HEADER.match(line) for line in bare) else 35


@dataclass
class _Speaker:
    """What one prefix has said so far."""

    builder: StackBuilder
    identities: set[str] = field(default_factory=set)
    thread: ThreadBuilder | None = None


@reader(
    "faulthandler_text",
    made_by="kill -USR1 PID (faulthandler.register), or a crash",
    gives="where each Python thread of a process is, and the signal that it died of",
    sniff=_sniff,
)
def read(input: Input) -> Iterator[Record]:
    """Yield one stack dump per process and occasion."""
    speakers: dict[int | None, _Speaker] = {}
    for number, text in lines(input.stream):
        prefix = _PREFIX.match(text)
        rank = int(prefix.group(1)) if prefix else None
        speaker = speakers.get(rank)
        if speaker is None:
            if len(speakers) >= PREFIXES:
                continue
            speaker = speakers[rank] = _Speaker(_begin(input, number, rank))
        bare = text[prefix.end() :] if prefix else text
        if found := _FATAL.match(bare):
            yield _fatal(input, number, rank, found.group(1))
        done = _take(speaker, bare, partial(_begin, input, number, rank))
        if done is not None:
            yield done
    for speaker in speakers.values():
        if speaker.builder.threads:
            yield speaker.builder.build()


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


def _begin(input: Input, number: int, rank: int | None) -> StackBuilder:
    whose = input.rank if rank is None else rank
    source = f"{input.source}:{number}"
    return StackBuilder("faulthandler", source, at=input.at, node=input.node, rank=whose, main_last=True)


def _take(speaker: _Speaker, text: str, begin: Callable[[], StackBuilder]) -> StackDump | None:
    """Take one line in; return the dump that it ends, if it begins another."""
    if speaker.thread is not None and (found := _FRAME.match(text)):
        line = found.group(2)
        speaker.thread.add(frame(found.group(3), found.group(1), int(line[:9]) if line.isdigit() else 0))
        return None
    thread, header = _THREAD.match(text), _HEADER.match(text)
    stack = _STACK.match(text)
    if _NATIVE.match(text):
        speaker.thread = None
    if not (thread or header or stack):
        return None
    identity = thread.group(2) if thread else ""
    done = None
    if speaker.builder.threads and (header or stack or identity in speaker.identities):
        done = speaker.builder.build()
        speaker.builder, speaker.identities = begin(), set()
    speaker.thread = None
    if thread or stack:
        speaker.identities.add(identity)
        name = thread.group(3) if thread else None
        speaker.thread = speaker.builder.begin(ThreadBuilder(name, main=stack is not None))
    return done
