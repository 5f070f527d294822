"""What checks and replays have found, said by the person who made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from service.cli import consent
from service.cli.asking import to
from service.cli.consent import DryRun, Yes
from service.cli.decisions import Id, remediation_path
from service.client import DEFAULT_URL, CaFile, ServiceUrl, TokenFile
from service.endings import CommandError
from service.speech import Speech

Failed = Annotated[list[str] | None, typer.Option("--failed", metavar="NODE", help="A node that failed its checks.")]
Passed = Annotated[list[str] | None, typer.Option("--passed", metavar="NODE", help="One that passed them.")]
Others = Annotated[bool, typer.Option("--others-passed", help="All that are not named have passed.")]
Bad = Annotated[
    list[str] | None, typer.Option("--bad", metavar="GROUP", help="A replay's group that showed the fault, as H3.")
]
NoneBad = Annotated[bool, typer.Option("--none-bad", help="No group of the replay showed it.")]


def found(
    remediation: Id,
    failed: Failed = None,
    passed: Passed = None,
    others_passed: Others = False,
    bad: Bad = None,
    none_bad: NoneBad = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """Say what approved checks, or a replay, have found, where no scheduler makes them. Needs the scope execute.

    \b
    Examples:
      faulthound remediations found rem-0123456789ab --failed gpu-0413 --others-passed
      faulthound remediations found rem-0123456789ab --bad H3 --bad V1 --yes
    """
    from service.adapters.scheduler import ClaimLost, HeldClaim

    with to(service, ca_file, token_file) as connection:
        plan = connection.get(remediation_path(remediation))
        if plan["kind"] == "probe":
            did = checked(plan, failed or (), passed or (), others_passed=others_passed)
        elif plan["kind"] == "replay":
            did = replayed(plan, bad or (), none_bad=none_bad)
        else:
            raise CommandError(
                f"{remediation} is to {plan['kind'].replace('_', ' ')}: only checks and replays find something"
            )
        effect = _effect(plan, did)
        consent.agreed(effect, yes=yes or dry_run)
        if dry_run:
            consent.would(effect)
            return
        claim = HeldClaim.of(connection, remediation)
        try:
            claim.begin()
            claim.complete(did)
        except ClaimLost as problem:
            raise CommandError(str(problem)) from None
    Speech().note(f"{remediation} is done: what it leads to is proposed within seconds")


def checked(
    plan: Mapping[str, Any], failed: Sequence[str], passed: Sequence[str], *, others_passed: bool
) -> dict[str, Any]:
    """Return what is said of each node; raise ``CommandError`` where one is left out, or is none of them, or both."""
    named = [*failed, *passed]
    nodes = list(plan["nodes"])
    if strangers := [node for node in named if node not in nodes]:
        raise CommandError(f"{strangers[0]} was not to be checked: {plan['id']} is about {', '.join(nodes[:8])}")
    if twice := [node for node in failed if node in passed]:
        raise CommandError(f"{twice[0]} cannot have failed and passed: say one of both")
    left = [node for node in nodes if node not in named]
    if left and not others_passed:
        raise CommandError(
            f"nothing is said of {left[0]}: add --passed or --failed, or --others-passed for all that are left"
        )
    return {node: "failed" if node in failed else "passed" for node in nodes}


def replayed(plan: Mapping[str, Any], bad: Sequence[str], *, none_bad: bool) -> dict[str, Any]:
    """Return the nodes of the groups that showed the fault; raise ``CommandError`` for a name that no group has."""
    if bool(bad) == none_bad:
        raise CommandError("say --bad with the name of each group that showed the fault, or --none-bad")
    groups = {group["name"]: group["nodes"] for phase in ("horizontal", "vertical") for group in plan["replay"][phase]}
    if unknown := [name for name in bad if name not in groups]:
        raise CommandError(f"{plan['id']} has no group {unknown[0]}: its groups are {', '.join(groups)}")
    return {"bad": [groups[name] for name in bad]}


def _effect(plan: Mapping[str, Any], did: Mapping[str, Any]) -> str:
    from service.reports.hostlists import fold_hosts

    if plan["kind"] == "replay":
        told = "; ".join(fold_hosts(nodes) for nodes in did["bad"]) or "no group"
        return f"Say of {plan['id']} that the fault showed on {told}"
    failed = [node for node, how in did.items() if how == "failed"]
    return f"Say of {plan['id']} that {fold_hosts(failed) or 'no node'} failed, and {len(did) - len(failed):,} passed"
