"""The forked child of a judgement: it judges the records it inherited, sends its parent the result, and exits."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
import struct
from typing import NoReturn

import msgspec

from analyzers.incidents.judgement import judge_cut
from analyzers.incidents.messages import Judge
from analyzers.knowledge import Knowledge
from collectors.files.framing import limit_memory
from collectors.files.sandbox import write_all

HEADER = struct.Struct("<cQ")  # of a message: its kind, and its length
RUNNING, ENDED = b"r", b"j"  # an analyzer's name, before it runs; the judgement
PR_SET_PDEATHSIG = 1  # prctl(2)


def die_with_parent(number: signal.Signals, parent: int) -> None:
    """Have the kernel send this process a signal when its parent ends; at once if it has ended already."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def judge_and_exit(asked: Judge, knowledge: Knowledge, pipe: int, most_bytes: int, parent: int) -> NoReturn:
    """Judge, send the result through the pipe, and exit."""
    code = 1
    try:
        gc.freeze()  # objects of the parent, above all its connections, are never finalized here
        gc.disable()  # records are trees; looking for cycles in 200,000 of them takes a third of a judgement
        # Ctrl-C and a stop of the unit arrive here too and are no analyzer's fault: the engine ends its children itself.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        die_with_parent(signal.SIGKILL, parent)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)  # the engine writes its numbers there
        limit_memory(most_bytes)
        judged = judge_cut(asked, knowledge, lambda name: _send(pipe, RUNNING, name.encode()))
        _send(pipe, ENDED, msgspec.msgpack.encode(judged))
        code = 0
    except BaseException:
        logging.getLogger(__name__).exception("judgement_died incident=%s", asked.incident)
        raise
    finally:
        os._exit(code)


def _send(pipe: int, kind: bytes, body: bytes) -> None:
    write_all(pipe, HEADER.pack(kind, len(body)) + body)
