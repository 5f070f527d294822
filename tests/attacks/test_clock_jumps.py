"""Clocks that are set: random sequences on simulated clocks, and the real service with a shifted wall clock.

``python -m tests.acceptance.clock_jumps`` plays more than ten times as many, and the service that is killed and started again in
the future in its smallest form, too.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from service.store.database import Database
from tests.support.clock_scenes import DAY_SECONDS, ShiftedService, jump_while_running, restart_in_the_future
from tests.support.clock_world import EVENTS, ClockWorld, play

pytestmark = pytest.mark.system


@pytest.fixture
def quick(database: Database) -> Database:
    """Return a database that does not wait for its disk: no disk fails here."""
    if database.is_sqlite:
        event.listen(database.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF"))
        database.engine.dispose()
    return database


def played() -> Iterator[Any]:
    """Give every event on SQLite, and on PostgreSQL one; the others there are a second proof."""
    for url, kind in product(("sqlite", "postgresql"), sorted(EVENTS)):
        yield pytest.param(
            url, kind, marks=pytest.mark.acceptance if (url, kind != "kill") == ("postgresql", True) else ()
        )


@pytest.mark.parametrize(("url", "kind"), [*played()], indirect=["url"])
def test_what_is_kept_and_known_outlives_one_event(quick: Database, kind: str) -> None:
    """Nothing young is deleted, no declaration and no hold is lost, one engine works, and all is known within a minute."""
    world = ClockWorld(quick, random.Random(kind))

    assert play(world, [kind]) == []


@pytest.mark.parametrize(
    "kind", ["kill", *(pytest.param(one, marks=pytest.mark.acceptance) for one in ("jump", "power cut"))]
)
def test_a_service_that_believes_its_wall_clock_fails(tmp_path: Path, kind: str) -> None:
    """The control: without a held time the same events break the same rules."""
    database = Database(f"sqlite:///{tmp_path / 'naive.db'}")
    database.migrate()

    assert play(ClockWorld(database, random.Random(kind), naive=True), [kind] * 3) != []
    database.close()


@pytest.mark.acceptance
def test_a_service_that_starts_in_the_future_deletes_nothing(tmp_path: Path) -> None:
    """Killed and started again 20 days ahead, the real service keeps its log and declarations, and works once it is right."""
    assert restart_in_the_future(ShiftedService(tmp_path, {})) == []


@pytest.mark.slow
def test_a_day_for_seconds_freezes_nothing(tmp_path: Path) -> None:
    """A real service whose wall clock is a day ahead for some seconds reports it, and knows what happens then and after."""
    assert jump_while_running(ShiftedService(tmp_path, {}), DAY_SECONDS, 12.0) == []
