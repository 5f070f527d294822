"""How long the agent waits before it tries to reach the service again."""

from __future__ import annotations

from pathlib import Path
from statistics import pstdev
from threading import Event
from typing import Any

import pytest

from collectors.agent.backoff import Backoff
from collectors.agent.client import Response, Unreachable
from collectors.agent.commands import CommandPoll
from collectors.agent.segment import Entry
from collectors.agent.ship import Shipper
from collectors.agent.spool import Spool
from collectors.live.sources.clock import NodeClock
from collectors.records import LogEvent, block

TRIES = 40
LATEST_SECONDS = 5.0  # from the return of the service to the next try


class Waits:
    """In place of a thread's stop event: keeps the waits, takes no time, and stops the thread after some."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.over = Event()

    def wait(self, seconds: float) -> None:
        """Wait no time."""
        self.seconds.append(seconds)
        if len(self.seconds) == TRIES:
            self.over.set()

    def is_set(self) -> bool:
        """Whether there were enough waits."""
        return self.over.is_set()

    def set(self) -> None:
        """Stop the thread."""
        self.over.set()


class Service:
    """A client of a service that never takes anything: nothing answers, or every answer is this status."""

    def __init__(self, status: int | None = None) -> None:
        self.status = status

    def call(self, *_: object, **__: object) -> Response:
        """Fail."""
        if self.status is None:
            raise Unreachable("ConnectionRefusedError: [Errno 111] Connection refused")
        return Response(self.status, b"{}", None, None)


def waits_of(part: str, service: Service, folder: Path, patch: pytest.MonkeyPatch) -> list[float]:
    """Return the waits of the shipper, or of the poll for commands, between tries that all fail."""
    waits = Waits()
    client: Any = service
    loop: Any
    if part == "ship":
        spool = Spool(folder, "gpu-0001", NodeClock(), bytes_max=1 << 26, seal_seconds=60.0)
        spool.add(Entry(records=[block.encode([LogEvent(event="x")])]))
        spool.seal(now=True)
        loop = Shipper(spool, client, NodeClock(), "gpu-0001")
    else:
        commands: Any = None
        loop = CommandPoll(commands, client, "gpu-0001")
    patch.setattr(loop, "_stopped", waits)
    loop.start()
    assert waits.over.wait(30.0)
    return waits.seconds[:TRIES]


@pytest.mark.parametrize("part", ["ship", "commands"])
def test_a_service_that_was_away_for_long_is_reached_within_seconds(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any number of tries that nothing answered, the next comes within five seconds; agents do not come together."""
    waits = waits_of(part, Service(), tmp_path, monkeypatch)

    assert max(waits) <= LATEST_SECONDS
    assert min(waits[-20:]) >= LATEST_SECONDS / 2
    assert pstdev(waits[-20:]) > 0.2


@pytest.mark.parametrize("part", ["ship", "commands"])
def test_a_service_that_answers_that_it_is_busy_is_spared(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer without Retry-After is tried again later each time, up to the longest wait."""
    waits = waits_of(part, Service(503), tmp_path, monkeypatch)

    assert min(waits[-20:]) >= 15.0


def test_the_first_waits_are_short() -> None:
    """The wait doubles from the first, so a service that was away for a moment is reached at once."""
    backoff = Backoff(0.5, 30.0, "gpu-0001")
    waits = [backoff.next(unreached=True) for _ in range(3)]

    assert [low <= wait <= 2 * low for low, wait in zip((0.25, 0.5, 1.0), waits, strict=True)] == [True] * 3
