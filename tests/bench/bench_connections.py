"""How long a client waits beside another that takes all it can get: connections that pipeline, or that never finish a request.

    quiet       the client alone
    asking      200 connections of one address, a request at a time each: what no server can refuse
    pipelining  200 connections of one address, each of which sends requests as fast as they are read
    half_open   500 addresses of four connections each, which send half a head and open anew where they are closed; the
                service may open 1,024 files

The client, of another address, sends a batch every tenth of a second on a connection that it keeps, and asks for /healthz on a
new one. The other is a process of its own on the same machine, and takes a processor's time from the service.

    python -m tests.bench.bench_connections [--smallest]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from collectors.records import block
from tests.bench.measure import REPOSITORY, provenance
from tests.support.served import BLOCK_TYPE, an_event, serving

SECONDS, SMALLEST_SECONDS, SETTLING_SECONDS = 12.0, 2.0, 3.0
EVERY_SECONDS, LONGEST_SECONDS = 0.1, 60.0
CONNECTIONS, ADDRESSES, OF_AN_ADDRESS = 200, 500, 4
FILES = {"half_open": 1_024}  # that the service may open; others: as many as this process
REQUEST = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
HALF_A_HEAD = b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Slow: "
PIPELINED = REQUEST * ((256 << 10) // len(REQUEST))
CLIENT, OTHER = "127.0.0.2", "127.0.0.3"
Where = tuple[str, int]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def opened(where: Where, address: str) -> Streams:
    """Return a connection from an address of this machine."""
    return await asyncio.open_connection(*where, local_addr=(address, 0))


async def status(streams: Streams, request: bytes) -> int:
    """Return the status of the answer to one request."""
    reader, writer = streams
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    await reader.readexactly(length)
    return int(head[9:12])


# --- the other


async def keep_asking(where: Where, address: str) -> None:
    """Ask again and again, a request at a time."""
    streams = await opened(where, address)
    try:
        while True:
            await status(streams, REQUEST)
    finally:
        streams[1].close()


async def pipeline(where: Where, address: str) -> None:
    """Send requests as fast as they are read, and read the answers away."""
    reader, writer = await opened(where, address)

    async def read() -> None:
        while await reader.read(1 << 16):
            pass

    async def write() -> None:
        while True:
            writer.write(PIPELINED)
            await writer.drain()

    both = [asyncio.create_task(read()), asyncio.create_task(write())]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in both:
            one.cancel()
        await asyncio.gather(*both, return_exceptions=True)
        writer.close()


async def half_open(where: Where, address: str) -> None:
    """Send half a head, and wait until the connection is closed."""
    reader, writer = await opened(where, address)
    writer.write(HALF_A_HEAD)
    try:
        await reader.read(1)
    finally:
        writer.close()


OTHERS: dict[str, tuple[Callable[[Where, str], Awaitable[None]], list[str]]] = {
    "asking": (keep_asking, [OTHER] * CONNECTIONS),
    "pipelining": (pipeline, [OTHER] * CONNECTIONS),
    "half_open": (
        half_open,
        [f"127.1.{number // 250}.{1 + number % 250}" for number in range(ADDRESSES) for _ in range(OF_AN_ADDRESS)],
    ),
}


async def take_all(kind: str, where: Where) -> None:
    """Run one of the others, without an end."""
    act, addresses = OTHERS[kind]

    async def again_and_again(address: str) -> None:
        while True:
            with suppress(OSError, EOFError, ValueError, StopIteration):
                await act(where, address)
            await asyncio.sleep(0.01)

    await asyncio.gather(*map(again_and_again, addresses))


@contextmanager
def beside(kind: str, url: str) -> Iterator[None]:
    """Run one of the others in a process of its own."""
    if kind not in OTHERS:
        yield
        return
    command = [sys.executable, "-m", "tests.bench.bench_connections", "--other", kind, url]
    process = subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.DEVNULL)
    try:
        time.sleep(SETTLING_SECONDS)
        yield
    finally:
        process.kill()
        process.wait()


# --- the client


class Waits:
    """How long one kind of request of the client took, and how many of them failed."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.failed = 0

    async def take(self, ask: Callable[[], Awaitable[int]], expected: int) -> bool:
        """Ask once; return whether the answer was the expected one."""
        began_at = time.monotonic()
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                right = await ask() == expected
        except (OSError, EOFError, ValueError, StopIteration, TimeoutError):
            right = False
        self.seconds.append(time.monotonic() - began_at)
        self.failed += not right
        return right

    def summary(self) -> dict[str, float]:
        """Return them in milliseconds."""
        ordered = sorted(self.seconds)
        return {
            "asked": len(ordered),
            "failed": self.failed,
            "p50_ms": round(statistics.median(ordered) * 1e3, 1),
            "p99_ms": round(ordered[int(len(ordered) * 0.99)] * 1e3, 1),
            "longest_ms": round(ordered[-1] * 1e3, 1),
        }


