"""Before something is changed: which thing it is, what becomes of it, and whether a person agrees."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from service.endings import Forbidden
from service.speech import Speech

Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why; it is kept with your name.")]
OptionalReason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why; it is kept with your name.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be, and change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing; needed where there is no terminal.")]
Unasked = Annotated[bool, typer.Option("--yes", "-y", help="Taken, not needed: what only stops is not asked about.")]

STALE = 412


def agreed(effect: str, *, yes: bool) -> None:
    """Ask whether this is to be done; raise ``Forbidden`` where nobody agrees. ``effect``: a sentence without its stop."""
    if yes:
        return
    from service.reports.text import printable

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Forbidden(f"{effect}? Without a terminal nobody can be asked, and nothing was changed: add --yes")
    if not typer.confirm(printable(f"{effect}?").replace("\n", " "), err=True):
        raise Forbidden("nothing was changed")


@contextmanager
def as_shown(looking: str) -> Iterator[None]:
    """Of what has changed since it was shown, say how to look again. ``looking``: a command."""
    try:
        yield
    except Forbidden as problem:
        if problem.status != STALE:
            raise
        raise Forbidden(f"{problem}; nothing was changed: look again with `{looking}`", STALE) from None


def rehearsed(dry_run: bool) -> dict[str, str]:
    """Return the parameters of a request that is to change nothing; none where it is meant."""
    return {"dry_run": "true"} if dry_run else {}


def would(effect: str) -> None:
    """Say what a dry run has not done."""
    Speech().note(f"would: {effect}. Nothing was changed")


def hindered(obstacles: Iterable[str]) -> None:
    """Say what keeps it from being done now."""
    for one in obstacles:
        Speech().note(f"it cannot act now: {one}")
