"""``faulthound freeze`` and ``faulthound breaker``: what stops every remediation at once."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import typer

from service.cli import consent
from service.cli.asking import print_json, shown_instant, to
from service.cli.consent import DryRun, Reason, Unasked, Yes
from service.cli.waiting import keeps, waiting
from service.client import DEFAULT_URL, CaFile, Connection, Json, ServiceUrl, TokenFile
from service.speech import Speech

freeze = typer.Typer(no_args_is_help=True, help="Stop every remediation everywhere, and let them go on again.")
breaker = typer.Typer(
    no_args_is_help=True, help="Show the circuit breaker, and close it once it is plain why it opened."
)


@freeze.command()
def on(
    reason: Reason,
    dry_run: DryRun = False,
    _yes: Unasked = False,
    json: Json = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """Stop everything: no remediation begins and none is undone, whoever approved it, until somebody lets it go on.

    What a scheduler has begun it ends. Nobody is asked: this is the emergency brake.

    \b
    Examples:
      faulthound freeze on --reason "power work in hall 2"
    """
    with to(service, ca_file, token_file) as connection:
        _, tag = connection.tagged("/v1/freeze")
        answer = _set(connection, tag, reason, frozen=True, dry_run=dry_run)
        kept = waiting(connection) if dry_run else []
    keeps(kept, "would be kept from acting")
    _tell(answer, "Freeze every remediation", dry_run=dry_run, json=json)


@freeze.command()
def off(
    reason: Reason,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """Let remediations act again. Those that were approved meanwhile may act at once; they are listed first.

    \b
    Examples:
      faulthound freeze off --reason "the power work is over"
    """
    with to(service, ca_file, token_file) as connection:
        found, tag = connection.tagged("/v1/freeze")
        keeps(waiting(connection), "waits for it")
        effect = f"Let every remediation act again ({freeze_line(found)})"
        consent.agreed(effect, yes=yes or dry_run)
        answer = _set(connection, tag, reason, frozen=False, dry_run=dry_run)
    _tell(answer, effect, dry_run=dry_run, json=json)


@freeze.command("show")
def show_freeze(
    json: Json = False, service: ServiceUrl = DEFAULT_URL, ca_file: CaFile = None, token_file: TokenFile = None
) -> None:
    """Say whether everything is frozen, by whom and why.

    \b
    Examples:
      faulthound freeze show
      faulthound freeze show --json | jq .frozen
    """
    with to(service, ca_file, token_file) as connection:
        answer = connection.get("/v1/freeze")
    if json:
        print_json(answer)
        return
    sys.stdout.write(_line(freeze_line(answer)))


@breaker.command("show")
def show_breaker(
    json: Json = False, service: ServiceUrl = DEFAULT_URL, ca_file: CaFile = None, token_file: TokenFile = None
) -> None:
    """Say whether the breaker is open, since when and why, and how much it and the hour's budget still allow.

    \b
    Examples:
      faulthound breaker show
    """
    with to(service, ca_file, token_file) as connection:
        answer = connection.get("/v1/breaker")
    if json:
        print_json(answer)
        return
    for line in (breaker_line(answer), *count_lines(answer)):
        sys.stdout.write(_line(line))


@breaker.command()
def close(
    reason: Reason,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """Close the breaker, which never does so by itself, once it is plain why so many nodes were taken out.

    \b
    Examples:
      faulthound breaker close --reason "a switch died; its nodes were rightly drained"
    """
    with to(service, ca_file, token_file) as connection:
        found, tag = connection.tagged("/v1/breaker")
        keeps(waiting(connection), "waits for it")
        effect = f"Close the breaker, so that nodes may be taken out again ({breaker_line(found)})"
        consent.agreed(effect, yes=yes or dry_run)
        with consent.as_shown("faulthound breaker show"):
            answer = connection.post("/v1/breaker/close", {"reason": reason}, tag, **consent.rehearsed(dry_run))
    if dry_run:
        consent.would(effect)
    elif not json:
        Speech().note(breaker_line(answer))
    if json:
        print_json(answer)


def freeze_line(answer: Mapping[str, Any]) -> str:
    """Say in one line whether everything is frozen."""
    if not answer["frozen"]:
        return "not frozen"
    return f"frozen by {answer['by']} since {shown_instant(answer['at'])}: {answer['reason']}"


def breaker_line(answer: Mapping[str, Any]) -> str:
    """Say in one line how the breaker stands."""
    if not answer["open"]:
        return "the breaker is closed"
    return f"the breaker is open since {shown_instant(answer['at'])}: {answer['reason']}"


def count_lines(answer: Mapping[str, Any]) -> list[str]:
    """Say in two lines what the breaker and the budget have counted."""
    counted, hour = answer["breaker"], answer["budget"]
    return [
        f"  {counted['nodes']} nodes were taken out within {counted['seconds']:,.0f} s; {counted['most']} open the breaker",
        f"  {hour['nodes']} were within the hour, whose budget is {hour['most']}; {answer['fleet_nodes']:,} nodes report",
    ]


def _set(connection: Connection, tag: str, reason: str, *, frozen: bool, dry_run: bool) -> Any:
    with consent.as_shown("faulthound freeze show"):
        return connection.put("/v1/freeze", {"frozen": frozen, "reason": reason}, tag, **consent.rehearsed(dry_run))


def _tell(answer: Mapping[str, Any], effect: str, *, dry_run: bool, json: bool) -> None:
    if dry_run:
        consent.would(effect)
    elif not json:
        Speech().note(freeze_line(answer))
    if json:
        print_json(answer)


def _line(text: str) -> str:
    from service.reports.text import printable

    return printable(text).replace("\n", " ") + "\n"
