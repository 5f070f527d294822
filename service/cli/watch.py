"""``faulthound watch``: the open incidents as they change, for as long as somebody looks."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli.asking import to
from service.cli.incidents import INCIDENT_COLUMNS, incident_row
from service.client import DEFAULT_URL, CaFile, Connection, ServiceUrl, TokenFile
from service.endings import Unreachable
from service.speech import Speech

if TYPE_CHECKING:
    from rich.console import RenderableType

AGAIN_SECONDS = 1.0  # until the service is asked again after it was away
SLOWEST_SECONDS = 10.0
MOST_SHOWN = 50  # open incidents on a terminal

Event = Mapping[str, Any]


def watch(
    job: Annotated[str | None, typer.Option(metavar="JOB", help="Of this job only.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what happens, a JSON object a line.")] = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """Watch incidents open, get their verdicts and close. Ctrl-C ends it; a restart of the service does not.

    A terminal shows the open incidents; a pipe gets a line for each thing that happens.

    \b
    Examples:
      faulthound watch
      faulthound watch --job llama-405b --json | jq -c 'select(.kind == "published")'
    """
    with to(service, ca_file, token_file) as connection:
        if json:
            _print_json(follow(connection, job, Speech()))
        elif sys.stdout.isatty():
            _show(connection, job)
        else:
            _print_lines(follow(connection, job, Speech()))


def follow(connection: Connection, job: str | None, speech: Speech) -> Iterator[Event | None]:
    """Yield what happens, without an end; None each time that the stream has begun: what was shown may be old.

    The first time the service must answer. Later it is asked again until it does, and nothing that happened is left out.
    """
    position = _Position()
    wait_seconds, was_there, is_away = AGAIN_SECONDS, False, False
    while True:
        try:
            with connection.stream("/v1/stream", job=job, after=position.after) as answer:
                if is_away:
                    speech.note("the service answers again")
                wait_seconds, was_there, is_away = AGAIN_SECONDS, True, False
                yield None
                yield from _events(answer.iter_lines(), position)
        except Unreachable as problem:
            if not was_there:
                raise
            if not is_away:
                speech.note(f"{problem}; trying again")
            is_away = True
        time.sleep(wait_seconds)
        wait_seconds = min(SLOWEST_SECONDS, wait_seconds * 2)


@dataclass(slots=True)
class _Position:
    """The newest event that was seen: the stream goes on behind it."""

    after: str | None = None


def _events(lines: Iterable[str], position: _Position) -> Iterator[Event]:
    """Yield the data of server-sent events; a comment, and what is no JSON object, is passed over."""
    data: list[str] = []
    for line in lines:
        field, _, value = line.partition(":")
        if field == "id":
            position.after = value.removeprefix(" ")
        elif field == "data":
            data.append(value.removeprefix(" "))
        elif not line and data:
            event = _decoded("\n".join(data))
            data = []
            if event is not None:
                yield event


def _decoded(text: str) -> Event | None:
    import msgspec

    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        return None


def _print_json(events: Iterable[Event | None]) -> None:
    import msgspec

    for event in events:
        if event is not None:
            sys.stdout.write(msgspec.json.encode(event).decode() + "\n")
            sys.stdout.flush()


def _print_lines(events: Iterable[Event | None]) -> None:
    for event in events:
        if event is not None:
            sys.stdout.write(line_of(event) + "\n")
            sys.stdout.flush()


def line_of(event: Event) -> str:
    """Say in a line what happened."""
    from service.reports import happenings
    from service.reports.instants import clock
    from service.reports.text import printable

    said = happenings.said(event["kind"], event.get("details") or {})
    parts = (clock(event["at"])[:8], event["kind"], event.get("incident") or "", event.get("job") or "", said)
    return printable("  ".join(str(part) for part in parts if part)).replace("\n", " ")


def _show(connection: Connection, job: str | None) -> None:
    """Redraw the table whenever something happens."""
    from rich.live import Live

    newest = ""
    with Live(auto_refresh=False, redirect_stderr=True) as live:
        for event in follow(connection, job, Speech()):
            newest = newest if event is None else line_of(event)
            try:
                rows = list(connection.all("/v1/incidents", MOST_SHOWN, status="open", job=job))
            except Unreachable:  # it has gone again: the stream will tell
                continue
            live.update(_table(rows, newest), refresh=True)


def _table(rows: list[Any], newest: str) -> RenderableType:
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from service.reports.text import printable

    if not rows:
        return Group(Text("No open incident.", style="green"), Text(newest, style="dim"))
    kept = [place for place, name in enumerate(INCIDENT_COLUMNS) if name != "closed"]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for place in kept:
        table.add_column(INCIDENT_COLUMNS[place], overflow="fold")
    for row in rows:
        cells = incident_row(row)
        table.add_row(*(Text(printable(cells[place])) for place in kept))
    return Group(table, Text(newest, style="dim"))
