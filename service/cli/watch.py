"""``faulthound watch``: the open incidents as they change."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from service.cli.incidents import INCIDENT_COLUMNS, incident_row
from service.cli.output import rich_table
from service.cli.speech import Speech
from service.cli.verbs import with_service
from service.client import RETRY_SECONDS, Connection, ServicePatience, StreamEvent, Unreachable

if TYPE_CHECKING:
    from rich.console import RenderableType

MOST_SHOWN = 50  # open incidents on a terminal


def _watch(
    connection: Connection,
    job: Annotated[str | None, typer.Option(metavar="JOB", help="Of this job only.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the events, a JSON object a line.")] = False,
) -> None:
    """Watch incidents open, get their verdicts and close. Ctrl-C ends it; a service that is away is waited for.

    A terminal shows the open incidents; a pipe gets a line for each event.

    \b
    Examples:
      faulthound watch
      faulthound watch --job llama-405b --json | jq -c 'select(.kind == "published")'
    """
    if sys.stdout.isatty() and not json:
        _show(connection, job)
        return
    from collectors.records.printable import printable_json

    for event in follow(connection, job, Speech()):
        if event is not None:
            sys.stdout.write((printable_json(msgspec.json.encode(event)) if json else line_of(event)) + "\n")
            sys.stdout.flush()


watch = with_service(_watch)


def follow(connection: Connection, job: str | None, speech: Speech) -> Iterator[StreamEvent | None]:
    """Yield events without an end; None each time that the stream begins: what was shown may be old.

    A service that does not answer, at first or later, is asked again until it does; no event of the time between is left out.
    """
    place: int | None = None
    patience = ServicePatience(speech.note)
    while True:
        fresh = True
        try:
            for at, event in connection.events(place, job=job):
                patience.back()
                if fresh or event is not None:
                    yield event
                place, fresh = at, False
        except Unreachable as problem:
            patience.away(problem)
        else:
            time.sleep(RETRY_SECONDS)  # the service has ended the stream


def line_of(event: StreamEvent) -> str:
    """Return an event as a line."""
    from collectors.records.printable import printable
    from service.reports import timeline_entries
    from service.reports.instants import clock

    text = timeline_entries.entry_text(event.kind, event.details)
    parts = (clock(event.at)[:8], event.kind, event.incident, event.job, text)
    return printable("  ".join(part for part in parts if part)).replace("\n", " ")


def _show(connection: Connection, job: str | None) -> None:
    """Redraw the table whenever something happens."""
    from rich.live import Live

    newest = ""
    with Live(auto_refresh=False, redirect_stderr=True) as live:
        for event in follow(connection, job, Speech()):
            newest = newest if event is None else line_of(event)
            try:
                rows = list(connection.all("/v1/incidents", MOST_SHOWN, status="open", job=job))
            except Unreachable:  # away again: the stream reports it
                continue
            live.update(_table(rows, newest), refresh=True)


def _table(rows: list[Any], newest: str) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from collectors.records.printable import printable

    if not rows:
        return Group(Text("No open incident.", style="green"), Text(newest, style="dim"))
    kept = [place for place, name in enumerate(INCIDENT_COLUMNS) if name != "closed"]
    cells = ([printable(incident_row(row)[place]) for place in kept] for row in rows)
    return Group(rich_table([INCIDENT_COLUMNS[place] for place in kept], cells), Text(newest, style="dim"))
