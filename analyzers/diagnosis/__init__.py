"""The registered analyzers, one folder each. What they share with other code is in ``analyzers.model``.

A folder's ``__init__`` names the kinds of records that its analyzer ``READS`` and imports nothing. The module with the name
of the folder has ``analyze``. It is imported when a window first holds such a record, so that the diagnosis of one dump
loads one analyzer.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analyzers.knowledge import Knowledge
    from analyzers.model.finding import Finding
    from analyzers.model.topology import Topology
    from analyzers.model.window import Window

    Analyze = Callable[[Window, Topology, Knowledge], Iterator[Finding]]


@dataclass(frozen=True, slots=True)
class Registered:
    """One analyzer: the kinds of records it reads, by their tag, and how to get its function."""

    reads: frozenset[str]
    load: Callable[[], Analyze]
    across_roles: bool = False  # it sees all roles of a job at once; every other analyzer one role at a time


@cache
def registry() -> dict[str, Registered]:
    """Return every analyzer by name, sorted, without importing their modules."""
    return {name: _registered(name) for name in sorted(module.name for module in pkgutil.iter_modules(__path__))}


def _registered(name: str) -> Registered:
    def load() -> Analyze:
        analyze: Analyze = importlib.import_module(f"{__name__}.{name}.{name}").analyze
        return analyze

    folder = importlib.import_module(f"{__name__}.{name}")
    return Registered(frozenset(folder.READS), load, getattr(folder, "ACROSS_ROLES", False))


def load(kinds: Collection[str]) -> None:
    """Import the analyzers that read one of these kinds of records, ahead of their first use."""
    for registered in registry().values():
        if registered.reads.intersection(kinds):
            registered.load()


def every_analyzer() -> dict[str, Analyze]:
    """Import every analyzer and return them by name, sorted."""
    return {name: registered.load() for name, registered in sorted(registry().items())}
