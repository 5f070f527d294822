"""``faulthound serve``: the service in this process, until it is told to stop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service import endings
from service.speech import Speech


def serve(
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Where to listen (FAULTHOUND_HOST, 127.0.0.1).")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, metavar="N", help="0 takes a free one (FAULTHOUND_PORT, 4747).")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the embedded database (FAULTHOUND_DATA).")
    ] = None,
) -> None:
    """Run the service: it keeps every record that it acknowledges, and hands commands to agents.

    Every other setting is an environment variable, docs/settings.md lists them. Without a token the
    service is open, to its own machine only; it listens elsewhere once there is one. SIGTERM lets
    what has begun end, then stores it and leaves.

    \b
    Examples:
      faulthound serve
      faulthound tokens create ops --scope admin --local && faulthound serve --host 0.0.0.0
      FAULTHOUND_DATABASE_URL=postgresql+psycopg://fh@db/fh faulthound serve
    """
    speech = Speech()
    try:
        from service.settings import load

        try:
            settings = load({"host": host, "port": port, "data": data})
        except ValueError as error:
            raise endings.CommandError(str(error)) from None
        from service.serving import run

        run(settings, announce=lambda text: print(text, flush=True))
    except endings.CommandError as problem:
        speech.error(str(problem))
        raise typer.Exit(problem.code) from None
