"""A node's fitness: what it rests on, and that a prolog never waits for it, whatever the database does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import insert

from service.api import node_fitness as fitness
from service.store.models import Cursor, Node
from tests.support.bounds import in_time
from tests.support.incident_rows import AT, seed, verdict
from tests.support.postgres import Server as Postgres
from tests.support.served import Client, an_event, served

ID = "inc-0123456789ab"
ANSWER_SECONDS = 0.2


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """Return a client of a service that two nodes report to."""
    with served(tmp_path) as client:
        reporting(client)
        yield client


def reporting(client: Client) -> None:
    """Have two nodes report, and the engine have seen it."""
    for node in ("gpu-0001", "gpu-0002"):
        client.ship(node, [an_event(node)])
    client.eventually("/v1/nodes", lambda page: len(page["items"]) == 2)
    with client.service.database.transaction() as session:
        session.add(Cursor(reader="engine", sequence=1_000))


def of(client: Client, node: str) -> dict[str, Any]:
    """Return a node's fitness."""
    answer = client.get(f"/v1/nodes/{node}/fitness")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def eventually(holds: Callable[[], bool]) -> None:
    """Wait for a look that is newer than what was just stored."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_node_that_an_open_incident_takes_out_is_unfit(client: Client) -> None:
    """Who is to be evicted is unfit, with the incident and its reason, until that is closed; others are fit."""
    seed(client.service.database)

    unfit, fit = of(client, "gpu-0002"), of(client, "gpu-0001")

    assert (unfit["fitness"], unfit["incident"], unfit["why"]) == ("unfit", ID, "it hangs alone")
    assert (fit["fitness"], fit["incident"]) == ("fit", None)
    assert abs(fit["as_of"] - time.time()) < 60
    client.post(f"/v1/incidents/{ID}/close", json={"reason": "done"}, headers={"If-Match": "*"})
    eventually(lambda: of(client, "gpu-0002")["fitness"] == "fit")


def test_a_node_that_is_only_to_be_probed_is_not_unfit(client: Client) -> None:
    """A verdict that proposes a probe takes no node away."""
    seed(client.service.database, verdicts=[verdict(action="probe")])

    assert of(client, "gpu-0002")["fitness"] == "fit"


def test_what_is_not_known_is_not_unfit(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node without an agent, one whose agent is silent, and an engine that is far behind: unknown, with the reason."""
    eventually(lambda: "no agent has reported" in of(client, "gpu-9999")["why"])
    with client.service.database.transaction() as session:
        row = session.get(Node, "gpu-0001")
        assert row is not None
        row.last_seen_at = AT
    eventually(lambda: of(client, "gpu-0001")["fitness"] == "unknown")
    assert of(client, "gpu-0002")["fitness"] == "fit"
    monkeypatch.setattr(fitness, "BEHIND_SECONDS", 0.0)
    with client.service.database.transaction() as session:
        cursor = session.get(Cursor, "engine")
        assert cursor is not None
        cursor.sequence = 0
    eventually(lambda: "behind" in of(client, "gpu-0002")["why"])


@contextmanager
def sleeping(server: Postgres, url: str, *tables: str) -> Iterator[None]:
    """Have a PostgreSQL sleep: whoever wants to read these tables waits."""
    name = url.partition("?")[0].rpartition("/")[2]
    with psycopg.connect(f"host={server.folder} user=tester dbname={name}") as connection:
        for table in tables:
            connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield
        connection.rollback()


def timed(client: Client, node: str = "gpu-0002", requests: int = 12) -> tuple[set[str], float]:
    """Return what some requests were answered, one after the other, and in what time nine in ten were."""
    answers, seconds = set(), []
    for _ in range(requests):
        began = time.monotonic()
        answers.add(of(client, node)["fitness"])
        seconds.append(time.monotonic() - began)
    print(f"{requests} answers: the slowest {1e3 * max(seconds):.0f} ms")
    return answers, sorted(seconds)[int(0.9 * requests)]  # a busy machine makes one wait in any program


