"""What every adapter does on the service's side: it reads what happens, in order, and remembers how far it has come.

The place is stored after the sink has taken what stands there. Whoever is killed in between sends that again, under the
same id: nothing is lost, and a receiver that looks at ids has each once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from service.endings import CommandError, Forbidden, Unreachable
from service.speech import Speech

if TYPE_CHECKING:
    from service.client import Connection

AGAIN_SECONDS = 1.0  # until somebody who was away is asked again
SLOWEST_SECONDS = 5.0
LONGEST_SECONDS = 3_600.0  # of one stream: the service's own bound
PASSING = (408, 429)  # refusals by the service that are over in a while


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the stream."""

    sequence: int
    at: float
    kind: str
    incident: str | None = None
    job: str | None = None
    details: dict[str, Any] = {}


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What an adapter remembers. ``after``: the last place that it is done with; None: it begins with what comes."""

    after: int | None = None
    firing: tuple[dict[str, Any], ...] = ()  # the alerts that Alertmanager believes to go on


class StateFile:
    """A small JSON file that is either the old state or the new one, whenever the power fails."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> State:
        """Return the state, a new one where there is no file; raise ``CommandError`` where it cannot be read or written."""
        try:
            state = msgspec.json.decode(self.path.read_bytes(), type=State) if self.path.exists() else State()
        except (OSError, msgspec.DecodeError) as error:
            raise CommandError(
                f"the state file {self.path} cannot be read ({error}): remove it, and the adapter begins with what comes"
            ) from None
        self.save(state)
        return state

    def save(self, state: State) -> None:
        """Store the state."""
        beside = self.path.with_name(f"{self.path.name}.new")
        try:
            with beside.open("wb") as file:
                file.write(msgspec.json.encode(state) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path)
            _sync_folder(self.path.parent)
        except OSError as error:
            raise CommandError(
                f"the state file {self.path} cannot be written ({error.strerror or error}): "
                "name one in a folder that this user may write with --state"
            ) from None


class Patience:
    """Waits for the service: says once that it is away and once that it is back, and asks less often the longer it takes."""

    def __init__(self, speech: Speech) -> None:
        self._speech = speech
        self._wait_seconds, self._away = AGAIN_SECONDS, False

    def back(self) -> None:
        """Note that the service answers."""
        if self._away:
            self._speech.note("the service answers again")
        self._wait_seconds, self._away = AGAIN_SECONDS, False

    def away(self, problem: CommandError) -> None:
        """Wait; raise the problem where waiting does not help."""
        if isinstance(problem, Forbidden) and problem.status not in PASSING:
            raise problem
        if not self._away:
            self._speech.note(f"{problem}; trying again")
        self._away = True
        time.sleep(self._wait_seconds)
        self._wait_seconds = min(SLOWEST_SECONDS, self._wait_seconds * 2)


AWAY = (Unreachable, Forbidden)  # what ``Patience.away`` is for


def read(
    connection: Connection, after: int | None, wait_seconds: float
) -> Generator[tuple[int, Happening | None], None, None]:
    """Yield places and what happened there; None where nothing did that is known: the beginning, a heartbeat."""
    import httpx
    from httpx_sse import EventSource

    try:
        with connection.stream("/v1/stream", after=after, wait_seconds=wait_seconds) as answer:
            for block in EventSource(answer).iter_sse():
                if block.id.isascii() and block.id.isdecimal():
                    yield int(block.id), _decoded(block.data)
    except httpx.DecodingError as error:
        raise Unreachable(f"the stream of {connection.url} cannot be read: {error}") from None


def _decoded(data: str) -> Happening | None:
    try:
        return msgspec.json.decode(data, type=Happening) if data else None
    except msgspec.DecodeError:  # of a later service that speaks otherwise
        return None


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
