"""A service of its own for each test, or each file, that asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.served import Client, served


@pytest.fixture(scope="module")
def running_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Return a client of a service without an engine."""
    with served(tmp_path_factory.mktemp("service"), engine=False) as client:
        yield client


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """Return a client of a new service without an engine."""
    with served(tmp_path, engine=False) as client:
        yield client
