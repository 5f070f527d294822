"""``faulthound freeze``: stop every remediation at once, and let them act again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from service.cli import consent
from service.cli.consent import DryRun, Reason, Unasked, Yes, list_waiting, waiting
from service.cli.output import print_lines
from service.cli.times import shown_instant
from service.cli.verbs import Answer, command
from service.client import Connection

freeze = typer.Typer(no_args_is_help=True, help="Stop every remediation, and let them act again.")


@command(freeze)
def on(connection: Connection, reason: Reason, dry_run: DryRun = False, _yes: Unasked = False) -> Answer:
    """Stop everything: no remediation begins and none is undone, also approved ones, until a person ends the freeze.

    A scheduler finishes what it has begun. The command does not ask: it is for emergencies.

    \b
    Examples:
      faulthound freeze on --reason "power work in hall 2"
    """
    _, tag = connection.tagged("/v1/freeze")
    answer = _set(connection, tag, reason, frozen=True, dry_run=dry_run)
    if dry_run:
        list_waiting(waiting(connection), "would be kept from acting")
    return consent.changed(answer, "Freeze every remediation", freeze_line(answer), dry_run=dry_run)


@command(freeze)
def off(connection: Connection, reason: Reason, dry_run: DryRun = False, yes: Yes = False) -> Answer:
    """Let remediations act again. Those that were approved meanwhile may act at once; they are listed first.

    \b
    Examples:
      faulthound freeze off --reason "the power work is over"
    """
    found, tag = connection.tagged("/v1/freeze")
    list_waiting(waiting(connection), "waits for it")
    effect = f"Let every remediation act again ({freeze_line(found)})"
    consent.agreed(effect, yes=yes or dry_run)
    answer = _set(connection, tag, reason, frozen=False, dry_run=dry_run)
    return consent.changed(answer, effect, freeze_line(answer), dry_run=dry_run)


@command(freeze, "show")
def show_freeze(connection: Connection) -> Answer:
    """Show whether everything is frozen, by whom and why.

    \b
    Examples:
      faulthound freeze show
      faulthound freeze show --json | jq .frozen
    """
    answer = connection.get("/v1/freeze")
    return Answer(answer, lambda: print_lines([freeze_line(answer)]))


def freeze_line(answer: Mapping[str, Any]) -> str:
    """Return in one line whether everything is frozen."""
    if not answer["frozen"]:
        return "not frozen"
    return f"frozen by {answer['by']} since {shown_instant(answer['at'])}: {answer['reason']}"


def _set(connection: Connection, tag: str, reason: str, *, frozen: bool, dry_run: bool) -> Any:
    with consent.as_shown("faulthound freeze show"):
        return connection.put("/v1/freeze", {"frozen": frozen, "reason": reason}, tag, **consent.rehearsed(dry_run))
