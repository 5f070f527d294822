"""Votes on the service's time: a name under which two clocks speak has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.records import Coverage
from service.store.database import Database
from service.store.log import Stored
from service.store.node_clocks import DISPUTED_SECONDS, NodeClocks, read_votes
from service.store.observations import Observations

AT, DAY = 1_800_000_000.0, 86_400.0


@pytest.fixture
def embedded(tmp_path: Path) -> Database:
    """Return a store."""
    database = Database(f"sqlite:///{tmp_path / 'store.db'}")
    database.migrate()
    return database


def taken(database: Database, observations: Observations, at: float, *sent: tuple[str, float]) -> dict[str, float]:
    """Let batches come, (node, by how much its clock is ahead); return the votes then."""
    with database.transaction() as session:
        for number, (node, ahead) in enumerate(sent):
            stored = Stored(1, node, f"{at}-{number}", at + ahead, at, 1, b"")
            observations.note(session, stored, [Coverage(at=at)])
        observations.write(session)
    with database.session() as session:
        return {name: round(ahead) for name, ahead in read_votes(session, at, "own").items()}


@pytest.mark.system
def test_who_reports_under_known_names_does_not_vote_for_them(embedded: Database) -> None:
    """A day of lies under every known name, many times as often as the agents report: the agents' clocks or nothing count."""
    observations, nodes = Observations(), ("a", "b", "c")
    seen: set[int] = set()
    for number in range(0, 300, 5):
        at = AT + number
        lies = [(node, DAY) for node in nodes] if number > 100 else []
        own = [(node, 0.0) for node in nodes] if number % 10 == 0 else []
        votes = taken(embedded, observations, at, *lies, *own)
        if number > 110:
            seen.update(votes.values())

    assert seen == set()


def test_one_change_is_a_change(embedded: Database) -> None:
    """A node's clock that was set, or a service that adopted another time, goes on to vote."""
    observations = Observations()
    for number in range(10):
        taken(embedded, observations, AT + 10 * number, ("a", 0.0))
    for number in range(10, 20):
        votes = taken(embedded, observations, AT + 10 * number, ("a", -7_200.0))

    assert votes == {"a": -7_200}


def test_a_disputed_name_votes_again() -> None:
    """Ten minutes after the second voice has ended."""
    clocks = NodeClocks()

    said = [clocks.take("a", ahead, AT + at) for at, ahead in ((0, 0.0), (5, DAY), (10, 0.0), (20, 1.0))]
    again = clocks.take("a", 2.0, AT + 10 + DISPUTED_SECONDS)

    assert said == [0.0, DAY, None, None]
    assert again == 2.0
