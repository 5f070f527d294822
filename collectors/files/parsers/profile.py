"""The output of py-spy's ``record``: a line a stack, outermost frame first, and how often each was seen.

    thread (1234): MainThread;<module> (train.py:1);step (train.py:40) 18

The names in it are the process's own choice.
"""

from __future__ import annotations

import re
from collections import Counter

from collectors.formats.stacks.stack_building import frame
from collectors.records import Frame, Profile, StackShare, block

MOST_LINES = 20_000
MOST_STACKS = 24
MOST_FRAMES = 60  # the innermost: what a thread does is decided there
MAIN = "MainThread"
_THREAD = re.compile(r"thread \((\w{1,20})\)(?:: (.*))?$")
_FRAME = re.compile(r"(.*) \(([^()]*?)(?::(\d{1,9}))?\)$")


def parse(data: bytes, source: str, pid: int) -> bytes:
    """Return a block with the profile of the main thread; without samples where there is none.

    It is the thread with the process's number, or the one of that name where numbers are those of another namespace.
    """
    by_thread: dict[str, Counter[tuple[Frame, ...]]] = {}
    for line in data.decode("utf-8", "replace").splitlines()[:MOST_LINES]:
        text, _, count = line.rpartition(" ")
        thread, _, frames = text.partition(";")
        read = _THREAD.match(thread)
        if read is not None and count.isdecimal() and len(count) < 10:
            name = MAIN if read.group(2) == MAIN else ""
            key = str(pid) if _number(read.group(1)) == pid else name
            by_thread.setdefault(key, Counter())[_frames(frames)] += int(count)
    found = by_thread.get(str(pid)) or by_thread.get(MAIN) or Counter()
    stacks = tuple(StackShare(frames=frames, samples=samples) for frames, samples in found.most_common(MOST_STACKS))
    return block.encode([Profile(source=source, pid=pid, samples=found.total(), stacks=stacks)])


def _number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        return -1


def _frames(text: str) -> tuple[Frame, ...]:
    """Return frames, innermost first."""
    found = []
    for part in reversed(text.split(";")):
        read = _FRAME.match(part)
        found.append(frame(read.group(1), read.group(2), int(read.group(3) or 0)) if read else frame(part))
    return tuple(found[:MOST_FRAMES])
