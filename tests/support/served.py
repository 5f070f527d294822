"""A real service for tests: in this process over ASGI, or in a process of its own over a socket."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

from collectors.records import KernelEvent, Record, block
from service.api.app import create_app
from service.api.state import Service
from service.settings import Settings
from tests.support.migrated import put_migrated

REPOSITORY = Path(__file__).resolve().parents[2]
BLOCK_TYPE = "application/vnd.faulthound.block"
FOLLOWED_SECONDS = 60.0


class Client(httpx.Client):
    """A client on the service's own machine. ``app`` is the application behind it."""

    def __init__(self, app: FastAPI, url: str, token: str = "") -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        super().__init__(base_url=url, headers=headers, timeout=60)
        self.app, self.url = app, url
        self._others: dict[str, Client] = {}

    @property
    def service(self) -> Service:
        """Return the service behind the application."""
        service: Service = self.app.state.service
        return service

    def as_(self, token: str) -> Client:
        """Return another client of the same service, with this token; it closes with this one."""
        if token not in self._others:
            self._others[token] = Client(self.app, self.url, token)
        return self._others[token]

    def close(self) -> None:
        """Close the connections, those of the others too."""
        for other in self._others.values():
            other.close()
        super().close()

    def __exit__(self, *raised: Any) -> None:
        self.close()

    def get_from(self, address: str, path: str, **headers: str) -> httpx.Response:
        """Return the answer to a GET that comes from another address."""

        async def get() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, client=(address, 50_000))
            async with httpx.AsyncClient(transport=transport, base_url=self.url) as client:
                return await client.get(path, headers=headers)

        return asyncio.run(get())

    def ship(self, node: str, records: Sequence[Record], batch: str = "b1", **headers: str) -> httpx.Response:
        """Send records as an agent does."""
        return self.ship_bytes(node, block.encode(records, pack=True), batch, **headers)

    def ship_bytes(self, node: str, data: bytes, batch: str = "b1", **headers: str) -> httpx.Response:
        """Send bytes where a block should be."""
        own = {"Content-Type": BLOCK_TYPE, "Faulthound-Node": node, "Faulthound-Batch": batch, **headers}
        return self.post("/v1/records", content=data, headers=own)

    def eventually(self, path: str, holds: Callable[[Any], bool]) -> Any:
        """Return what a GET answers once it holds: lists are derived from the log a moment after the answer."""
        deadline = time.monotonic() + FOLLOWED_SECONDS
        while True:
            answer = self.get(path)
            if answer.status_code == 200 and holds(answer.json()):
                return answer.json()
            assert time.monotonic() < deadline, f"{path}: {answer.text}"
            time.sleep(0.02)


def an_event(node: str | None = "gpu-0001", code: int = 79) -> KernelEvent:
    """Return a record."""
    return KernelEvent(event="xid", code=code, node=node)


@contextmanager
def served(folder: Path, **settings: Any) -> Iterator[Client]:
    """Run a service in a thread of this process, on a real socket, and give a client on its own machine."""
    if not settings.get("database_url"):
        put_migrated(folder / "data")
    app = create_app(Settings(data=folder / "data", **settings))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="on", log_config=None, access_log=False, ws="none"))
    with socket.create_server(("127.0.0.1", 0)) as bound:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        while not server.started:
            assert thread.is_alive(), "the service did not start"
            time.sleep(0.005)
        with Client(app, f"http://127.0.0.1:{bound.getsockname()[1]}") as client:
            yield client
        app.state.service.waiting._loop.call_soon_threadsafe(app.state.service.end_waits)
        server.should_exit = True
        thread.join(timeout=60)


@contextmanager
def serving(
    folder: Path, variables: Mapping[str, str] | None = None, *arguments: str, files: int = 0
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run `faulthound serve` in a process of its own; give its address and the process, and end it as an operator would.

    ``files``: how many it may open at most; 0: as many as this process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files})); " if files else ""
    own = {"FAULTHOUND_DATA": str(folder / "data"), "FAULTHOUND_PORT": "0", **(variables or {})}
    with (folder / "service.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", f"{limited}from service.cli import main; main()", "serve", *arguments],
            cwd=REPOSITORY, env=os.environ | own, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip().rpartition(" ")[2]
        assert url, (folder / "service.log").read_text()
        _wait_ready(url)
        yield url, process
    finally:
        process.terminate()
        try:
            process.wait(timeout=60)
        finally:
            process.kill()
            process.stdout.close()  # type: ignore[union-attr]


def _wait_ready(url: str) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            httpx.get(f"{url}/healthz", timeout=10, verify=False)
            return
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError(f"nothing listens at {url}")
