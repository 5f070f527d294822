"""Follow the service's events in order, and remember the place across restarts.

The place is stored after an event was handled. A process that is killed in between handles that event again, under the same
id: nothing is lost, and a receiver that compares ids handles each event once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import msgspec
import typer

from service.client import RETRY_SECONDS, Say, ServicePatience, StreamEvent, UserError

if TYPE_CHECKING:
    from service.client import Connection

LONGEST_SECONDS = 3_600.0  # of one stream: the service's own bound

StatePath = Annotated[
    Path, typer.Option("--state", metavar="FILE", help="Stores the place in the event stream; one file per adapter.")
]


class AdapterState(msgspec.Struct, frozen=True, kw_only=True):
    """What an adapter remembers. ``after``: the last place that was handled; None: begin with the next event."""

    after: int | None = None
    firing: tuple[dict[str, Any], ...] = ()  # the alerts that Alertmanager holds as firing


class StateFile:
    """A small JSON file that holds the old state or the new one, also after a power failure."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> AdapterState:
        """Return the state, a new one where there is no file; raise ``UserError`` where it cannot be read or written."""
        try:
            state = (
                msgspec.json.decode(self.path.read_bytes(), type=AdapterState) if self.path.exists() else AdapterState()
            )
        except (OSError, msgspec.DecodeError) as error:
            raise UserError(
                f"the state file {self.path} cannot be read ({error}): remove it, and the adapter begins with the next event"
            ) from None
        self.save(state)
        return state

    def save(self, state: AdapterState) -> None:
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
            raise UserError(
                f"the state file {self.path} cannot be written ({error.strerror or error}): "
                "name one in a folder that this user may write with --state"
            ) from None


def follow(connection: Connection, file: StateFile, say: Say, handle: Callable[[StreamEvent], None]) -> NoReturn:
    """Handle each event in order, for as long as the process lives."""
    place, patience = file.load().after, ServicePatience(say)
    while True:
        try:
            with closing(connection.events(place, LONGEST_SECONDS)) as events:
                for at, event in events:
                    patience.back()
                    if event is not None:
                        handle(event)
                    if at != place:
                        place = at
                        file.save(AdapterState(after=place))
            time.sleep(RETRY_SECONDS)  # the service has ended the stream
        except patience.failures as problem:
            patience.away(problem)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
