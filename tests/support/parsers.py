"""Every parser of foreign bytes: the readers of files, how each recognises a file, and what the agent's collectors call."""

from __future__ import annotations

import io
import sys
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module

from collectors.formats import Format, Input, registry

SNIFFED_BYTES = 1 << 16


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
        if name not in found and name.startswith("collectors.formats."):
            import_module(name)
            found.append(name)
            used = (
                getattr(value, "__module__", None) or getattr(value, "__name__", "")
                for value in vars(sys.modules[name]).values()
            )
            waiting += [one for one in used if isinstance(one, str) and one in sys.modules]
    return found


def _live() -> dict[str, Parser]:
    """Return what collectors call with bytes of a job, a port or a file that any user may write."""
    from collectors.live.sources import cgroups, ranks

    del cgroups
    return {
        "environment of a process": Parser(
            lambda data: ranks.read_rank(b"RANK=1\0" + data), ["collectors.live.sources.ranks"]
        ),
    }
