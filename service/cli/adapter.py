"""``faulthound adapter``: one verb for each adapter that service/adapters holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer

from service import adapters
from service.cli.speech import Speech
from service.cli.verbs import EPILOG, parameters_of, signed, with_service
from service.client import Connection

adapter = typer.Typer(
    no_args_is_help=True, help="Run an adapter to another system: alerting, an event broker, a scheduler."
)


def _verb(run: Callable[..., None]) -> Callable[..., None]:
    connection, _, *options = parameters_of(run)

    def verb(connection: Connection, **given: Any) -> None:
        run(connection, Speech().note, **given)

    return with_service(signed(verb, run, [connection, *options]))


for _name in adapters.names():
    _run = adapters.find(_name)
    assert _run is not None
    adapter.command(_name, epilog=EPILOG)(_verb(_run))
