"""Adapters to other systems: alerting, event brokers, schedulers. Each runs as a process with a token of its own.

A module or package here that has a function ``run`` is an adapter; ``faulthound adapter NAME`` runs it with its options.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any


def names() -> Iterator[str]:
    """Yield the names of the adapters."""
    return (found.name for found in pkgutil.iter_modules(__path__) if _run_of(found.name) is not None)


def find(name: str) -> Callable[..., Any] | None:
    """Return the function that runs an adapter, None where there is none of that name."""
    known = {found.name for found in pkgutil.iter_modules(__path__)}
    return _run_of(name) if name in known else None


def _run_of(name: str) -> Callable[..., Any] | None:
    return getattr(importlib.import_module(f"{__name__}.{name}"), "run", None)