@pytest.mark.system
def test_a_sleeping_database_keeps_no_prolog_waiting(tmp_path: Path, postgres: Postgres) -> None:
    """While the tables cannot be read each answer comes in 200 ms: what was known for 15 seconds, then unknown."""
    url = postgres.new_migrated()
    with served(tmp_path, database_url=url) as client:
        reporting(client)
        seed(client.service.database)
        assert of(client, "gpu-0002")["fitness"] == "unfit"
        with sleeping(postgres, url, "unfit_nodes"):
            time.sleep(fitness.FRESH_SECONDS)
            known, known_seconds = timed(client)
            seen = client.service.fitness._seen
            assert seen is not None
            object.__setattr__(seen, "looked_at", seen.looked_at - fitness.STALE_SECONDS)
            stale, stale_seconds = timed(client)
        eventually(lambda: of(client, "gpu-0002")["fitness"] == "unfit")

    assert (known, stale) == ({"unfit"}, {"unknown"})
    assert in_time(max(known_seconds, stale_seconds), ANSWER_SECONDS)


def test_a_token_that_cannot_be_looked_up_keeps_none_waiting(tmp_path: Path, postgres: Postgres) -> None:
    """Where the table of tokens sleeps the answer is unknown and tells nothing; a wrong token is refused once it wakes."""
    url = postgres.new_migrated()
    with served(tmp_path, database_url=url) as client:
        reporting(client)
        secret = client.service.tokens.make("prolog", ["read"])[1]
        reader, stranger = client.as_(secret), client.as_("fh_nobody")
        with sleeping(postgres, url, "tokens"):
            answers, seconds = timed(reader)
            assert of(stranger, "gpu-0002") == {
                "node": "gpu-0002", "fitness": "unknown", "why": "the database does not answer in time",
                "incident": None, "as_of": None,
            }  # fmt: skip
        assert answers == {"unknown"}
        assert in_time(seconds, ANSWER_SECONDS)
        eventually(lambda: of(reader, "gpu-0002")["fitness"] == "fit")
        assert stranger.get("/v1/nodes/gpu-0002/fitness").status_code == 401


def test_a_database_that_is_gone_keeps_none_waiting(tmp_path: Path, postgres: Postgres) -> None:
    """While the server is stopped the answers come in 200 ms, and afterwards they are right again."""
    url = postgres.new_migrated()
    with served(tmp_path, database_url=url) as client:
        reporting(client)
        secret = client.service.tokens.make("prolog", ["read"])[1]
        reader = client.as_(secret)
        assert of(reader, "gpu-0002")["fitness"] == "fit"
        postgres.stop("immediate")
        try:
            client.service.fitness._seen = None
            answers, seconds = timed(reader)
        finally:
            postgres.start()
        eventually(lambda: of(reader, "gpu-0002")["fitness"] == "fit")

    assert answers == {"unknown"}
    assert in_time(seconds, ANSWER_SECONDS)


def test_a_thousand_prologs_at_once_look_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole cluster that asks in the same moment costs the database one look, and all are answered from it."""
    looks: list[float] = []
    read = fitness.Fitness._read

    def counted(self: fitness.Fitness) -> Any:
        looks.append(time.monotonic())
        return read(self)

    monkeypatch.setattr(fitness.Fitness, "_read", counted)
    monkeypatch.setattr(fitness, "WAIT_SECONDS", 10.0)
    service = client.service

    async def ask() -> list[fitness.FitnessDocument]:
        return await asyncio.gather(*(service.fitness.find("gpu-0001") for _ in range(1_000)))

    answers = asyncio.run_coroutine_threadsafe(ask(), service.streams._task.get_loop()).result(30)

    assert len(looks) == 1
    assert {answer.fitness for answer in answers} == {"fit"}


def test_a_look_at_a_large_fleet_is_short(client: Client) -> None:
    """Sixteen thousand nodes are looked at in less than a quarter of the time for which a look serves."""
    at = time.time()
    one = {"first_seen_at": at, "last_seen_at": at, "coverage": {}, "devices": {}}
    with client.service.database.transaction() as session:
        session.execute(insert(Node), [{"name": f"n{number:05d}", **one} for number in range(16_384)])
    began = time.process_time()

    client.service.fitness._read()

    assert time.process_time() - began < fitness.FRESH_SECONDS / 4
    eventually(lambda: of(client, "n16383")["fitness"] == "fit")
