"""Pages for people, rendered here, without scripts; each names the resource that has the same as JSON.

A file that has a ``router`` is served: nothing else is edited to add one.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

from fastapi import APIRouter


def routers() -> Iterator[APIRouter]:
    """Import the pages, and yield their routers by name."""
    for found in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{found.name}")
        if hasattr(module, "router"):
            yield module.router
