"""A connection has one request served and one that waits, and who sends many requests delays its own alone."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterator

import httpx
import pytest

from service.api.connections import STARTS_A_TURN, Turns
from service.api.protocol import MOST_HEAD_BYTES, MOST_HEADERS
from tests.service.api.test_api_connections import closed, eventually, from_another, half_open
from tests.support.served import serving

UNKNOWN = b"GET /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
CHUNKED = b"POST /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
LONG = b"X-Long: " + b"x" * (4 * MOST_HEAD_BYTES)
MANY = b"X-Many: x\r\n" * (2 * MOST_HEADERS)
WITHOUT_ENGINE = {"FAULTHOUND_ENGINE": "0", "FAULTHOUND_HEAD_SECONDS": "600"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service in a process of its own."""
    with serving(tmp_path_factory.mktemp("served"), WITHOUT_ENGINE) as (url, _):
        yield url


def answered(url: str) -> int:
    """The requests for an unknown path that the service has answered."""
    found = re.search(r'requests_total\{method="\(any\)",route="\(none\)",status="404"\} (\d+)', metrics(url))
    return int(float(found[1])) if found else 0


def metrics(url: str) -> str:
    """The service's numbers, asked for from an address of its own."""
    with from_another(url) as other:
        return other.get("/metrics").text


@pytest.mark.system
def test_a_connection_that_pipelines_ends_after_its_answers(url: str) -> None:
    """Of a thousand requests in one piece one is served, one waits, and the others are neither parsed nor kept."""
    before = answered(url)
    with half_open(url, 1, UNKNOWN * 1_000) as (one,):
        while _read(one):
            pass
    assert eventually(lambda: answered(url) == before + 2)
    assert closed(metrics(url), "pipelined") == 1


@pytest.mark.system
def test_a_request_that_comes_early_waits(url: str) -> None:
    """A client that sends its next request before it has the answer gets both, and the connection stays."""
    with half_open(url, 1, UNKNOWN * 2) as (one,):
        one.settimeout(60)
        read = b""  # a head and its body may come apart
        for answers in (2, 3):
            while read.count(b"HTTP/1.1 404") < answers:
                more = one.recv(1 << 16)
                assert more, "the connection was closed"
                read += more
            one.sendall(UNKNOWN)


@pytest.mark.system
@pytest.mark.parametrize(
    "sent", [HEAD + LONG, HEAD + MANY, CHUNKED + LONG, CHUNKED + MANY, b"\r\n" * MOST_HEAD_BYTES * 4],
    ids=["a long header", "many headers", "a long trailer", "many trailers", "empty lines"],
)  # fmt: skip
def test_a_head_has_a_size(url: str, sent: bytes) -> None:
    """What is no part of a body is kept up to its bound, and then its connection ends."""
    before = closed(metrics(url), "large")
    with half_open(url, 1, sent) as (one,):
        while _read(one):
            pass
    assert closed(metrics(url), "large") == before + 1
    assert httpx.get(f"{url}/healthz", headers={"X-Fitting": "x" * (MOST_HEAD_BYTES // 4)}).status_code == 200


def _read(one: socket.socket) -> bytes:
    one.settimeout(60)
    try:
        return one.recv(1 << 16)
    except ConnectionError:
        return b""


def test_requests_start_in_turns_of_their_addresses() -> None:
    """Behind two hundred requests of one address another's is the second, and the loop turns again after a few."""

    async def started() -> list[list[str]]:
        turns, turn = Turns(), list[str]()
        for number in range(200):
            turns.add("10.0.0.1", lambda number=number: turn.append(f"1: {number}"))
        turns.add("10.0.0.2", lambda: turn.append("2"))
        found = []
        for _ in range(1 + 201 // STARTS_A_TURN):
            await asyncio.sleep(0)
            found.append(turn.copy())
            turn.clear()
        return found

    found = asyncio.run(started())

    assert found[0][:3] == ["1: 0", "2", "1: 1"]
    assert {len(turn) for turn in found[:-1]} == {STARTS_A_TURN}
    assert sum(map(len, found)) == 201


def test_the_turn_of_an_address_comes_again_after_all_others() -> None:
    """Each of three addresses has its oldest request started before the second of any."""

    async def started() -> list[str]:
        turns, order = Turns(), list[str]()
        for name in "aaabbc":
            turns.add(name, lambda name=name: order.append(name))
        await asyncio.sleep(0)
        return order

    assert asyncio.run(started()) == list("abcaba")
