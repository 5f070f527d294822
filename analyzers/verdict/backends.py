"""Which libraries the job's collectives are seen to run on: what NCCL reads is no advice for a job of gloo."""

from __future__ import annotations

import re
from collections.abc import Iterator

from analyzers.model.window import Window
from collectors.records import LogEvent, RasCommunicator, Ring, StackDump

_NAMED = re.compile(r"(?i)([nr]ccl|gloo)")
_NAMES = {"nccl": "nccl", "rccl": "nccl", "gloo": "gloo"}  # RCCL reads NCCL's variables


def seen(window: Window) -> tuple[str, ...]:
    """Return ``gloo`` and ``nccl``, sorted, as far as recorders, probes, stacks and lines of logs name them."""
    return tuple(sorted({_NAMES[found.lower()] for text in set(_texts(window)) for found in _NAMED.findall(text)}))


def _texts(window: Window) -> Iterator[str]:
    for dump in window.dumps:
        yield from (text.partition(":")[0] for text in dump.strings if text.startswith(("nccl:", "gloo:")))
    yield from (ring.backend for ring in window.records_of(Ring))
    yield from ("nccl" for _ in window.records_of(RasCommunicator)[:1])
    for stacks in window.records_of(StackDump):
        for thread in stacks.threads:
            for frame in thread.frames:
                yield frame.function
                yield frame.file
    for event in window.records_of(LogEvent):
        yield event.message or event.text
