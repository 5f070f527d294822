"""``faulthound remediations``: what is proposed and done about incidents, and what a person decides of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from service.cli.asking import print_json, shown_instant, to
from service.cli.decisions import Id, approve, cancel, job_nodes, reject, remediation_path, sure, undo
from service.cli.findings import found as found_out
from service.client import DEFAULT_URL, CaFile, Json, ServiceUrl, TokenFile

remediations = typer.Typer(no_args_is_help=True, help="List what would be done about incidents, and decide it.")


class Status(StrEnum):
    """How far a remediation is."""

    PROPOSED = "proposed"
    APPROVED = "approved"
    CLAIMED = "claimed"
    EXECUTING = "executing"
    VERIFYING = "verifying"
    DONE = "done"
    REJECTED = "rejected"
    FAILED = "failed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    UNDONE = "undone"


@remediations.command("list")
def list_remediations(
    status: Annotated[
        Status | None,
        typer.Option(metavar="STATUS", help="Only these: proposed, approved, verifying …; all if left out."),
    ] = None,
    incident: Annotated[str | None, typer.Option(metavar="ID", help="Of this incident.")] = None,
    job: Annotated[str | None, typer.Option(metavar="JOB", help="Of this job.")] = None,
    node: Annotated[str | None, typer.Option(metavar="NODE", help="That take this node out.")] = None,
    claimable: Annotated[bool, typer.Option("--claimable", help="That a scheduler may claim now.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="No more than these.")] = None,
    json: Json = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """List remediations, the newest first: what each does to whom, and how far it is.

    \b
    Examples:
      faulthound remediations list --status proposed
      faulthound remediations list --job llama-405b --json | jq -r '.[].id'
    """
    with to(service, ca_file, token_file) as connection:
        rows = list(
            connection.all(
                "/v1/remediations", limit, status=None if status is None else status.value, incident=incident,
                job=job, node=node, claimable="true" if claimable else None,
            )
        )  # fmt: skip
    if json:
        print_json(rows)
        return
    from service.cli.tables import print_table

    print_table(REMEDIATION_COLUMNS, [remediation_row(row) for row in rows])


@remediations.command()
def show(
    remediation: Id,
    json: Json = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """Show a remediation: what it does and why, what was decided and done, and what keeps it from acting now.

    \b
    Examples:
      faulthound remediations show rem-0123456789ab
      faulthound remediations show rem-0123456789ab --json | jq -r '.hindrances[].text'
    """
    with to(service, ca_file, token_file) as connection:
        found = connection.get(remediation_path(remediation))
        size = None if json else job_nodes(connection, found)
    if json:
        print_json(found)
        return
    _print_remediation(found, size)


for _verb in (approve, reject, cancel, undo, found_out):
    remediations.command()(_verb)

REMEDIATION_COLUMNS = ("remediation", "proposed", "status", "job", "does", "sure", "incident", "why so")


def remediation_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of ``REMEDIATION_COLUMNS`` for one remediation of a list."""
    from service.reports.remediations import obstacles, short

    why = obstacles(row)[:1] or [str(row.get("because") or "")]
    return (
        row["id"], shown_instant(row["proposed_at"]), row["status"], row["job"], short(row),
        sure(row), row["incident"], why[0],
    )  # fmt: skip


def remediation_lines(found: Mapping[str, Any], job_nodes: int | None = None) -> Iterator[str]:
    """Say what a remediation is, in lines: what it does, why, who decided what, and how it stands."""
    from service.reports import remediations as telling

    yield f"{found['id']}: {found['status']}"
    yield f"  {telling.deed(found, job_nodes)}."
    yield f"  why: {found['why']}"
    yield (
        f"  {found['incident']}, version {found['verdict_version']} of its verdict: "
        f"{found['symptom']}, {found['fault_class']}, {sure(found)} sure"
    )
    if hours := _hours(found):
        yield f"  expected loss: {hours} GPU hours"
    for line in telling.groups(found):
        yield f"    {line}"
    yield from _course(found)
    yield f"  now: {telling.standing(found) or found['status']}"
    for one in telling.obstacles(found):
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
        yield f"  {shown_instant(asked['at'])}  {asked['by']} wants it undone: {asked['reason']}"
    if found.get("outcome"):
        yield f"  outcome: {found['outcome'].replace('_', ' ')}"


def _compact(value: object) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


def _print_remediation(found: Mapping[str, Any], job_nodes: int | None) -> None:
    from service.cli.tables import print_table
    from service.reports.remediations import short
    from service.reports.text import printable

    for line in remediation_lines(found, job_nodes):
        sys.stdout.write(printable(line).replace("\n", " ") + "\n")
    if others := found.get("alternatives"):
        sys.stdout.write("\nWhat else was weighed:\n")
        print_table(("does", "GPU hours", "why"), [(short(one), _hours(one), one.get("why") or "") for one in others])


def _hours(plan: Mapping[str, Any]) -> str:
    loss = plan.get("expected_loss_gpu_hours")
    return "" if loss is None else f"{loss:.1f}"
