"""What is done to a fleet and its service while it counts; each scene ends with the count of what the log holds."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.support.durability.counting import Count, count

REPOSITORY = Path(__file__).resolve().parents[3]
START_SECONDS = 90.0  # on a machine that is busy with the rest of the tests
DRAINED_SECONDS = 150.0


def free_port() -> int:
    """Return a port that nobody has now, and that no outgoing connection is given while its service is dead."""
    for port in random.Random(time.monotonic_ns()).sample(range(20_000, 30_000), 100):  # below Linux's ephemeral ports
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port between 20,000 and 30,000 is free")


@dataclass
class Service:
    """The real service in a process of its own, on one port through all its lives."""

    folder: Path
    database_url: str | None = None
    port: int = field(default_factory=free_port)
    variables: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Return where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def database(self) -> str:
        """Return the database's URL, to be read when the service is gone."""
        return self.database_url or f"sqlite:///{self.folder / 'data' / 'faulthound.db'}"

    def start(self, *, ready: bool = True) -> None:
        """Start it, and wait until it is ready."""
        self.folder.mkdir(parents=True, exist_ok=True)
        own = {"FAULTHOUND_DATA": str(self.folder / "data"), "FAULTHOUND_PORT": str(self.port), **self.variables}
        own |= {"FAULTHOUND_DATABASE_URL": self.database_url} if self.database_url else {}
        with (self.folder / "service.log").open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", "from service.cli import main; main()", "serve"],
                cwd=REPOSITORY, env=os.environ | own, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        if ready:
            self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until it says that it is ready."""
        deadline, said = time.monotonic() + START_SECONDS, ""
        while time.monotonic() < deadline and self.process is not None and self.process.poll() is None:
            try:
                answer = httpx.get(f"{self.url}/readyz", timeout=5)
                if answer.status_code == 200:
                    return
                said = answer.text
            except httpx.HTTPError as error:
                said = repr(error)
            time.sleep(0.05)
        log = (self.folder / "service.log").read_text()[-3000:]
        raise RuntimeError(f"the service is not ready: {said}\n{log}")

    def kill(self) -> None:
        """End it as a power cut of the process would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End it as an operator would."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(timeout=60)


@dataclass
class Fleet:
    """Counting agents in a process of their own."""

    folder: Path
    url: str
    options: list[str]
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start counting, from where the spools say."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "fleet.log").open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.durability.fleet", str(self.folder), self.url, *self.options],
                cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "counting\n":
            raise RuntimeError(f"the fleet did not start:\n{(self.folder / 'fleet.log').read_text()[-3000:]}")

    def kill(self) -> None:
        """Kill all agents at once."""
        assert self.process is not None
        self.process.kill()
        self.process.communicate()

    def finish(self) -> dict[str, Any]:
        """Let the agents ship what they have, and return what they had."""
        assert self.process is not None
        self.process.terminate()
        output, _ = self.process.communicate(timeout=DRAINED_SECONDS)
        reported: dict[str, Any] = json.loads(output.splitlines()[-1])
        return reported


@dataclass(frozen=True)
class Outcome:
    """What a scene came to."""

    reported: dict[str, Any]  # by the fleet
    found: Count  # in the log
    did: dict[str, int]

    def complaints(self, *, dropped: bool = False) -> list[str]:
        """Return what is wrong; ``dropped``: losses are allowed where the agents reported exactly so many."""
        lost, wrong = self.found.lost(self.reported["last"]), []
        if not dropped and lost:
            wrong.append(f"lost: { ({node: numbers[:5] for node, numbers in list(lost.items())[:3]}) } …")
        for node, reported in self.found.told_dropped.items() if dropped else ():
            if len(lost.get(node, ())) != reported:
                wrong.append(f"{node} reported {reported} dropped records and {len(lost.get(node, ()))} are missing")
        wrong += [f"twice: {node} {numbers[:5]}" for node, numbers in list(self.found.twice().items())[:3]]
        wrong += [f"{self.reported['left']} batches were never delivered"] if self.reported["left"] else []
        wrong += [f"{self.reported['refused']} batches were refused"] if self.reported["refused"] else []
        wrong += [f"{self.found.out_of_order} sequence numbers out of order"] if self.found.out_of_order else []
        return wrong

    @property
    def records(self) -> int:
        """Return how many records were spooled."""
        return sum(self.reported["last"].values())


@contextmanager
def _ended(service: Service, fleet: Fleet) -> Iterator[None]:
    try:
        yield
    finally:
        if fleet.process is not None and fleet.process.poll() is None:
            fleet.kill()
        if service.process is not None and service.process.poll() is None:
            service.kill()


def scene(
    folder: Path,
    act: Callable[[Service, Fleet], dict[str, int]],
    *,
    service: Service | None = None,
    through: Callable[[int], int] = lambda port: port,
    options: tuple[str, ...] = (),
) -> Outcome:
    """Start service and fleet, let ``act`` happen, drain, stop, count."""
    service = service or Service(folder / "service")
    service.start()
    fleet = Fleet(folder / "fleet", f"http://127.0.0.1:{through(service.port)}", list(options))
    with _ended(service, fleet):
        fleet.start()
        did = act(service, fleet)
        reported = fleet.finish()
        service.stop()
        return Outcome(reported, count(service.database), did)


def service_killed(
    times: int, seed: int, pause: tuple[float, float] = (0.3, 1.5)
) -> Callable[[Service, Fleet], dict[str, int]]:
    """Kill the service so many times, each time at another moment of its work."""

    def act(service: Service, _: Fleet) -> dict[str, int]:
        moments = random.Random(seed)
        for _ in range(times):
            time.sleep(moments.uniform(*pause))
            service.kill()
            service.start()
        return {"service kills": times}

    return act


def agents_killed(
    times: int, seed: int, pause: tuple[float, float] = (0.1, 1.5)
) -> Callable[[Service, Fleet], dict[str, int]]:
    """Kill all agents at once so many times."""

    def act(_: Service, fleet: Fleet) -> dict[str, int]:
        moments = random.Random(seed)
        for _ in range(times):
            time.sleep(moments.uniform(*pause))
            fleet.kill()
            fleet.start()
        return {"agent kills": times * int(fleet.options[fleet.options.index("--agents") + 1])}

    return act


def service_away(seconds: float) -> Callable[[Service, Fleet], dict[str, int]]:
    """Stop the service for so long."""

    def act(service: Service, _: Fleet) -> dict[str, int]:
        time.sleep(1.0)
        service.stop()
        time.sleep(seconds)
        service.start()
        return {"seconds away": int(seconds)}

    return act


def left_alone(seconds: float) -> Callable[[Service, Fleet], dict[str, int]]:
    """Let it run."""

    def act(_service: Service, _fleet: Fleet) -> dict[str, int]:
        time.sleep(seconds)
        return {"seconds": int(seconds)}

    return act
