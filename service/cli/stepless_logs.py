"""Logs of jobs in which no step was recognised: the pace of such a job was not judged, and the answer states it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

STEP_LINE = "`step 120 loss 2.31 time 0.41s` (docs/formats.md)"
MOST_SHOWN, MOST_BYTES, BLOCK_BYTES, HEAD_BYTES = 3, 1 << 28, 1 << 20, 1 << 16


def without_steps(logs: Sequence[Path], sources: Iterable[str]) -> str:
    """Return a sentence about the logs of which no record of steps is; "" where all have steps, or none is a job's log.

    ``sources``: what steps were read of.
    """
    from collectors.formats import recognise

    known = tuple(sources)
    found: list[tuple[Path, int, bool]] = []
    for log in logs:
        if any(source.startswith(str(log)) for source in known):
            continue
        try:
            with log.open("rb") as stream:
                head = stream.read(BLOCK_BYTES)
                format = recognise(head[:HEAD_BYTES], str(log))
                if format is not None and format.name == "job_log":
                    found.append((log, *_lines(head, stream)))
        except OSError:
            continue
    if not found:
        return ""
    shown = ", ".join(log.name for log, _, _ in found[:MOST_SHOWN]) + (" …" if len(found) > MOST_SHOWN else "")
    lines, all_read = sum(count for _, count, _ in found), all(whole for _, _, whole in found)
    counted = f"{'' if all_read else 'more than '}{lines:,} line{'s' if lines > 1 else ''}"
    return f"no steps were recognised in {counted} of {shown}; a step line looks like {STEP_LINE}"


def _lines(head: bytes, rest: BinaryIO) -> tuple[int, bool]:
    """Return how many lines there are, and whether all were counted."""
    count, size, last, block = 0, 0, b"\n", head
    while block and size < MOST_BYTES:
        count, size, last = count + block.count(b"\n"), size + len(block), block
        block = rest.read(BLOCK_BYTES)
    return count + (not last.endswith(b"\n")), not block
