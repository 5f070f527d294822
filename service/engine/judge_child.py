"""The child's side of a judgement: it judges what it inherited, tells its parent, and is gone."""

from __future__ import annotations

import gc
import logging
import os
import resource
import signal
import struct
from pathlib import Path
from typing import NoReturn

import msgspec

from analyzers.incidents.judgement import judge_cut
from analyzers.incidents.messages import Judge
from analyzers.knowledge import Knowledge
from service.engine.parent import die_with_parent

HEADER = struct.Struct("<cQ")  # of a message: its kind, and its length
RUNNING, ENDED = b"r", b"j"  # an analyzer's name, before it runs; the judgement
PAGE_BYTES = resource.getpagesize()


def judge(asked: Judge, knowledge: Knowledge, pipe: int, most_bytes: int, parent: int) -> NoReturn:
    """Judge, tell the parent, and be gone."""
    code = 1
    try:
        gc.freeze()  # what came from the parent, its connections above all, is never finalized here
        # Ctrl-C and a stop of the unit come here too, and are no analyzer's fault: the engine ends its children itself.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        die_with_parent(signal.SIGKILL, parent)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)  # the engine's numbers go there
        _bound_memory(most_bytes)
        judged = judge_cut(asked, knowledge, lambda name: _tell(pipe, RUNNING, name.encode()))
        _tell(pipe, ENDED, msgspec.msgpack.encode(judged))
        code = 0
    except BaseException:
        logging.getLogger(__name__).exception("judgement_died incident=%s", asked.incident)
        raise
    finally:
        os._exit(code)


def _bound_memory(most_bytes: int) -> None:
    """Let this process take so much more than what it has of its parent."""
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE_BYTES
    _soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = mapped + most_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _tell(pipe: int, kind: bytes, body: bytes) -> None:
    view = memoryview(HEADER.pack(kind, len(body)) + body)
    while view:
        view = view[os.write(pipe, view) :]
