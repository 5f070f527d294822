"""A service whose pages decide about one proposal, and a browser in which a person has signed in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import delete

from service.store.tokens import Tokens
from tests.support.browser import Browser
from tests.support.deciding_pages import HOME, TABLES
from tests.support.remediation_rows import seeded
from tests.support.served import Client, served


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Return a client with every right, of a service without an engine."""
    with served(tmp_path_factory.mktemp("deciding"), engine=False) as client:
        secret = Tokens(client.service.database).make("root", ["admin"])[1]
        yield client.as_(secret)


@pytest.fixture
def client(service: Client) -> Client:
    """Return a client in whose service one eviction is proposed, and nothing else is known."""
    with service.service.database.transaction() as session:
        for model in TABLES:
            session.execute(delete(model))
    seeded(service.service.database, service.service.remedies)
    return service


@pytest.fixture
def ann(client: Client) -> Iterator[Browser]:
    """Return a browser in which Ann has signed in."""
    with Browser(client) as browser:
        secret = client.service.tokens.make("ann", ["remediate"])[1]
        assert browser.sign_in(secret, to=HOME).headers["location"] == HOME
        yield browser
