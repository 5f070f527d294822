"""``faulthound holds``: keep remediations away from a node or a job for a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from service.cli import consent
from service.cli.consent import DryRun, OptionalReason, Reason, Yes, concerning, list_waiting, waiting
from service.cli.speech import Speech
from service.cli.times import shown_instant, span_seconds
from service.cli.verbs import Answer, command, table
from service.client import Connection, RequestRefused, UserError, resource
from service.clock import now

holds = typer.Typer(no_args_is_help=True, help="Keep remediations away from nodes or a job for a time.")
MOST_NODES = 256  # of one `holds add`
UNKNOWN = 404
YesUnknown = Annotated[bool, typer.Option("--yes", "-y", help="Hold unknown nodes without asking.")]


@command(holds)
def add(
    connection: Connection,
    reason: Reason,
    span: Annotated[str, typer.Option("--for", metavar="SPAN", help="How long: 30m, 4h, 7d.")],
    node: Annotated[
        str | None, typer.Option(metavar="HOSTLIST", help="These nodes: gpu-0413 or gpu-[0413-0415].")
    ] = None,
    job: Annotated[str | None, typer.Option(metavar="JOB", help="Or this job.")] = None,
    dry_run: DryRun = False,
    yes: YesUnknown = False,
) -> Answer:
    """Keep every remediation from acting on a node or a job until the time is over. One that has begun is not stopped.

    A node that no agent has reported may be misspelt: this asks before it holds one.

    \b
    Examples:
      faulthound holds add --node gpu-0413 --for 4h --reason "its HBM is being tested"
      faulthound holds add --job llama-405b --for 1d --reason "its last checkpoint is being copied"
    """
    requests = _requests(node, job, reason, now() + span_seconds("--for", span, "30m, 4h or 7d"))
    made = [_added(connection, request, dry_run=dry_run, yes=yes) for request in requests]
    kept = concerning(waiting(connection), [request["node"] for request in requests if "node" in request], job)
    list_waiting(kept, "would be kept from acting" if dry_run else "kept from acting")
    return Answer(made, lambda: None)


@command(holds, "list", ids=True)
def list_holds(connection: Connection) -> Answer:
    """List the holds in force: of which node or job, until when, by whom and why.

    \b
    Examples:
      faulthound holds list
      faulthound holds list --json | jq -r '.[] | select(.node == "gpu-0413").id'
    """
    return table(list(connection.all("/v1/holds")), HOLD_COLUMNS, hold_row, "id")


@command(holds)
def expire(
    connection: Connection,
    hold: Annotated[str, typer.Argument(metavar="ID", help="The hold's id, as `holds list` shows it.")],
    reason: OptionalReason = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> Answer:
    """End a hold before its time. Remediations that were approved meanwhile may act at once.

    \b
    Examples:
      faulthound holds expire hold-0123456789ab
      faulthound holds expire hold-0123456789ab --dry-run
    """
    found = _found(connection, hold)
    effect = f"End the hold of {found['by']} on {_of(found)} ({found['reason']}), so that remediations may act on it"
    freed = concerning(waiting(connection), [found["node"]] if found.get("node") else [], found.get("job"))
    list_waiting(freed, "waits for it")
    consent.agreed(effect, yes=yes or dry_run)
    body = {} if reason is None else {"reason": reason}
    with consent.as_shown("faulthound holds list"):
        tag = f'"{found["version"]}"'
        answer = connection.post(resource("holds", hold, "expire"), body, tag, **consent.rehearsed(dry_run))
    return consent.changed(answer, effect, f"{hold} has ended", dry_run=dry_run)


HOLD_COLUMNS = ("hold", "of", "until", "by", "reason")


def hold_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of ``HOLD_COLUMNS`` for one hold."""
    return row["id"], _of(row), shown_instant(row["until"]), row["by"], row["reason"]


def _of(hold: Mapping[str, Any]) -> str:
    return f"node {hold['node']}" if hold.get("node") is not None else f"job {hold['job']}"


def _requests(node: str | None, job: str | None, reason: str, until: float) -> list[dict[str, Any]]:
    """Return one request a node, or one for the job."""
    if (node is None) == (job is None):
        raise UserError("a hold is of nodes or of a job: give --node or --job, one of them")
    if node is None:
        return [{"job": job, "reason": reason, "until": until}]
    return [{"node": name, "reason": reason, "until": until} for name in _unfolded(node)]


def _unfolded(hostlist: str) -> list[str]:
    from collectors.formats import Damaged, hosts

    try:
        names = list(dict.fromkeys(hosts.expand(hostlist)))
    except Damaged as problem:
        raise UserError(f"--node {hostlist[:80]!a}: {problem}: write gpu-0413 or gpu-[0413-0415]") from None
    if not 0 < len(names) <= MOST_NODES:
        raise UserError(
            f"--node {hostlist[:80]!a} stands for {len(names):,} nodes, 1 to {MOST_NODES} fit: hold the job instead"
        )
    return names


def _added(connection: Connection, request: Mapping[str, Any], *, dry_run: bool, yes: bool) -> Any:
    """Add one hold and report it at once: of several, those that were made before a refusal stay."""
    try:
        made = connection.post("/v1/holds", request, **consent.rehearsed(dry_run))
    except RequestRefused as problem:
        if problem.status != UNKNOWN:
            raise
        consent.agreed(f"{str(problem).partition(': `allow')[0]}: hold {_of(request)} all the same", yes=yes or dry_run)
        made = connection.post("/v1/holds", {**request, "allow_unknown": True}, **consent.rehearsed(dry_run))
    if dry_run:
        consent.would(f"Leave {_of(request)} alone until {shown_instant(request['until'])}")
    else:
        Speech().note(f"{made['id']}: {_of(made)} is left alone until {shown_instant(made['until'])}")
    if not made.get("known", True):
        kind = "nodes" if made.get("node") is not None else "jobs"
        Speech().note(f"no agent has reported {_of(made)} yet: compare the name with `faulthound {kind} list`")
    return made


def _found(connection: Connection, hold: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] | None = next((row for row in connection.all("/v1/holds") if row["id"] == hold), None)
    if found is None:
        raise UserError(f"no hold {hold!a} is in force: `faulthound holds list` shows those that are")
    return found
