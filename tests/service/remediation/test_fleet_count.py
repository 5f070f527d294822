"""The breaker's share is of nodes that no sender can invent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.remediation.fleet_facts import FLEET_SECONDS, count_fleet
from service.store.database import Database
from service.store.models import Node
from service.store.tokens import Tokens

NOW = 1_000_000.0


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """A store with ten nodes that have reported for a week, and one that has left."""
    database = Database(f"sqlite:///{tmp_path / 'faulthound.db'}")
    database.migrate()
    report(database, [f"gpu-{number}" for number in range(10)], NOW - 7 * FLEET_SECONDS)
    report(database, ["gone"], NOW - 7 * FLEET_SECONDS, last=NOW - 2 * FLEET_SECONDS)
    yield database
    database.close()


def report(database: Database, names: list[str], first: float, last: float = NOW) -> None:
    """Let nodes report."""
    with database.transaction() as session:
        session.add_all(Node(name=name, first_seen_at=first, last_seen_at=last) for name in names)


def counted(database: Database, now: float = NOW) -> int:
    """The nodes that count."""
    with database.session() as session:
        return count_fleet(session, now)


def test_invented_names_do_not_count(database: Database) -> None:
    """A thousand names of a day change nothing, and those with tokens of their own are the fleet for good."""
    report(database, [f"invented-{number}" for number in range(1_000)], NOW - 3_600)
    assert counted(database) == 10

    tokens = Tokens(database, clock=lambda: NOW)
    made = [tokens.make("agent", ["ingest"], node=f"GPU-{number}")[0] for number in range(4)]
    tokens.make("agent", ["ingest"], node="gone")
    assert counted(database) == 4
    assert counted(database, NOW + FLEET_SECONDS - 1) == 4, "names that are a day old by then do not count either"
    tokens.revoke(made[0].id)
    assert counted(database) == 3


def test_on_the_first_day_all_count(tmp_path: Path) -> None:
    """A new installation has a fleet at once."""
    database = Database(f"sqlite:///{tmp_path / 'new.db'}")
    database.migrate()
    report(database, ["a", "b"], NOW - 60)
    assert counted(database) == 2
    database.close()
