"""``faulthound policy``: what may be done without a person's approval, and what still locks it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli import exit_codes
from service.cli.output import print_json, print_lines, print_table
from service.cli.speech import Speech
from service.cli.verbs import Answer, command, ending
from service.client import Connection, UserError

if TYPE_CHECKING:
    from analyzers.remediation.types import Policy

policy = typer.Typer(no_args_is_help=True, help="Show what may be done without approval, and check a policy file.")


@command(policy)
def show(connection: Connection) -> Answer:
    """Show the policy in force: its rules in order, and for each what shadow mode has shown and what locks it.

    \b
    Examples:
      faulthound policy show
      faulthound policy show --json | jq -r '.rules[] | select(.lock != null).name'
    """
    answer = connection.get("/v1/policy")

    def print_answer() -> None:
        if answer.get("problem"):
            Speech().error(f"the policy file cannot be used, and nothing acts by itself: {answer['problem']}")
        print_policy(answer)

    return Answer(answer, print_answer)


@policy.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A policy in TOML.")],
    json: Annotated[bool, typer.Option("--json", help="Print the policy as it was understood.")] = False,
) -> None:
    """Show what a policy file allows, or what is wrong with it. It needs no service; exits with 1 where it is wrong.

    The first rule that fits a remediation decides. Where none fits, a person decides. An automatic
    rule still stays locked until shadow mode has shown enough (docs/remediation.md). What is left
    out of a rule fits everything, but what acts takes one node at most unless it says more:

    \b
      [limits]
      evictions_an_hour = 4          # nodes
      breaker_share = 0.05           # of the fleet's nodes, within breaker_seconds
      [[rules]]
      name = "stopped-process"
      mode = "shadow"                # propose | shadow | automatic
      kind = "evict"
      symptom = "hang"
      fault_class = "stopped"
      job = "llama-*"
      least_probability = 0.95
      least_precision = 0.9          # lower 95 % bound that shadow mode must show
      most_nodes = 1

    \b
    Examples:
      faulthound policy check /etc/faulthound/policy.toml
    """
    import msgspec

    with ending():
        found, problem = _checked(_read(file))
    document = None if found is None else msgspec.to_builtins(found)
    if json:
        print_json({"file": str(file), "policy": document, "problem": problem})
    elif document is not None:
        print_policy(document)
    if problem:
        Speech().error(f"{file}: {problem}")
        raise typer.Exit(exit_codes.UNEXPECTED)


def print_policy(document: Mapping[str, Any]) -> None:
    """Print rules and limits, as a file states them or as the service has them in force."""
    if document["rules"]:
        print_table(RULE_COLUMNS, [rule_row(row) for row in document["rules"]])
    else:
        print_lines(["No rules: every remediation is proposed to a person."])
    limits = document["limits"]
    share, seconds, least = (limits[f"breaker_{name}"] for name in ("share", "seconds", "least_nodes"))
    breaker = f"{share:.1%} of the fleet's nodes within {seconds:,.0f} s, {least} at least, open the breaker"
    budget = f"At most {limits['evictions_an_hour']} nodes an hour are taken out."
    print_lines(["", budget, f"{breaker}; only a person closes it."])


RULE_COLUMNS = ("rule", "mode", "fits", "sure", "nodes", "shadow mode has shown", "locked because")


def rule_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of ``RULE_COLUMNS`` for one rule."""
    fits = " ".join(f"{name}={row[name]}" for name in ("kind", "symptom", "fault_class", "job") if row.get(name))
    return (
        row["name"], row["mode"], fits or "everything", f"≥ {row['least_probability'] * 100:g} %",
        "any" if row["mode"] == "propose" else f"≤ {row['most_nodes']}", _shown(row), _lock(row),
    )  # fmt: skip


def _shown(row: Mapping[str, Any]) -> str:
    """Return what shadow mode has shown; a file alone has no history."""
    needed = f"needs a bound of {row['least_precision']:.1%}"
    if not (lock := row.get("lock")):
        return needed if row["mode"] != "propose" else ""
    if not lock["n"]:
        return f"nothing yet; {needed}"
    return f"{lock['n']} closed, {lock['precision']:.1%} right, bound {lock['bound']:.1%}; {needed}"


def _lock(row: Mapping[str, Any]) -> str:
    return str((row.get("lock") or {}).get("why") or "")


def _read(file: Path) -> str:
    from analyzers.remediation.policy import MOST_BYTES

    try:
        with file.open("rb") as opened:
            data = opened.read(MOST_BYTES + 1)
        text = data.decode()
    except OSError as error:
        raise UserError(f"{file} cannot be read ({error.strerror}): name a policy in TOML") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is no text in UTF-8 (byte {error.start:,}): name a policy in TOML") from None
    if len(data) > MOST_BYTES:
        raise UserError(f"{file} has more than {MOST_BYTES:,} bytes: it is no policy")
    return text


def _checked(text: str) -> tuple[Policy | None, str]:
    from analyzers.remediation.policy import PolicyError, parse_policy

    try:
        return parse_policy(text), ""
    except PolicyError as problem:
        return None, str(problem)
