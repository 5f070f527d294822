"""A service under a policy, in which one eviction is proposed; and a proposer with a hang that was judged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.store.database import Database
from tests.support.plan_attacks import (
    POLICY,
)
from tests.support.proposer_at_work import Care
from tests.support.remediation_fleet import hung
from tests.support.remediation_rows import (
    cleared,
    forget_tokens,
    seeded,
)
from tests.support.served import Client, served


@pytest.fixture(scope="module")
def policy_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of the policy."""
    file = tmp_path_factory.mktemp("policy") / "policy.toml"
    file.write_text(POLICY.format(budget=4))
    return file


@pytest.fixture(scope="module")
def running_service(tmp_path_factory: pytest.TempPathFactory, policy_file: Path) -> Iterator[Client]:
    """Return a client of a service without an engine: what the engine would believe is stored by the tests."""
    with served(tmp_path_factory.mktemp("service"), engine=False, policy=policy_file) as client:
        yield client


@pytest.fixture
def client(running_service: Client) -> Iterator[Client]:
    """Return an administrator's client; one eviction is proposed, and not by an automatic rule."""
    service = running_service.service
    cleared(service.database)
    seeded(service.database, service.remedies)
    yield running_service.as_(service.tokens.make("admin", ["admin"])[1])
    forget_tokens(running_service)


@pytest.fixture
def care(database: Database) -> Care:
    """Return a proposer that has begun before anything happened, and then a hang that was judged."""
    care = Care(database)
    care.turn(0.0)
    hung(database)
    return care
