"""The resources of the API, one a file. A file that has a ``router`` is served: nothing else is edited to add one.

What resources share lies one level up.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

from fastapi import APIRouter


def routers() -> Iterator[APIRouter]:
    """Import the resources, and yield their routers by name."""
    for module in pkgutil.iter_modules(__path__):
        router: APIRouter = importlib.import_module(f"{__name__}.{module.name}").router
        yield router
