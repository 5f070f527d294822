"""The event stream: what happens arrives in order, once, also across lost connections; nobody can hold the service up."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.api import streams
from service.store import timeline
from service.store.database import Database
from tests.support.bounds import in_time
from tests.support.incident_rows import AT, JOB, seed
from tests.support.postgres import Server
from tests.support.served import Client, served


def happen(database: Database, count: int = 1, **details: Any) -> None:
    """Have so many things happen, each in a transaction of its own."""
    for number in range(count):
        with database.transaction() as session:
            timeline.add(session, AT, "alarm", None, None, {"number": number, **details})


class Reader:
    """What an EventSource does: reads blocks, remembers the last id, and ignores comments."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.iter_lines()
        self.last_id = ""
        self.comments = 0

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the data of each event."""
        block: dict[str, str] = {}
        for line in self._lines:
            if line.startswith(":"):
                self.comments += 1
            elif line:
                name, _, value = line.partition(": ")
                block[name] = value
            elif block:
                self.last_id = block.get("id", self.last_id)
                if "data" in block:
                    yield {**json.loads(block["data"]), "event": block["event"], "id": block["id"]}
                block = {}


@contextmanager
def streaming(client: Client, **asked: Any) -> Iterator[Reader]:
    """Open a stream; headers are given as `headers`."""
    headers = asked.pop("headers", {})
    with client.stream("GET", "/v1/stream", params=asked, headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        yield Reader(answer)


def read(client: Client, **asked: Any) -> list[dict[str, Any]]:
    """Return what there is."""
    with streaming(client, wait_seconds=0, **asked) as reader:
        return list(reader.events())


def test_what_happens_arrives(client: Client) -> None:
    """Whoever listens gets what happens from then on within two seconds, with its place as id and its kind as event."""
    happen(client.service.database)
    with streaming(client, wait_seconds=20) as reader:
        events = reader.events()
        threading.Timer(0.3, lambda: seed(client.service.database)).start()
        began = time.monotonic()
        first = next(events)

    assert in_time(time.monotonic() - began, 2.3)
    assert (first["event"], first["kind"], first["incident"]) == ("opened", "opened", "inc-0123456789ab")
    assert first["id"] == str(first["sequence"]) == "2"


@pytest.mark.system
def test_a_lost_connection_loses_nothing(client: Client) -> None:
    """A reader that is cut off after every few events and comes back with its last id sees each once and in order."""
    database = client.service.database
    writer = threading.Thread(target=happen, args=(database, 120))
    writer.start()
    seen: list[int] = []
    last_id = "0"
    deadline = time.monotonic() + 60
    while len(seen) < 120 and time.monotonic() < deadline:
        with streaming(client, wait_seconds=2, headers={"Last-Event-ID": last_id}) as reader:
            for event in islice(reader.events(), 7):
                seen.append(event["details"]["number"])
                last_id = event["id"]
    writer.join()

    assert seen == list(range(120))


def test_a_connection_lost_before_anything_happened(client: Client) -> None:
    """The stream's beginning tells its place: what happens between two connections is in the second."""
    happen(client.service.database)
    with streaming(client, wait_seconds=0) as reader:
        assert list(reader.events()) == []
    happen(client.service.database, word="between")

    assert [one["details"]["word"] for one in read(client, headers={"Last-Event-ID": reader.last_id})] == ["between"]


def test_a_stream_is_of_a_job_or_an_incident(client: Client) -> None:
    """With a filter comes what is of that job or incident, also past pages that hold nothing of it."""
    database = client.service.database
    seed(database, "inc-a")
    happen(database, streams.ROWS_AT_ONCE + 5)
    seed(database, "inc-b", job="other", verdicts=())

    assert {one["incident"] for one in read(client, after=0, job=JOB)} == {"inc-a"}
    assert [one["kind"] for one in read(client, after=0, incident="inc-b")] == ["opened"]
    assert len(read(client, after=0)) == streams.ROWS_AT_ONCE + 9


def test_a_place_of_another_database_is_the_end(client: Client) -> None:
    """An id that is not there yet does not blind the reader for what comes next."""
    happen(client.service.database, 3)
    with streaming(client, wait_seconds=5, headers={"Last-Event-ID": "999999"}) as reader:
        happen(client.service.database, word="next")

        assert next(reader.events())["details"]["word"] == "next"


@pytest.mark.parametrize("asked", [{"after": -1}, {"wait_seconds": 1e9}, {"incident": "../x"}, {"after": "x"}])
def test_a_wrong_wish_is_refused(client: Client, asked: dict[str, Any]) -> None:
    """Places and durations outside their bounds are 422, as is a last id that no stream gave."""
    assert client.get("/v1/stream", params=asked).status_code == 422
    assert client.get("/v1/stream", headers={"Last-Event-ID": "x"}).status_code == 422


