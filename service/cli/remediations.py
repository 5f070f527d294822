"""``faulthound remediations``: what is proposed and done about incidents, and a person's decisions about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from analyzers.remediation.types import Status
from service.cli import consent
from service.cli.consent import DryRun, OptionalReason, Reason, Yes
from service.cli.options import Limit
from service.cli.output import print_lines, print_table
from service.cli.speech import Speech
from service.cli.times import shown_instant
from service.cli.verbs import Answer, command, table
from service.client import Connection, RequestRefused, UserError, resource

remediations = typer.Typer(no_args_is_help=True, help="List what would be done about incidents, and decide about it.")
Id = Annotated[str, typer.Argument(metavar="ID", help="The remediation's id, rem-0123456789ab.")]
Failed = Annotated[list[str] | None, typer.Option("--failed", metavar="NODE", help="A node that failed its checks.")]
Passed = Annotated[list[str] | None, typer.Option("--passed", metavar="NODE", help="A node that passed them.")]
Others = Annotated[bool, typer.Option("--others-passed", help="All nodes that are not named have passed.")]
Bad = Annotated[
    list[str] | None, typer.Option("--bad", metavar="GROUP", help="A replay's group that showed the fault, as H3.")
]
NoneBad = Annotated[bool, typer.Option("--none-bad", help="No group of the replay showed it.")]


@command(remediations, "list", ids=True)
def list_remediations(
    connection: Connection,
    status: Annotated[
        Status | None,
        typer.Option(metavar="STATUS", help="Only these: proposed, approved, verifying …; all if left out."),
    ] = None,
    incident: Annotated[str | None, typer.Option(metavar="ID", help="Of this incident.")] = None,
    job: Annotated[str | None, typer.Option(metavar="JOB", help="Of this job.")] = None,
    node: Annotated[str | None, typer.Option(metavar="NODE", help="That take this node out.")] = None,
    claimable: Annotated[bool, typer.Option("--claimable", help="That a scheduler may claim now.")] = False,
    limit: Limit = None,
) -> Answer:
    """List remediations, the newest first: what each does, to which nodes and job, and its status.

    \b
    Examples:
      faulthound remediations list --status proposed
      faulthound remediations list --job llama-405b --json | jq -r '.[].id'
    """
    rows = list(
        connection.all(
            "/v1/remediations", limit, status=status, incident=incident,
            job=job, node=node, claimable="true" if claimable else None,
        )
    )  # fmt: skip
    return table(rows, REMEDIATION_COLUMNS, remediation_row, "id")


@command(remediations)
def show(connection: Connection, remediation: Id) -> Answer:
    """Show a remediation: what it does and why, what was decided and done, and what keeps it from acting now.

    \b
    Examples:
      faulthound remediations show rem-0123456789ab
      faulthound remediations show rem-0123456789ab --json | jq -r '.hindrances[].text'
    """
    found = connection.get(resource("remediations", remediation))
    size = _job_nodes(connection, found)
    return Answer(found, lambda: _print_remediation(found, size))


@command(remediations)
def approve(
    connection: Connection, remediation: Id, reason: OptionalReason = None, dry_run: DryRun = False, yes: Yes = False
) -> Answer:
    """Let a proposal act: from then on a scheduler may claim it. Holds, freeze, budget and breaker still stop it.

    On a terminal it asks first, and names the nodes that are drained and the job that restarts. A
    remediation that has changed since it was shown is refused.

    \b
    Examples:
      faulthound remediations approve rem-0123456789ab
      faulthound remediations approve rem-0123456789ab --reason "seen in nvidia-smi" --yes
      faulthound remediations approve rem-0123456789ab --dry-run
    """
    return _decided(connection, "approve", remediation, reason, dry_run=dry_run, yes=yes)


@command(remediations)
def reject(
    connection: Connection, remediation: Id, reason: Reason, dry_run: DryRun = False, yes: Yes = False
) -> Answer:
    """Forbid a remediation to act, now or later.

    \b
    Examples:
      faulthound remediations reject rem-0123456789ab --reason "gpu-0413 runs our burn-in" --yes
    """
    return _decided(connection, "reject", remediation, reason, dry_run=dry_run, yes=yes)


@command(remediations)
def cancel(
    connection: Connection, remediation: Id, reason: Reason, dry_run: DryRun = False, yes: Yes = False
) -> Answer:
    """Stop a remediation that is no longer wanted, before a scheduler has begun. Afterwards, undo it.

    \b
    Examples:
      faulthound remediations cancel rem-0123456789ab --reason "the job runs again" --yes
    """
    return _decided(connection, "cancel", remediation, reason, dry_run=dry_run, yes=yes)


@command(remediations)
def undo(connection: Connection, remediation: Id, reason: Reason, dry_run: DryRun = False, yes: Yes = False) -> Answer:
    """Ask for a remediation to be undone: a scheduler claims the undo, and resumes the nodes that it had drained.

    \b
    Examples:
      faulthound remediations undo rem-0123456789ab --reason "dcgmi diag -r 3 passed" --yes
    """
    return _decided(connection, "undo", remediation, reason, dry_run=dry_run, yes=yes)


@command(remediations)
def found(
    connection: Connection, remediation: Id, failed: Failed = None, passed: Passed = None, others_passed: Others = False,
    bad: Bad = None, none_bad: NoneBad = False, dry_run: DryRun = False, yes: Yes = False,
) -> Answer | None:  # fmt: skip
    """Report what approved checks, or a replay, have found, where no scheduler runs them. Needs the scope execute.

    \b
    Examples:
      faulthound remediations found rem-0123456789ab --failed gpu-0413 --others-passed
      faulthound remediations found rem-0123456789ab --bad H3 --bad V1 --yes
    """
    from service.adapters.claims import ClaimLost, HeldClaim

    plan = connection.get(resource("remediations", remediation))
    if plan["kind"] == "probe":
        did = checked(plan, failed or (), passed or (), others_passed=others_passed)
    elif plan["kind"] == "replay":
        did = replayed(plan, bad or (), none_bad=none_bad)
    else:
        kind = plan["kind"].replace("_", " ")
        raise UserError(f"{remediation} is to {kind}: only checks and replays have findings")
    effect = _finding(plan, did)
    consent.agreed(effect, yes=yes or dry_run)
    if not dry_run:
        claim = HeldClaim.take(connection, remediation)
        try:
            claim.begin()
            claim.complete(did)
        except ClaimLost as problem:
            raise UserError(str(problem)) from None
    note = f"{remediation} is done: the next step is proposed within seconds"
    return consent.changed({"remediation": remediation, "did": did}, effect, note, dry_run=dry_run)


def checked(
    plan: Mapping[str, Any], failed: Sequence[str], passed: Sequence[str], *, others_passed: bool
) -> dict[str, Any]:
    """Return the finding for each node; raise ``UserError`` where one is left out, is none of them, or has both."""
    named = [*failed, *passed]
    nodes = list(plan["nodes"])
    if strangers := [node for node in named if node not in nodes]:
        raise UserError(f"{strangers[0]} was not to be checked: {plan['id']} is about {', '.join(nodes[:8])}")
    if twice := [node for node in failed if node in passed]:
        raise UserError(f"{twice[0]} cannot have failed and passed: name it once")
    left = [node for node in nodes if node not in named]
    if left and not others_passed:
        raise UserError(f"{left[0]} has no finding: add --passed or --failed, or --others-passed for all that are left")
    return {node: "failed" if node in failed else "passed" for node in nodes}


def replayed(plan: Mapping[str, Any], bad: Sequence[str], *, none_bad: bool) -> dict[str, Any]:
    """Return the nodes of the groups that showed the fault; raise ``UserError`` for a name that no group has."""
    if bool(bad) == none_bad:
        raise UserError("give --bad with the name of each group that showed the fault, or --none-bad")
    groups = {group["name"]: group["nodes"] for phase in ("horizontal", "vertical") for group in plan["replay"][phase]}
    if unknown := [name for name in bad if name not in groups]:
        raise UserError(f"{plan['id']} has no group {unknown[0]}: its groups are {', '.join(groups)}")
    return {"bad": [groups[name] for name in bad]}


def _finding(plan: Mapping[str, Any], did: Mapping[str, Any]) -> str:
    from service.reports.hostlists import fold_hosts

    if plan["kind"] == "replay":
        groups = "; ".join(fold_hosts(nodes) for nodes in did["bad"]) or "no group"
        return f"Report for {plan['id']} that the fault showed on {groups}"
    failed = [node for node, how in did.items() if how == "failed"]
    return (
        f"Report for {plan['id']} that {fold_hosts(failed) or 'no node'} failed, and {len(did) - len(failed):,} passed"
    )


def _decided(connection: Connection, verb: str, id: str, reason: str | None, *, dry_run: bool, yes: bool) -> Answer:
    """Show what is decided, ask, and send it for the version that was shown."""
    from service.reports.remediations import because, deciding, obstacles, standing

    found, tag = connection.tagged(resource("remediations", id))
    effect = deciding(verb, found, _job_nodes(connection, found))
    Speech().note(f"{id}, {found['status']}, {f'{sure} sure: ' if (sure := _sure(found)) else ''}{because(found)}")
    if verb == "approve" and found.get("first"):
        Speech().note(found["first"])
    for obstacle in obstacles(found) if verb == "approve" else ():
        Speech().note(f"it cannot act now: {obstacle}")
    body, path = {} if reason is None else {"reason": reason}, resource("remediations", id, verb)
    with consent.as_shown(f"faulthound remediations show {id}"):
        if not (yes or dry_run):
            connection.post(path, body, tag, **consent.rehearsed(True))  # what is refused is not asked about
        consent.agreed(effect, yes=yes or dry_run)
        answer = connection.post(path, body, tag, **consent.rehearsed(dry_run))
    if dry_run:
        consent.would(effect)
    following = standing(answer)
    note = f"{id} {'would be' if dry_run else 'is'} {answer['status']}" + (f": {following}" if following else "")
    return Answer(answer, lambda: Speech().note(note))


def _job_nodes(connection: Connection, found: Mapping[str, Any]) -> int | None:
    """Return how many nodes the job runs on, None where the service does not know."""
    try:
        attempts = connection.get(resource("jobs", found["job"]))["attempts"]
    except RequestRefused:
        return None
    wanted = found.get("attempt")
    sizes = {row["number"]: row["nodes"] for row in attempts}
    return sizes.get(max(sizes, default=0) if wanted is None else wanted)


REMEDIATION_COLUMNS = ("remediation", "proposed", "status", "job", "does", "sure", "until", "incident", "why so")


def remediation_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of ``REMEDIATION_COLUMNS`` for one remediation of a list."""
    from service.reports.remediations import asked_by, because, obstacles, short

    by = asked_by(row)
    why = obstacles(row)[:1] or [str(row.get("because") or (because(row) if by else ""))]
    return (
        row["id"], shown_instant(row["proposed_at"]), row["status"], row["job"], short(row),
        _sure(row), shown_instant(row.get("expires_at")), "none" if by else row["incident"], why[0],
    )  # fmt: skip


