"""``faulthound serve``: the service in this process, until a signal ends it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.cli.verbs import ending
from service.client import DEFAULT_URL, UserError


def serve(
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Where to listen (FAULTHOUND_HOST, 127.0.0.1).")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, metavar="N", help="0 takes a free one (FAULTHOUND_PORT, 4747).")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the database (FAULTHOUND_DATA, ~/.local/share/faulthound)."),
    ] = None,
) -> None:
    """Run the service: it stores every record that it acknowledges, and sends commands to agents.

    Its data is where --data, FAULTHOUND_DATA or FAULTHOUND_DATABASE_URL names it, and else in
    ~/.local/share/faulthound; `tokens create --local` finds it by the same rule. Every other setting is
    an environment variable (docs/settings.md). Without a token the service is open, to its own machine
    only; it listens on other addresses once a token exists. On SIGTERM it finishes the requests under
    way and exits.

    \b
    Examples:
      faulthound serve
      faulthound tokens create ops --scope admin --local && faulthound serve --host 0.0.0.0
      FAULTHOUND_DATABASE_URL=postgresql+psycopg://fh@db/fh faulthound serve
    """
    with ending():
        from service.api.serving import CannotServe, run
        from service.settings import load

        try:
            settings = load({"host": host, "port": port, "data": data})
        except ValueError as problem:
            raise UserError(str(problem)) from None
        try:
            run(settings, announce=lambda text: print(text, flush=True), default_url=DEFAULT_URL)
        except CannotServe as problem:
            raise UserError(str(problem)) from None
