"""``faulthound breaker``: the circuit breaker, which opens where too many nodes were taken out in a short time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from service.cli import consent
from service.cli.consent import DryRun, Reason, Yes, list_waiting, waiting
from service.cli.output import print_lines
from service.cli.times import shown_instant
from service.cli.verbs import Answer, command
from service.client import Connection

breaker = typer.Typer(no_args_is_help=True, help="Show the circuit breaker, and close it.")


@command(breaker, "show")
def show_breaker(connection: Connection) -> Answer:
    """Show whether the breaker is open, since when and why, and what it and the hour's budget still allow.

    \b
    Examples:
      faulthound breaker show
      faulthound breaker show --json | jq .open
    """
    answer = connection.get("/v1/breaker")
    return Answer(answer, lambda: print_lines([breaker_line(answer), *count_lines(answer)]))


@command(breaker)
def close(connection: Connection, reason: Reason, dry_run: DryRun = False, yes: Yes = False) -> Answer:
    """Close the breaker, once you know why so many nodes were taken out. It never closes by itself.

    \b
    Examples:
      faulthound breaker close --reason "a switch died; its nodes were rightly drained"
    """
    found, tag = connection.tagged("/v1/breaker")
    list_waiting(waiting(connection), "waits for it")
    effect = f"Close the breaker, so that nodes may be taken out again ({breaker_line(found)})"
    consent.agreed(effect, yes=yes or dry_run)
    with consent.as_shown("faulthound breaker show"):
        answer = connection.post("/v1/breaker/close", {"reason": reason}, tag, **consent.rehearsed(dry_run))
    return consent.changed(answer, effect, breaker_line(answer), dry_run=dry_run)


def breaker_line(answer: Mapping[str, Any]) -> str:
    """Return in one line whether the breaker is open."""
    if not answer["open"]:
        return "the breaker is closed"
    return f"the breaker is open since {shown_instant(answer['at'])}: {answer['reason']}"


def count_lines(answer: Mapping[str, Any]) -> list[str]:
    """Return in two lines what the breaker and the budget have counted."""
    counted, hour = answer["breaker"], answer["budget"]
    return [
        f"  {counted['nodes']} nodes were taken out within {counted['seconds']:,.0f} s; {counted['most']} open the breaker",
        f"  {hour['nodes']} were within the hour, whose budget is {hour['most']}; {answer['fleet_nodes']:,} nodes report",
    ]
