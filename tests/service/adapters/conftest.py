"""What the tests of adapters share: a service without an engine, and a sink."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import delete

from service.client import Connection, connected
from service.store.models import Alarm, Incident
from tests.support.served import Client, served
from tests.support.sinks import Receiver, happen, receiving


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Return a client of a service without an engine."""
    with served(tmp_path_factory.mktemp("service"), engine=False) as client:
        yield client


@pytest.fixture
def connection(client: Client) -> Iterator[Connection]:
    """Return an adapter's connection."""
    with connected(client.url, None, None) as connection:
        yield connection


@pytest.fixture
def emptied(running: Client) -> Client:
    """Return a client of a service in which there is no incident and no alarm."""
    with running.service.database.transaction() as session:
        for model in (Incident, Alarm):
            session.execute(delete(model))
    happen(running.service.database, 0)  # the newest place is one that is there
    return running


@pytest.fixture
def sink() -> Iterator[Receiver]:
    """Return a sink."""
    with receiving() as receiver:
        yield receiver
