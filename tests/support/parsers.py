"""Every parser of foreign bytes: the readers of files, how each recognises a file, and what the agent's collectors call."""

from __future__ import annotations

import io
import pkgutil
import sys
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from collectors.files import parsers as parsers_apart
from collectors.files import process_stat
from collectors.formats import Format, Input, registry
from collectors.live import ras
from collectors.live.sources import (
    job_files,
    kernel_sources,
    piped_output,
    process_table,
    ranks,
    recorder_endpoints,
    socket_requests,
)

SNIFFED_BYTES = 1 << 16
APART = "collectors.files.parsers"


@dataclass(frozen=True)
class Parser:
    """One parser, and the modules whose patterns its inputs are made of. ``most_bytes``: it is never given more."""

    parse: Callable[[bytes], object]
    modules: list[str]
    most_bytes: int = 1 << 20


def parsers() -> dict[str, Parser]:
    """Return the parsers by name."""
    found: dict[str, Parser] = {}
    for format in registry():
        modules = _modules(format.read.__module__)
        found[format.name] = Parser(_reading(format), modules)
        found[f"{format.name} sniff"] = Parser(_sniffing(format), modules, SNIFFED_BYTES)
    return found | _live()


def _reading(format: Format) -> Callable[[bytes], object]:
    return lambda data: _all(format.read(Input("hostile", io.BytesIO(data), data[:SNIFFED_BYTES], at=1_795_240_800.0)))


def _sniffing(format: Format) -> Callable[[bytes], object]:
    return lambda data: format.sniff(data, "hostile.log")


def _all(found: Iterable[object]) -> object:
    return deque(found, maxlen=0)


def _modules(first: str) -> list[str]:
    """Return a module and those of our formats that it imports."""
    found, waiting = list[str](), [first]
    while waiting:
        name = waiting.pop()
        if name not in found and name.startswith(("collectors.formats.", APART)):
            import_module(name)
            found.append(name)
            used = (
                getattr(value, "__module__", None) or getattr(value, "__name__", "")
                for value in vars(sys.modules[name]).values()
            )
            waiting += [one for one in used if isinstance(one, str) and one in sys.modules]
    return found


def _live() -> dict[str, Parser]:
    """Return what the agent's collectors call with bytes of a job, of a port, or of a file that any user may write.

    Of ``collectors.files.parsers`` all but ``dcgm`` and ``engines``, which ask a port: their readers are among the formats.
    """
    apart: dict[str, Callable[[Any], Callable[[bytes], object]]] = {
        "ras": lambda parse: lambda data: parse(data, "ras", 1.0),
        "recorder": lambda parse: lambda data: parse(data, "recorder", 0, 1.0),
        "stacks": lambda parse: lambda data: parse(data, "stacks"),
        "profile": lambda parse: lambda data: parse(data, "profile", 7),
        "inspector": lambda parse: lambda data: parse(data, 250),
        "inspector_series": lambda parse: lambda data: parse(data, 100_000),
        "ring": lambda parse: lambda data: parse(data, None, 0, 0),
        "steps": lambda parse: lambda data: parse(data, "log", 0, "gpu-0001", 1_795_240_800.0),
        "kernel": lambda parse: lambda data: parse(_kernel_lines(data), b"", "/dev/kmsg", "gpu-0001", True),
    }
    assert {one.name for one in pkgutil.iter_modules(parsers_apart.__path__)} == {*apart, "dcgm", "engines", "__main__"}
    found = {
        f"live {name}": Parser(make(_module(name).parse), _modules(f"{APART}.{name}")) for name, make in apart.items()
    }
    sources = "collectors.live.sources"
    own: dict[str, tuple[Callable[[bytes], object], str]] = {
        "environment": (
            lambda data: ranks.states_rank(data) or ranks.read_rank(b"RANK=1\0" + data),
            f"{sources}.ranks",
        ),
        "command": (
            lambda data: process_table._LAUNCHER.search(process_table._first_words(data)),
            f"{sources}.process_table",
        ),
        "launcher": (job_files._LAUNCHER.search, f"{sources}.job_files"),
        "status": (lambda data: job_files._NAMESPACED.search(data.decode(errors="replace")), f"{sources}.job_files"),
        "users": (lambda data: job_files._USERS.search(data.decode(errors="replace")), f"{sources}.job_files"),
        "pipe": (lambda data: piped_output._is_pipe(data.decode(errors="replace")), f"{sources}.piped_output"),
        "flags": (
            lambda data: piped_output._FLAGS.search(data.decode(errors="replace")),
            f"{sources}.piped_output",
        ),
        "stat": (process_stat.parse, "collectors.files.process_stat"),
        "tcp": (recorder_endpoints._LISTENING_TCP.findall, f"{sources}.recorder_endpoints"),
        "unix": (recorder_endpoints._LISTENING_UNIX.findall, f"{sources}.recorder_endpoints"),
        "answer": (socket_requests._LENGTH.search, f"{sources}.socket_requests"),
        "kmsg": (
            lambda data: list(map(kernel_sources._SEQUENCE.match, data.split(b"\n"))),
            f"{sources}.kernel_sources",
        ),
        "journal": (kernel_sources._entry.decode, f"{sources}.kernel_sources"),
        "address": (lambda data: ras._local(data.decode(errors="replace")), "collectors.live.ras"),
    }
    return found | {f"live {name}": Parser(parse, [module]) for name, (parse, module) in own.items()}


def _kernel_lines(data: bytes) -> list[tuple[int, str]]:
    return [(number, line.decode(errors="replace")) for number, line in enumerate(data.split(b"\n"))]


def _module(name: str) -> Any:
    return import_module(f"{APART}.{name}")