def test_a_quiet_stream_is_kept_alive(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """While nothing happens a comment comes in every interval, so that no proxy takes the stream for dead."""
    monkeypatch.setattr("fastapi.routing._PING_INTERVAL", 0.2)

    with streaming(client, wait_seconds=1.5) as reader:
        assert list(reader.events()) == []

    assert 3 <= reader.comments <= 8


def open_streams(client: Client, count: int) -> None:
    """Wait until so many streams are open."""
    deadline = time.monotonic() + 60
    while client.service.streams.count != count:
        assert time.monotonic() < deadline, f"{client.service.streams.count} streams are open, and not {count}"
        time.sleep(0.02)


def test_streams_are_bounded_and_given_back(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """One stream too many is turned away; a reader that has left makes room for another."""
    monkeypatch.setattr(streams, "MOST_STREAMS", 2)
    with streaming(client), streaming(client):
        open_streams(client, 2)
        refused = client.get("/v1/stream?wait_seconds=0")
    open_streams(client, 0)

    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "5")
    assert read(client) == []


def test_many_that_come_at_once_are_bounded_too(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of twelve streams that are asked for in the same moment, while the table is slow, no more are opened than may be."""
    monkeypatch.setattr(streams, "MOST_STREAMS", 2)
    whole = streams.Streams.newest

    def slow(self: streams.Streams) -> int:
        time.sleep(0.1)
        return whole(self)

    monkeypatch.setattr(streams.Streams, "newest", slow)
    codes: list[int] = []

    def ask() -> None:
        with client.stream("GET", "/v1/stream", params={"wait_seconds": 2}) as answer:
            codes.append(answer.status_code)
            answer.read()

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert codes.count(200) == 2
    assert codes.count(429) == 10


def test_a_revoked_token_ends_its_streams(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever lost the right to read sees nothing of what happens after the next look; another's stream goes on."""
    monkeypatch.setattr(streams, "CHECK_SECONDS", 0.1)
    tokens = client.service.tokens
    (row, secret), (_, other) = tokens.make("gone", ["read"]), tokens.make("stays", ["read"])
    with (
        streaming(client.as_(secret), wait_seconds=100) as reader,
        streaming(client.as_(other), wait_seconds=100) as kept,
    ):
        open_streams(client, 2)
        tokens.revoke(row.id)
        began = time.monotonic()
        assert list(reader.events()) == []
        assert in_time(time.monotonic() - began, 5)
        happen(client.service.database)

        assert next(kept.events())["kind"] == "alarm"


def test_a_slow_reader_is_dropped(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that takes nothing is left after the bound with what fits into the sockets; others are served meanwhile."""
    monkeypatch.setattr(streams, "SLOW_SECONDS", 0.5)
    monkeypatch.setattr(streams, "ROWS_AT_ONCE", 20)
    happen(client.service.database, 50, more=["y" * 400_000])
    address = (client.base_url.host, client.base_url.port or 0)
    with socket.create_connection(address) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        slow.sendall(b"GET /v1/stream?after=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        open_streams(client, 1)
        assert len(read(client, after=40)) == 10
        open_streams(client, 0)


def test_a_stopping_service_ends_its_streams(client: Client) -> None:
    """When the service is asked to stop, streams end whole and at once."""
    with streaming(client) as reader:
        open_streams(client, 1)
        client.service.streams._task.get_loop().call_soon_threadsafe(client.service.end_waits)
        began = time.monotonic()

        assert list(reader.events()) == []
    assert in_time(time.monotonic() - began, 2)


@pytest.mark.system
def test_a_database_that_is_away_ends_the_stream(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the table cannot be read the stream ends, and the reader that comes again goes on where it was."""
    from sqlalchemy.exc import OperationalError

    whole, was_read = streams.Streams.read, threading.Event()

    def first(*arguments: Any) -> Any:
        found = whole(*arguments)
        was_read.set()
        return found

    def away(*_: object) -> object:
        raise OperationalError("SELECT", {}, Exception("gone"))

    monkeypatch.setattr(streams.Streams, "read", first)
    with streaming(client) as reader:
        open_streams(client, 1)
        assert was_read.wait(60)  # a read under way would still see what happens next
        monkeypatch.setattr(streams.Streams, "read", away)
        happen(client.service.database)
        assert list(reader.events()) == []
    monkeypatch.setattr(streams.Streams, "read", whole)

    assert len(read(client, headers={"Last-Event-ID": reader.last_id})) == 1


@pytest.mark.system
def test_no_commit_is_overtaken_on_postgresql(tmp_path: Path, postgres: Server) -> None:
    """Eight writers that commit late, and a reader that never looks back: it sees all of them."""
    with served(tmp_path, database_url=postgres.new_migrated()) as client:
        database = client.service.database

        def write(writer: int) -> None:
            for number in range(15):
                with database.transaction() as session:
                    timeline.add(session, AT, "alarm", None, None, {"number": writer * 15 + number})
                    time.sleep(0.002 * (writer % 3))

        threads = [threading.Thread(target=write, args=(writer,)) for writer in range(8)]
        with streaming(client, after=0, wait_seconds=20) as reader:
            for thread in threads:
                thread.start()
            seen = [event["details"]["number"] for event in islice(reader.events(), 120)]
        for thread in threads:
            thread.join()

    assert sorted(seen) == list(range(120))


def test_an_idle_service_does_not_look(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """While no stream is open the table is not asked."""
    looked = threading.Event()
    monkeypatch.setattr(streams.Streams, "newest", lambda _: looked.set())

    assert not looked.wait(0.8)
