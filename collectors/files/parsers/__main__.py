"""The process that parses for the agent: one question after the other, until the agent closes the pipe."""

from __future__ import annotations

import math
import os
import resource
import select
import signal
import sys
from importlib import import_module
from typing import Any

import msgspec

from collectors.files.framing import ANSWER_BYTES, framed, limit_memory, read_framed, resident_bytes
from collectors.records import Damaged

IDLE_SECONDS = 60.0
GROWN_BYTES = 96 << 20  # resident: the allocator gives little of it back
SPARE_BYTES = 256 << 20  # of address space, for any question
BYTES_PER_BYTE = 24  # a pickle's values take this many times its size, measured on dumps
MOST_BYTES = 1 << 30


def main() -> None:
    """Answer questions; leave after one that made this process large, and when there is none for a while."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the agent's: this process ends when its pipe does
        signal.signal(number, signal.SIG_IGN)
    # A library that prints must not print into the pipe.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    questions = sys.stdin.buffer
    while select.select([questions], [], [], IDLE_SECONDS)[0] and (body := read_framed(questions)) is not None:
        seconds, parser, arguments = msgspec.msgpack.decode(body, type=tuple[float, str, list[Any]])
        _limit(seconds, len(body))
        del body
        answer = _answer(parser, arguments)
        del arguments
        view = memoryview(answer)
        while view:
            view = view[answers.write(view) or 0 :]
        if resident_bytes() > GROWN_BYTES:
            return


def _answer(parser: str, arguments: list[Any]) -> bytes:
    try:
        answer = framed(["done", import_module(f"collectors.files.parsers.{parser}").parse(*arguments)])
    except MemoryError:
        return framed(["failed", "parsing it needs more memory than it may"])
    except Damaged as error:
        return framed(["failed", str(error)])
    except Exception as error:  # noqa: BLE001 (a failing parser costs its call)
        return framed(["failed", f"{type(error).__name__}: {str(error)[:500]}"])
    if len(answer) > ANSWER_BYTES:
        return framed(["failed", f"it holds more than {ANSWER_BYTES:,} bytes of records"])
    return answer


def _limit(seconds: float, size: int) -> None:
    """Bound the processor time, which also ends this process where the agent has ended, and the memory."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = math.ceil(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    limit_memory(min(SPARE_BYTES + BYTES_PER_BYTE * size, MOST_BYTES))


if __name__ == "__main__":
    main()
