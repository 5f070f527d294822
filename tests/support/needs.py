"""What a test needs of the machine that it runs on."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def needs_torch(what: str) -> None:
    """Skip the test or the whole module where torch is not installed."""
    needs_library("torch", what)


def needs_library(name: str, what: str) -> None:
    """Skip the test or the whole module where a library is not installed; collecting does not import it, which takes seconds."""
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed: {what}", allow_module_level=True)
