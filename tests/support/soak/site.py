"""One service and an agent a node, all at their usual settings, that can be stopped and started again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx

from tests.support.jobs.farm import Farm

REPOSITORY = Path(__file__).resolve().parents[3]
LISTENS_SECONDS = 180.0
STOPS_SECONDS = 30.0
ASKED_SECONDS = 2.0  # everything else waits meanwhile


def free_port() -> int:
    """Return a port that nothing listens at now."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port: int = bound.getsockname()[1]
        return port


class Site:
    """The processes that watch, each in the state in which it has to be."""

    def __init__(self, folder: Path, nodes: Sequence[str], variables: Mapping[str, str] = MappingProxyType({})) -> None:
        self._variables = variables
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.farm, self.port = folder, Farm(folder / "nodes", nodes), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start_service(self) -> None:
        """Start it on its port, with its data."""
        own = {"FAULTHOUND_DATA": str(self.folder / "data"), "FAULTHOUND_LOG_JSON": "1"} | dict(self._variables)
        self._start("service", "service.cli", ["serve", "--port", str(self.port)], own)

    def wait_for_service(self) -> None:
        """Wait until it answers."""
        deadline = time.monotonic() + LISTENS_SECONDS
        while time.monotonic() < deadline:
            with suppress(httpx.TransportError):
                httpx.get(f"{self.url}/healthz", timeout=10)
                return
            time.sleep(0.1)
        raise RuntimeError(f"the service does not answer:\n{(self.folder / 'service.log').read_text()[-2000:]}")

    def answers(self) -> bool:
        """Return whether the service answers now."""
        return self._get("/healthz") is not None

    def knows(self, job: str, ranks: int) -> bool:
        """Return whether the agents have reported so many ranks of a job."""
        found = self._get(f"/v1/jobs/{job}/ranks")
        return found is not None and len(found["items"]) == ranks

    def heard_at(self, node: str) -> float:
        """Return when a node has last reported, UTC seconds."""
        found = self._get(f"/v1/nodes/{node}")
        return float(found["last_seen_at"]) if found is not None else 0.0

    def _get(self, path: str) -> Any:
        try:
            answer = httpx.get(self.url + path, timeout=ASKED_SECONDS)
        except httpx.TransportError:
            return None
        return answer.json() if answer.status_code == httpx.codes.OK else None

    def start_agent(self, node: str) -> None:
        """Start a node's agent with the state that it left."""
        own = ["run", "--service", self.url, "--node", node, "--state", str(self.folder / node)]
        own += ["--path", f"proc={self.farm.proc(node)}", "--path", f"dev={self.farm.dev(node)}"]
        self._start(node, "collectors.agent", own, {})

    def signal(self, name: str, number: int = signal.SIGTERM) -> subprocess.Popen[bytes]:
        """Send the service or an agent the signal that ends it."""
        process = self.processes.pop(name)
        process.send_signal(number)
        return process

    def stop(self, name: str) -> None:
        """End the service or an agent and wait until it is gone."""
        process = self.signal(name)
        try:
            process.wait(timeout=STOPS_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _start(self, name: str, module: str, arguments: list[str], variables: dict[str, str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as output:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-c", f"from {module} import main; main()", *arguments], cwd=REPOSITORY,
                env=os.environ | variables, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip


@contextmanager
def running(folder: Path, nodes: Sequence[str], variables: Mapping[str, str] = MappingProxyType({})) -> Iterator[Site]:
    """Run a service and the agents; end them all. ``variables``: of the service's environment."""
    site = Site(folder, nodes, variables)
    try:
        site.start_service()
        site.wait_for_service()
        for node in nodes:
            site.start_agent(node)
        yield site
    finally:
        for name in sorted(site.processes, key=lambda name: name == "service"):
            site.stop(name)
