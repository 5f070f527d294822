"""The scenes by name, at the size of a test or of the acceptance run."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.durability.proxy import Proxy
from tests.support.durability.scenes import (
    Fleet,
    Outcome,
    Service,
    agents_killed,
    left_alone,
    scene,
    service_away,
    service_killed,
)
from tests.support.postgres import Server


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    agents: int
    kills: int
    away_seconds: float
    network_seconds: float
    database_restarts: int
    disk_fills: int


TEST = Size(agents=8, kills=4, away_seconds=4.0, network_seconds=6.0, database_restarts=2, disk_fills=1)
FULL = Size(agents=64, kills=110, away_seconds=600.0, network_seconds=120.0, database_restarts=25, disk_fills=5)
DISK_BYTES = 24 << 20


def kill_service(folder: Path, size: Size) -> Outcome:
    """The service is killed again and again while agents stream."""
    return scene(folder, service_killed(size.kills, seed=1), options=("--agents", str(size.agents)))


def kill_agents(folder: Path, size: Size) -> Outcome:
    """All agents are killed again and again, in the middle of whatever they do."""
    return scene(folder, agents_killed(size.kills, seed=2), options=("--agents", str(size.agents)))


def away(folder: Path, size: Size) -> Outcome:
    """The service is away; the agents keep everything and bring it late."""
    return scene(folder, service_away(size.away_seconds), options=("--agents", str(size.agents)))


def bad_network(folder: Path, size: Size) -> Outcome:
    """Requests and answers are lost, doubled, late and overtaken."""
    proxies: list[Proxy] = []

    def through(port: int) -> int:
        proxies.append(Proxy(port, seed=3, rate=0.3))
        return proxies[0].port

    try:
        outcome = scene(
            folder, left_alone(size.network_seconds), through=through, options=("--agents", str(size.agents))
        )
    finally:
        for proxy in proxies:
            proxy.close()
    return Outcome(outcome.reported, outcome.found, dict(proxies[0].did))


def wrong_clocks(folder: Path, size: Size) -> Outcome:
    """The agents' clocks are ten seconds ahead."""
    options = ("--agents", str(size.agents), "--clock-offset", "10")
    return scene(folder, left_alone(min(size.network_seconds, 20.0)), options=options)


def overrun(folder: Path, size: Size) -> Outcome:
    """The service is away for longer than the spools can hold: what is dropped is reported to the record."""
    options = ("--agents", "4", "--spool-bytes", "1500")
    return scene(folder, service_away(min(size.away_seconds, 30.0) + 4.0), options=options)


def restart_postgres(folder: Path, size: Size) -> Outcome:
    """PostgreSQL crashes and comes back while agents stream."""
    with tempfile.TemporaryDirectory(prefix="fhpg") as place:  # short: a socket's path may have 107 bytes
        server = Server(Path(place))
        server.start()

        def act(_service: Service, _fleet: Fleet) -> dict[str, int]:
            for _ in range(size.database_restarts):
                time.sleep(2.0)
                server.stop("immediate")
                server.start()
            time.sleep(1.0)
            return {"PostgreSQL crashes": size.database_restarts}

        try:
            service = Service(folder / "service", database_url=server.new())
            return scene(folder, act, service=service, options=("--agents", str(size.agents)))
        finally:
            server.stop("immediate")


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Give a file system with little room, which takes root."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def fill_disk(folder: Path, size: Size) -> Outcome:
    """The service's disk is full for a while, again and again."""
    with small_disk(folder / "disk") as disk:

        def act(_service: Service, _fleet: Fleet) -> dict[str, int]:
            for _ in range(size.disk_fills):
                time.sleep(1.0)
                _fill(disk / "ballast")
                time.sleep(4.0)
                (disk / "ballast").unlink()
                time.sleep(1.0)
            return {"times the disk was full": size.disk_fills}

        return scene(folder, act, service=Service(disk / "service"), options=("--agents", str(size.agents)))


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 65_536)
        except OSError:
            return


SCENES: dict[str, Callable[[Path, Size], Outcome]] = {
    "service killed": kill_service,
    "agents killed": kill_agents,
    "service away": away,
    "bad network": bad_network,
    "wrong clocks": wrong_clocks,
    "spool overrun": overrun,
    "PostgreSQL crashed": restart_postgres,
    "disk full": fill_disk,
}
STRONGEST = ("service killed", "bad network", "spool overrun")
"""What `make test` plays: the others are milder forms of these, or the same below another database or disk; agents are killed
in `tests/collectors/agent/test_agent_process.py` too."""


def complaints(name: str, outcome: Outcome) -> list[str]:
    """Return what is wrong with a scene's outcome, that nothing happened included."""
    wrong = outcome.complaints(dropped=name == "spool overrun")
    if name == "spool overrun" and not any(outcome.found.told_dropped.values()):
        wrong.append("nothing was dropped: the bound was not reached")
    if not outcome.records or not any(outcome.did.values()):
        wrong.append(f"nothing was tried: {outcome.did}")
    return wrong


def cannot(name: str) -> str:
    """Return why this machine cannot play a scene, empty where it can."""
    return "mounting a small file system takes root" if name == "disk full" and os.geteuid() != 0 else ""
