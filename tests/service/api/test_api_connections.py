"""Connections that ask for nothing end, and take no place from the agents of other addresses."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from collectors.records import block
from service.api import connections, middleware
from service.api.connections import Connections
from service.api.problems import Problem
from tests.support.served import BLOCK_TYPE, an_event, served, serving

pytestmark = pytest.mark.system

FILES = 1_024  # of a service started by hand: the soft and the hard limit of many systems
HALF_OPEN = 1_100
HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
HALF_A_BODY = (
    b"POST /v1/holds HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
)
HEADERS = {"Content-Type": BLOCK_TYPE, "Faulthound-Node": "gpu-0001", "Faulthound-Batch": "b1"}


class Ended:
    """A connection that notes why it was ended."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def end(self, reason: str) -> None:
        """Note a reason."""
        self.reasons.append(reason)


def eventually(holds: Callable[[], bool]) -> bool:
    """Whether something holds within half a minute."""
    deadline = time.monotonic() + 30
    while not (held := holds()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return held


@contextmanager
def half_open(url: str, count: int, sent: bytes, addresses: int = 0) -> Iterator[list[socket.socket]]:
    """Hold so many connections that have sent the beginning of a request, from 127.0.0.1 or so many addresses."""
    address = urlsplit(url)
    with ExitStack() as held:
        sockets = []
        for number in range(count):
            source = (
                f"127.1.{number % addresses // 250}.{1 + number % addresses % 250}" if addresses else "127.0.0.1",
                0,
            )
            one = held.enter_context(socket.create_connection((address.hostname, address.port), 10, source))
            sockets.append(one)
            try:
                one.sendall(sent)
            except OSError:
                continue  # it was closed already
        yield sockets


def from_another(url: str) -> httpx.Client:
    """Return a client whose connections come from 127.0.0.2."""
    return httpx.Client(base_url=url, transport=httpx.HTTPTransport(local_address="127.0.0.2"), timeout=30)


def closed(text: str, reason: str) -> int:
    """The connections that were closed for a reason, as the metrics have it."""
    found = re.search(rf'faulthound_connections_closed_total{{reason="{reason}"}} (\d+)', text)
    return int(float(found[1])) if found else -1


def has_ended(one: socket.socket) -> bool:
    """Whether the service has closed a connection."""
    one.settimeout(0.01)
    try:
        while one.recv(4096):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


@pytest.mark.parametrize(
    "sent", [pytest.param(b"", marks=pytest.mark.acceptance), HEAD], ids=["nothing", "half a head"]
)
def test_half_open_requests_of_one_address_lock_out_no_agent(tmp_path: Path, sent: bytes) -> None:
    """While one address holds more half-open requests than the process has files, another's batch is acknowledged."""
    variables = {"FAULTHOUND_HEAD_SECONDS": "600", "FAULTHOUND_ENGINE": "0"}
    with (
        serving(tmp_path, variables, files=FILES) as (url, _),
        half_open(url, HALF_OPEN, sent),
        from_another(url) as agent,
    ):
        data = block.encode([an_event("gpu-0001")])
        answer = agent.post("/v1/records", content=data, headers=HEADERS)
        metrics = agent.get("/metrics").text

    assert answer.status_code == 202
    assert closed(metrics, "address") >= HALF_OPEN - FILES // connections.SHARE_OF_FILES


@pytest.mark.parametrize(
    "sent",
    [HALF_A_BODY, *(pytest.param(one, marks=pytest.mark.acceptance) for one in (HEAD, WHOLE))],
    ids=["half a body", "half a head", "a request"],
)
def test_many_addresses_lock_out_no_agent(tmp_path: Path, sent: bytes) -> None:
    """Five hundred addresses hold more connections than the process has files: an agent's batch is acknowledged."""
    variables = {"FAULTHOUND_HEAD_SECONDS": "600", "FAULTHOUND_ENGINE": "0"}
    with (
        serving(tmp_path, variables, files=FILES) as (url, _),
        half_open(url, HALF_OPEN, sent, addresses=500),
        from_another(url) as agent,
    ):
        answer = agent.post("/v1/records", content=block.encode([an_event("gpu-0001")]), headers=HEADERS)
        metrics = agent.get("/metrics").text

    assert answer.status_code == 202
    assert closed(metrics, "room") >= HALF_OPEN - FILES


def test_a_request_without_a_whole_head_ends(tmp_path: Path) -> None:
    """Silence, half a head, bytes that trickle in, empty lines, and half a second request: each ends at the bound."""
    variables = {"FAULTHOUND_HEAD_SECONDS": "1", "FAULTHOUND_ENGINE": "0"}
    with serving(tmp_path, variables) as (url, _), ExitStack() as held:
        sockets = [held.enter_context(half_open(url, 1, sent))[0] for sent in (b"", HEAD, b"\r\n", WHOLE + HEAD, WHOLE)]
        assert sockets[-1].recv(4096)
        sockets[-1].sendall(b"\r\n")
        trickling = held.enter_context(half_open(url, 1, HEAD))[0]
        idle = held.enter_context(half_open(url, 1, WHOLE))[0]

        assert eventually(lambda: _send(trickling) or has_ended(trickling))
        assert eventually(lambda: all(map(has_ended, sockets)))
        assert not has_ended(idle), "a connection between two requests is kept"
        assert closed(httpx.get(f"{url}/metrics").text, "head") == 6


def _send(one: socket.socket) -> bool:
    try:
        one.sendall(b"x")
    except OSError:
        return True
    return False


def test_an_address_has_its_own_bound() -> None:
    """An operator's bound holds; without one it is a share of the files. Those that left count no more."""
    watched, one = Connections(2), Ended()

    assert [watched.admit("10.0.0.1") for _ in range(3)] == ["", "", "address"]
    assert watched.admit("10.0.0.2") == ""
    watched.leave("10.0.0.1", one)
    watched.leave("10.0.0.1", one)
    assert watched.admit("10.0.0.1") == ""
    assert (watched.open, Connections().most_of_an_address >= 16) == (3, True)


def test_who_waits_longest_for_its_peer_leaves_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no room: a half-open connection before an idle one, the oldest of each; one that is served never."""
    monkeypatch.setattr(connections, "MOST_OPEN", 4)
    watched, (served_one, idle, older, newer) = Connections(100), (Ended(), Ended(), Ended(), Ended())
    for one in (served_one, idle, older, newer):
        assert watched.admit("10.0.0.1") == ""
        watched.stand(one, "half-open")
    watched.stand(idle, "idle")
    watched.stand(served_one, "served")

    refusals = [watched.admit("10.0.0.2") for _ in range(4)]

    assert [one.reasons for one in (older, newer, idle, served_one)] == [["room"], ["room"], ["room"], []]
    assert refusals == ["", "", "", "room"]


def test_a_body_that_does_not_arrive_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that the framework reads has a time; what is awaited after it, as by a stream, has none."""
    monkeypatch.setattr(middleware, "BODY_SECONDS", 0.05)

    async def attempt(*messages: dict[str, object]) -> list[str]:
        left = list(messages)

        async def receive() -> dict[str, object]:
            if not left:
                await asyncio.sleep(0.2)
                return {"type": "http.disconnect"}
            return left.pop(0)

        bounded = middleware._Body(receive, middleware.Arriving())
        return [str((await bounded())["type"]) for _ in range(len(messages) + 1)]

    part = {"type": "http.request", "body": b"x", "more_body": True}
    assert asyncio.run(attempt({**part, "more_body": False})) == ["http.request", "http.disconnect"]
    with pytest.raises(Problem, match="had not arrived"):
        asyncio.run(attempt(part))


def test_bodies_of_strangers_are_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The framework reads a body before it knows the token: what it holds of all of them has a bound, and is given back."""
    monkeypatch.setattr(middleware, "ARRIVING_BYTES", 1 << 20)
    with served(tmp_path, engine=False) as client, ExitStack() as held:
        client.post("/v1/tokens", json={"name": "a", "scopes": ["admin"]})
        head = b"POST /v1/holds HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 4000000\r\n\r\n"
        sockets = held.enter_context(half_open(client.url, 12, head + bytes(200_000)))
        # Four or five of the twelve are held, as they come: the rest is less than this one needs.
        assert eventually(lambda: client.post("/v1/holds", content=bytes(600_000)).status_code == 503)
        for one in sockets:
            one.close()
        assert eventually(lambda: client.post("/v1/holds", json={}).status_code in (401, 422))
