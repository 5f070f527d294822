"""The real service in a process of its own, whose wall clock is set while it runs, or before it starts.

The senders keep the right time. What each scene returns is what went wrong, one sentence each; empty: nothing.
"""

from __future__ import annotations

import os
import sqlite3
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil  # type: ignore[import-untyped]

from collectors.records import Coverage, Members, Placement, Record, block
from tests.support.served import BLOCK_TYPE, serving

DAY_SECONDS = 86_400.0
SHIFTED = Path(__file__).parent / "shifted_clock"
NODES = ("gpu-0001", "gpu-0002", "gpu-0003")
DECLARED = {"world_size": 3, "minimum_nodes": 3}
WAIT_SECONDS = 60.0


class ShiftedService:
    """A service that can be started, killed and started again on one folder, with a wall clock that the test sets."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self._folder, self._file, self._sent = folder, folder / "clock", 0
        folder.mkdir(parents=True, exist_ok=True)
        self._file.write_bytes(bytes(8))
        path = os.pathsep.join(filter(None, (str(SHIFTED), os.environ.get("PYTHONPATH", ""))))
        self._variables = {**variables, "PYTHONPATH": path, "FAULTHOUND_TEST_CLOCK": str(self._file)}
        self.url = ""

    def set_clock(self, ahead_seconds: float) -> None:
        """Set the service's wall clock."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("<d", ahead_seconds))

    @contextmanager
    def running(self, *, power_cut: bool = False) -> Iterator[None]:
        """Run the service; at the end it is stopped, or killed with its engine."""
        with serving(self._folder, self._variables) as (self.url, process):
            yield
            if power_cut:
                _cut_power(process.pid)

    def ship(self, node: str, *records: Record) -> None:
        """Send a batch with the right time, as an agent of another machine does."""
        self._sent += 1
        headers = {
            "Content-Type": BLOCK_TYPE, "Faulthound-Node": node, "Faulthound-Batch": f"b{self._sent}-{time.time_ns()}",
            "Faulthound-Sent-At": f"{time.time():.3f}",
        }  # fmt: skip
        data = block.encode([Coverage(at=time.time(), boot_id=f"boot-{node}"), *records], pack=True)
        httpx.post(f"{self.url}/v1/records", content=data, headers=headers, timeout=30).raise_for_status()

    def place(self, job: str, *nodes: str, attempt: int = 1) -> None:
        """Let each node report that it runs a rank of the job."""
        for rank, node in enumerate(nodes):
            ranks, at = Members.of([rank]), time.time()
            self.ship(
                node, Placement(at=at, job=job, attempt=attempt, ranks=ranks, nodes=(node,), world_size=len(nodes))
            )

    def declare(self, job: str) -> None:
        """Declare a job."""
        httpx.put(f"{self.url}/v1/jobs/{job}", json=DECLARED, timeout=30).raise_for_status()

    def get(self, path: str) -> Any:
        """Return what a GET answers; None where it is refused or nothing answers."""
        with suppress(httpx.TransportError):
            answer = httpx.get(f"{self.url}{path}", timeout=30)
            return answer.json() if answer.status_code == 200 else None
        return None

    def first_batch(self) -> int | None:
        """Return the number of the oldest batch that is left."""
        with closing(sqlite3.connect(f"file:{self._folder / 'data' / 'faulthound.db'}?mode=ro", uri=True)) as database:
            found: int | None = database.execute("SELECT min(sequence) FROM batches").fetchone()[0]
            return found


def restart_in_the_future(service: ShiftedService) -> list[str]:
    """Power is cut while the wall clock is 20 days ahead, and the first sweep of the next start is in that time."""
    wrong: list[str] = []
    with service.running(power_cut=True):
        service.declare("llama")
        service.declare("idle")  # a job that nobody runs now
        service.place("llama", *NODES)
        _wait(lambda: len((service.get("/v1/jobs/llama/ranks") or {}).get("items", ())) == 3)
        service.set_clock(20 * DAY_SECONDS)
        time.sleep(4.0)  # the engine proves its lease
    with service.running(power_cut=True):
        time.sleep(3.0)  # the first sweep comes at once
        wrong += _lost(service)
        service.place("llama", *NODES)
    service.set_clock(0.0)
    with service.running():
        wrong += _lost(service) + _stale(service)
    return wrong


def jump_while_running(service: ShiftedService, ahead_seconds: float, seconds: float) -> list[str]:
    """The wall clock is set for some seconds; a sweep comes every minute."""
    wrong: list[str] = []
    with service.running():
        service.declare("llama")
        service.declare("idle")  # a job that nobody runs now
        service.place("llama", *NODES)
        _wait(lambda: len((service.get("/v1/jobs/llama/ranks") or {}).get("items", ())) == 3)
        service.set_clock(ahead_seconds)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            service.place("llama", *NODES)
            time.sleep(min(2.0, seconds / 4))
        said = (service.get("/readyz") or {}).get("clock", "ok")
        if said == "ok":
            wrong.append("/readyz says nothing of the clock")
        if not any(
            one["kind"] == "service_clock" for one in (service.get("/v1/alarms?status=raised") or {}).get("items", ())
        ):
            wrong.append("there is no alarm of the clock")
        wrong += _lost(service)
        service.set_clock(0.0)
        wrong += _lost(service) + _stale(service)
    return wrong


def _cut_power(pid: int) -> None:
    """Kill the service and its engine at once: neither releases anything."""
    service = psutil.Process(pid)
    for process in (service, *service.children(recursive=True)):
        process.kill()


def _lost(service: ShiftedService) -> list[str]:
    """Say what of the declaration and of the log is gone."""
    wrong: list[str] = []
    for job in ("llama", "idle"):
        declared = ((service.get(f"/v1/jobs/{job}") or {}).get("declared") or {}).get("minimum_nodes")
        if declared != DECLARED["minimum_nodes"]:
            wrong.append(f"minimum_nodes of {job}'s declaration is {declared}")
    if (first := service.first_batch()) != 1:
        wrong.append(f"the first batch of the log is {first}")
    return wrong


def _stale(service: ShiftedService) -> list[str]:
    """Say what is not known within a minute: the engine, the nodes' last reports, a rank that has moved."""
    wrong: list[str] = []
    if not _wait(lambda: (service.get("/readyz") or {}).get("engine") == "working"):
        wrong.append("no engine works a minute after the clock is right")

    def is_fresh() -> bool:
        service.place("llama", NODES[1], NODES[0], NODES[2])
        time.sleep(1.0)
        seen = {one["name"]: one["last_seen_at"] for one in (service.get("/v1/nodes") or {}).get("items", ())}
        ranks = {one["rank"]: one["node"] for one in (service.get("/v1/jobs/llama/ranks") or {}).get("items", ())}
        near = all(abs(seen.get(node, 0.0) - time.time()) < 60.0 for node in NODES)
        return near and ranks.get(0) == NODES[1] and ranks.get(1) == NODES[0]

    if not _wait(is_fresh):
        wrong.append("what is known of nodes and ranks is old a minute after the clock is right")
    if not _wait(lambda: (service.get("/readyz") or {}).get("clock", "ok") == "ok"):
        wrong.append(f"a minute after the clock is right /readyz says {service.get('/readyz')}")
    return wrong


def _wait(holds: Any) -> bool:
    until = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.5)
    return False
