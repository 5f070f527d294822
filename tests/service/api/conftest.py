"""A service of its own for each test of an operation; those that need less, or another one, say which."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.served import Client, served


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """Return a client of a new service, of which no token was made."""
    with served(tmp_path) as client:
        yield client
