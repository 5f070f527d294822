"""The rank map that an owner declares reaches the engine: after the job began, when it changes, and when an engine starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collectors.records import Members, Placement, block
from service.engine.driver import Driver
from service.engine.numbers import Numbers
from service.store.database import Database
from service.store.leases import RENEW_SECONDS, Lease
from service.store.log import Incoming, Log
from service.store.models import Job
from service.store.placements import hosting_of
from tests.support.simulated_fleet import knowledge

BEGAN_AT = 1_000_000.0


class NoJudges:
    """Nothing is judged here."""

    count, seconds_total, pipes = 0, 0.0, ()

    def turn(self) -> list[Any]:
        """Have nothing."""
        return []


class Desk:
    """A store, an engine on it, and a clock."""

    def __init__(self, folder: Path) -> None:
        self.database = Database(f"sqlite:///{folder / 'store.db'}")
        self.database.migrate()
        self.now, self._count = BEGAN_AT, 0
        self.driver = self.engine()

    def engine(self) -> Driver:
        """Begin an engine."""
        lease = Lease(self.database, "engine", "a", lambda: self.now)
        assert lease.take()
        judges: Any = NoJudges()
        self.driver = Driver(self.database, lease, knowledge(), judges, Numbers(), lambda: self.now)
        return self.driver

    def declare(self, *nodes: str) -> None:
        """Declare the job's nodes, as the API does."""
        with self.database.transaction() as session:
            row = session.get(Job, "run")
            if row is None:
                session.add(row := Job(name="run", first_seen_at=self.now, last_seen_at=self.now, version=0))
            row.declared, row.declared_at, row.version = {"nodes": list(nodes)}, self.now, row.version + 1

    def send(self, *nodes: str) -> None:
        """Let nodes claim ranks 0 and 1, let the engine's next look at the declarations be due, and take its turn."""
        for node in nodes:
            placed = Placement(job="run", attempt=0, ranks=Members.of((0, 1)), pids=(7, 8), world_size=2)
            self._count += 1
            data = block.encode([placed])
            Log(self.database).append([Incoming(node, f"{self._count}", self.now, self.now, 1, data)])
        self.now += RENEW_SECONDS
        for _ in range(2):
            self.driver.turn()

    @property
    def hosts(self) -> list[str]:
        """Return who hosts rank 0."""
        return [node for _, node in self.driver.state.hosting["run"].maps[0].by_rank[0]]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Return an engine that knows no job."""
    return Desk(tmp_path)


def test_a_declaration_moves_the_ranks_to_its_node(desk: Desk) -> None:
    """A stranger was first; the declaration comes later, and is changed again."""
    desk.send("stranger", "n0")
    assert desk.hosts == ["stranger"]

    desk.declare("n0", "n0")
    desk.send()
    assert desk.hosts == ["n0"]

    desk.declare("stranger", "stranger")
    desk.send()
    assert desk.hosts == ["stranger"]


def test_an_engine_that_starts_knows_it_before_the_log(desk: Desk) -> None:
    """The claims of the log are weighed by the declaration, and so are those of a job that begins."""
    desk.declare("n0", "n0")
    desk.send("stranger", "n0")
    assert desk.hosts == ["n0"]

    desk.send()
    state = desk.engine().state

    assert state.declared["run"].nodes == ("n0", "n0")
    assert desk.hosts == ["n0"]


def test_the_map_of_a_job_that_is_no_more_is_forgotten(desk: Desk) -> None:
    """Neither seen nor declared for an hour, and nothing reports it."""
    desk.declare("n0", "n0")
    desk.send()
    assert "run" in desk.driver.state.declared

    desk.now += 3_700.0
    desk.send()

    assert desk.driver.state.declared == {}


def test_the_table_of_placements_follows_it(desk: Desk) -> None:
    """A claim that is weighed by the table's hosts is weighed by the declaration too."""
    desk.declare("n0", "n0")
    with desk.database.session() as session:
        hosting = hosting_of(session, "run", desk.now)
    for node in ("stranger", "n0"):
        hosting.take(node, [Placement(job="run", attempt=0, ranks=Members.of((0, 1)), pids=(7, 8))], desk.now)

    assert hosting.refused("stranger", 0) == {(0, ""), (1, "")}