def remediation_lines(found: Mapping[str, Any], job_nodes: int | None = None) -> Iterator[str]:
    """Yield a remediation in lines: what it does, why, its decisions, and its status."""
    from service.reports import remediations as report

    yield f"{found['id']}: {found['status']}"
    yield f"  {report.deed(found, job_nodes)}."
    yield f"  why: {report.because(found)}"
    if found.get("first"):
        yield f"  {found['first']}"
    yield "  no incident and no verdict stands behind it" if report.asked_by(found) else f"  {_behind(found)}"
    if lost := report.loss(found):
        yield f"  expected loss: {lost}"
    for line in report.groups(found):
        yield f"    {line}"
    yield from _course(found)
    yield f"  now: {report.standing(found) or found['status']}"
    for one in report.obstacles(found):
        yield f"  cannot act now: {one}"


def _course(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield what has happened so far, a line each."""
    rule = f" by rule {found['rule']}" if found.get("rule") else ""
    yield f"  {shown_instant(found['proposed_at'])}  proposed by {found['proposed_by']}, {found['mode']}{rule}"
    if found.get("approved_at") is not None:
        yield f"  {shown_instant(found['approved_at'])}  approved by {found['approved_by']}"
    if found.get("began_at") is not None:
        yield f"  {shown_instant(found['began_at'])}  begun"
    if found.get("completed_at") is not None:
        yield f"  {shown_instant(found['completed_at'])}  completed"
    for node, did in sorted(dict(found.get("did") or {}).items()):
        yield f"    {node}: {did if isinstance(did, str) else _compact(did)}"
    if asked := found.get("undo"):
        yield f"  {shown_instant(asked['at'])}  undo asked for by {asked['by']}: {asked['reason']}"
    if found.get("outcome"):
        yield f"  outcome: {found['outcome'].replace('_', ' ')}"


def _compact(value: object) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


def _behind(found: Mapping[str, Any]) -> str:
    """Return the verdict that it rests on, in short."""
    sure = f"{sure} sure" if (sure := _sure(found)) else "names nothing"
    said = ", ".join(filter(None, (found["symptom"], found["fault_class"], sure)))
    return f"{found['incident']}, version {found['verdict_version']} of its verdict: {said}"


def _print_remediation(found: Mapping[str, Any], job_nodes: int | None) -> None:
    from service.reports.remediations import loss, short

    print_lines(remediation_lines(found, job_nodes))
    if others := found.get("alternatives"):
        print_lines(["", "Alternatives:"])
        print_table(("does", "expected loss", "why"), [(short(one), loss(one), one.get("why") or "") for one in others])


def _sure(found: Mapping[str, Any]) -> str:
    """Return how sure its verdict is; empty where it rests on none, or on one that names nothing."""
    from service.reports.remediations import asked_by

    return "" if asked_by(found) or not found["probability"] else f"{found['probability'] * 100:.0f} %"
