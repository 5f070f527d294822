"""One round: a recorded job is reported to a service, something is killed meanwhile, and what is left of its incident."""

from __future__ import annotations

import logging
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.support.durability.played import Recording, playing
from tests.support.durability.scenes import Service
from tests.support.postgres import Server

MOST_KILLS = 3
AWAY_SECONDS = (0.0, 3.0)  # what was killed stays so for so long
LATEST_SECONDS = 150.0  # after the last kill: a look that was lost comes again after sixty seconds
STEADY_SECONDS = 30.0  # without another version: undisturbed, the verdict is the last
LOOK_SECONDS = 0.5


def engine_killed(service: Service, _server: Server | None, _away_seconds: float) -> bool:
    """Kill the engine's process; the service starts another. False: there was none, so soon after the last kill."""
    assert service.process is not None
    for child in psutil.Process(service.process.pid).children():
        with suppress(psutil.NoSuchProcess):
            if "service.engine" in " ".join(child.cmdline()):
                child.kill()
                return True
    return False


def service_killed(service: Service, _server: Server | None, away_seconds: float) -> bool:
    """Kill the service, and with it its engine, and start it again."""
    service.kill()
    time.sleep(away_seconds)
    service.start(ready=False)
    return True


def database_killed(_service: Service, server: Server | None, away_seconds: float) -> bool:
    """Crash PostgreSQL and start it again."""
    assert server is not None
    server.stop("immediate")
    time.sleep(away_seconds)
    server.start()
    return True


VICTIMS: dict[str, Callable[[Service, Server | None, float], bool]] = {
    "engine": engine_killed,
    "service": service_killed,
    "database": database_killed,
}


@contextmanager
def database(victim: str) -> Iterator[Server | None]:
    """Give a PostgreSQL of its own where it is to be killed; a socket's path has room for 107 bytes."""
    if victim != "database":
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="fhpg") as place:
        server = Server(Path(place))
        server.start()
        try:
            yield server
        finally:
            with suppress(AssertionError):  # it is down already
                server.stop("immediate")


def played(story: Recording, victim: str, seed: int, said: dict[str, Any] | None) -> dict[str, Any]:
    """Play one round; ``said`` is what the newest verdict says undisturbed, None where that is to be found out."""
    begun_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kills-") as place, database(victim) as server:
        service = Service(Path(place) / "service", database_url=server.new() if server else None)
        service.start()
        logging.getLogger("faulthound.agent").setLevel(logging.CRITICAL)  # that a service is away is no news here
        try:
            with playing(story, Path(place) / "agents", service.url):
                moments = [] if victim == "nobody" else _kill(service, server, story, victim, seed)
                final = _final(service, said)
                wrong = [] if said is None or final == said else [f"it says {final}, and undisturbed {said}"]
                wrong += list(_doubled(service))
        except Exception:
            print((service.folder / "service.log").read_text()[-5000:], flush=True)
            raise
        finally:
            if service.process is not None and service.process.poll() is None:
                service.kill()
    seconds = round(time.monotonic() - begun_at, 1)
    return {"victim": victim, "seed": seed, "kills": moments, "final": final, "wrong": wrong, "seconds": seconds}


def _kill(service: Service, server: Server | None, story: Recording, victim: str, seed: int) -> list[float]:
    """Kill at random moments of the story, and return them in seconds after its beginning."""
    moments, begun_at = random.Random(f"{victim} {seed}"), time.monotonic()
    planned = sorted(moments.uniform(0.0, story.seconds) for _ in range(moments.randint(1, MOST_KILLS)))
    killed = []
    for moment in planned:
        time.sleep(max(0.0, begun_at + moment - time.monotonic()))
        if VICTIMS[victim](service, server, moments.uniform(*AWAY_SECONDS)):
            killed.append(round(moment, 1))
    return killed


def _final(service: Service, said: dict[str, Any] | None) -> dict[str, Any]:
    """Return what the newest verdict says, once it says what is waited for or says nothing new for long."""
    begun_at = changed_at = time.monotonic()
    newest: dict[str, Any] = {}
    while time.monotonic() < begun_at + LATEST_SECONDS:
        with suppress(httpx.HTTPError):
            found = _said(service)
            changed_at = time.monotonic() if found != newest else changed_at
            newest = found
        if said is not None and newest == said:
            break
        if said is None and newest and time.monotonic() > changed_at + STEADY_SECONDS:
            break
        time.sleep(LOOK_SECONDS)
    return newest


def _said(service: Service) -> dict[str, Any]:
    rows = _get(service, "/v1/incidents")["items"]
    verdict = next((row["verdict"] for row in reversed(rows) if row["verdict"]), None)
    if verdict is None:
        return {}
    culprits = [[culprit["kind"], culprit["id"], culprit["ranks"]] for culprit in verdict["culprits"]]
    return {**{key: verdict[key] for key in ("symptom", "cause", "abstained", "action")}, "culprits": culprits}


def _doubled(service: Service) -> Iterator[str]:
    """Say what is there more than once, or has a hole: incidents, openings, versions."""
    rows = _get(service, "/v1/incidents")["items"]
    if len(rows) != 1:
        yield f"{len(rows)} incidents, not 1: {[(row['id'], row['kind']) for row in rows]}"
    for row in rows:
        happened = [one["kind"] for one in _get(service, f"/v1/incidents/{row['id']}/timeline")["items"]]
        if happened.count("opened") != 1:
            yield f"{row['id']} was opened {happened.count('opened')} times"
        versions = [one["version"] for one in _get(service, f"/v1/incidents/{row['id']}/verdicts")["items"]]
        if sorted(versions) != list(range(1, len(versions) + 1)) or happened.count("published") != len(versions):
            yield f"{row['id']} has versions {versions} and was published {happened.count('published')} times"


def _get(service: Service, path: str) -> Any:
    answer = httpx.get(service.url + path, timeout=10)
    answer.raise_for_status()
    return answer.json()
