"""The collectors, one a file: what a node shows of itself and of the job on it, read from outside the job.

A collector registers itself with ``@collector``; no list is edited to add one. It is made once with the ``Host`` and called
every ``every_seconds``. A run yields, or raises ``NothingToCollect`` (no GPU here: counted, not logged), or raises another
exception (counted, logged on change). A run that exceeds ``limit_seconds`` is counted as overrun and delays no other.

Values are sent as they were read: raw counters, no thresholds, nothing derived. What several collectors read is in
``sources``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from collectors.live.sources.host import Host
from collectors.records import Record


@dataclass(frozen=True, slots=True)
class Readings:
    """One tick of sampled values: ``values[d][m]`` of device d and metric m, None where not read.

    The agent packs the ticks between two shipments into one ``Samples`` record a scope. ``type`` is that of all values:
    ``<f4`` for gauges, ``<i8`` for counters. ``at``: UTC seconds, None for the start of the run.
    """

    scope: str
    devices: Sequence[str]
    metrics: Sequence[str]
    values: Sequence[Sequence[float | None]]
    type: Literal["<f4", "<i8"] = "<f4"
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Cursor:
    """The collector's position in its source, kept together with the records before it, so that none is sent twice.

    ``Host.cursor(name)`` returns the newest, after a restart too.
    """

    value: Any  # what JSON can hold


@dataclass(frozen=True, slots=True)
class Request:
    """A command that asks for a run now: its verb and arguments. An ordinary run has none."""

    verb: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def covers(self, rank: int | None, job: str | None, role: str | None) -> bool:
        """Return whether it asks for this rank: by number (``ranks``), by role and number (``roles``), else any of ``job``."""
        ranks, roles, of = (self.arguments.get(name) for name in ("ranks", "roles", "job"))
        if of is not None and job != of:
            return False
        named = roles.get(role or "") if isinstance(roles, dict) else None
        if isinstance(named, list) and rank in named:
            return True
        return rank in ranks if isinstance(ranks, list) else not isinstance(roles, dict)


Yielded = Record | Readings | Cursor
Run = Callable[[Request | None], Iterable[Yielded]]


class NothingToCollect(Exception):
    """Nothing of this kind is here, or nothing new could be read; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Collector:
    """A registered collector; ``make(host)`` returns what is called at every run."""

    name: str
    gives: str  # what it reads, one line
    every_seconds: float
    limit_seconds: float
    make: Callable[[Host], Run] = field(compare=False)
    own_process: bool = False  # it calls a driver's library: a call that never returns must not stop the agent
    answers: tuple[str, ...] = ()  # verbs of commands for which it runs at once, such as "stacks"


_collectors: dict[str, Collector] = {}


def collector(
    name: str,
    *,
    gives: str,
    every_seconds: float,
    limit_seconds: float,
    own_process: bool = False,
    answers: tuple[str, ...] = (),
) -> Callable[[Callable[[Host], Run]], Callable[[Host], Run]]:
    """Register the decorated class or function, which makes the collector from a host."""

    def register(make: Callable[[Host], Run]) -> Callable[[Host], Run]:
        if name in _collectors:
            raise ValueError(f"two collectors are named {name!r}: rename one")
        _collectors[name] = Collector(name, gives, every_seconds, limit_seconds, make, own_process, answers)
        return make

    return register


def registered(name: str) -> Collector:
    """Return one collector, whose module must be imported."""
    return _collectors[name]


@cache
def registry() -> dict[str, Collector]:
    """Return every collector by name, sorted; importing this folder's modules is what registers them."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return {name: _collectors[name] for name in sorted(_collectors)}
