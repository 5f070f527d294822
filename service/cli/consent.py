"""Before something is changed: state the effect, ask, send it for the version that was shown, and report it."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from service.cli.exit_codes import NotAgreed
from service.cli.speech import Speech
from service.cli.verbs import Answer
from service.client import Connection, RequestRefused

Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why; it is stored with your name.")]
OptionalReason = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Why; it is stored with your name.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; needed without a terminal.")]
Unasked = Annotated[bool, typer.Option("--yes", "-y", help="Accepted, not needed: a stop is never asked about.")]

STALE = 412
WAITING = ("claimed", "approved", "proposed")  # those that would act first come first
SHOWN = 8

Row = Mapping[str, Any]


def agreed(effect: str, *, yes: bool) -> None:
    """Ask whether this is to be done; raise ``NotAgreed`` where the operator declines. ``effect``: without a stop."""
    if yes:
        return
    from collectors.records.printable import printable

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise NotAgreed(f"{effect}? There is no terminal to ask on, and nothing was changed: add --yes")
    if not typer.confirm(printable(f"{effect}?").replace("\n", " "), err=True):
        raise NotAgreed("nothing was changed")


@contextmanager
def as_shown(looking: str) -> Iterator[None]:
    """Where the resource has changed since it was shown, add the command that shows it again."""
    try:
        yield
    except RequestRefused as problem:
        if problem.status != STALE:
            raise
        raise RequestRefused(f"{problem}; nothing was changed: look again with `{looking}`", STALE) from None


def rehearsed(dry_run: bool) -> dict[str, str]:
    """Return the query parameters of a dry run; none for a real change."""
    return {"dry_run": "true"} if dry_run else {}


def changed(answer: Any, effect: str, note: str, *, dry_run: bool) -> Answer:
    """Return the answer to a change; of a dry run report its effect, else the note."""
    if dry_run:
        would(effect)
    return Answer(answer, lambda: None if dry_run else Speech().note(note))


def would(effect: str) -> None:
    """Report the effect that a dry run did not have."""
    Speech().note(f"would: {effect}. Nothing was changed")


def waiting(connection: Connection) -> list[Row]:
    """Return the remediations that have not begun."""
    return [row for status in WAITING for row in connection.all("/v1/remediations", status=status)]


def concerning(rows: Iterable[Row], nodes: Collection[str], job: str | None) -> list[Row]:
    """Return those that act on the job, or take one of the nodes out."""
    from analyzers.remediation.types import same_node

    return [
        row for row in rows
        if row["job"] == job or any(same_node(node, other) for node in nodes for other in row.get("nodes") or ())
    ]  # fmt: skip


def list_waiting(rows: Collection[Row], effect: str) -> None:
    """Report which remediations a stop concerns. ``effect``: on each, ``kept from acting`` for example."""
    from service.reports.remediations import short

    for row in list(rows)[:SHOWN]:
        Speech().note(f"{effect}: {row['id']}, {row['status']}: {short(row)} of {row['job']}")
    if len(rows) > SHOWN:
        Speech().note(f"and {len(rows) - SHOWN:,} more: `faulthound remediations list`")