async def asked(where: Where, seconds: float) -> dict[str, Any]:
    """Return how long the client waited, on a kept connection and on new ones."""
    kept, new, until = Waits(), Waits(), time.monotonic() + seconds

    async def on_a_new_one() -> int:
        streams = await opened(where, CLIENT)
        try:
            return await status(streams, REQUEST)
        finally:
            streams[1].close()

    async def send() -> None:
        streams, numbers = None, count()
        while time.monotonic() < until:
            streams = streams or await opened(where, CLIENT)
            if not await kept.take(partial(status, streams, batch(next(numbers))), 202):
                streams[1].close()
                streams = None
            await asyncio.sleep(EVERY_SECONDS)

    async def ask() -> None:
        async with asyncio.TaskGroup() as group:
            while time.monotonic() < until:
                group.create_task(new.take(on_a_new_one, 200))
                await asyncio.sleep(EVERY_SECONDS)

    await asyncio.gather(send(), ask())
    return {"kept": kept.summary(), "new": new.summary()}


def batch(number: int) -> bytes:
    """Return the request that ships a small batch."""
    data = block.encode([an_event("gpu-0001")])
    head = (
        f"POST /v1/records HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {BLOCK_TYPE}\r\nFaulthound-Node: gpu-0001\r\n"
        f"Faulthound-Batch: b{number}\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


def measured(kind: str, seconds: float) -> dict[str, Any]:
    """Run a service, one of the others and the client."""
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(Path(folder), {"FAULTHOUND_ENGINE": "0"}, files=FILES.get(kind, 0)) as (url, _),
        beside(kind, url),
    ):
        return asyncio.run(asked(_where(url), seconds))


def _where(url: str) -> Where:
    address = urlsplit(url)
    return address.hostname or "127.0.0.1", address.port or 80


def main() -> int:
    """Measure, print, write docs/measured/connections.json (smallest: out/)."""
    parser = argparse.ArgumentParser(description="Ask a service beside a client that takes all it can get.")
    parser.add_argument("--smallest", action="store_true", help="two seconds of each, written to out/")
    parser.add_argument("--other", nargs=2, metavar=("KIND", "URL"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if options.other:
        asyncio.run(take_all(options.other[0], _where(options.other[1])))
    found: dict[str, Any] = {}
    for kind in ("quiet", *OTHERS):
        found[kind] = measured(kind, SMALLEST_SECONDS if options.smallest else SECONDS)
        print(f"{kind:11}", found[kind], flush=True)
    target = REPOSITORY / ("out" if options.smallest else "docs/measured") / "connections.json"
    target.parent.mkdir(exist_ok=True)
    command = " ".join(["python -m tests.bench.bench_connections", *sys.argv[1:]])
    target.write_text(json.dumps(provenance(command) | found, indent=1) + "\n", encoding="utf-8")
    return 0 if all(waits["failed"] < waits["asked"] for one in found.values() for waits in one.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
