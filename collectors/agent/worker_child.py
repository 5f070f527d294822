"""The child's end of ``worker``, with little else: one collector, run whenever the agent asks."""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec

from collectors.files.framing import framed, read_framed
from collectors.live import Cursor, NothingToCollect, Readings, Request, Run, registered
from collectors.live.sources.host import Host, Roots
from collectors.records import Record, block

PR_SET_PDEATHSIG = 1  # prctl(2)


class HostForm(msgspec.Struct):
    """A host as the child receives it."""

    node: str
    roots: dict[str, str]
    options: dict[str, dict[str, Any]]
    agent_pid: int


def main(module: str, name: str, form: str) -> None:
    """Run one collector for the agent that started this process, until the agent ends."""
    given = msgspec.json.decode(form, type=HostForm)
    # A hung driver call must not outlive the agent.
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != given.agent_pid:  # the agent died before that call
        return
    # A library that prints must not print into the pipe.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the agent's; it ends its children
    importlib.import_module(module)
    roots = Roots(**{root: Path(path) for root, path in given.roots.items()})
    host = Host(node=given.node, roots=roots, options=given.options)
    run: Run | None = None
    while (body := read_framed(sys.stdin.buffer)) is not None:
        verb, arguments, cursor = msgspec.msgpack.decode(body, type=tuple[Any, Any, Any])
        host.cursors[name] = cursor
        try:
            run = run or registered(name).make(host)
            for yielded in run(Request(verb, arguments) if verb else None) or ():
                answers.write(framed(_message_of(yielded)))
            answers.write(framed(["end"]))
        except NothingToCollect as nothing:
            answers.write(framed(["nothing", str(nothing)]))
        except Exception as error:  # noqa: BLE001 (the agent counts and reports it)
            answers.write(framed(["failed", f"{type(error).__name__}: {error}"]))


def _message_of(yielded: object) -> list[Any]:
    if isinstance(yielded, Record):
        return ["record", block.encode([yielded])]
    if isinstance(yielded, Cursor):
        return ["cursor", yielded.value]
    if isinstance(yielded, Readings):
        return ["readings", [getattr(yielded, name) for name in Readings.__slots__]]
    raise TypeError(f"yielded a {type(yielded).__name__}: a collector yields records, Readings and Cursors")


if __name__ == "__main__":
    main(*sys.argv[1:])
