"""``faulthound holds``: leave a node or a job alone until then."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from service.cli import consent
from service.cli.asking import print_json, shown_instant, to
from service.cli.consent import DryRun, OptionalReason, Reason, Unasked, Yes
from service.cli.waiting import concerning, keeps, waiting
from service.client import DEFAULT_URL, CaFile, Connection, Json, ServiceUrl, TokenFile, seconds_of
from service.endings import CommandError
from service.speech import Speech

holds = typer.Typer(no_args_is_help=True, help="Leave nodes or a job alone for a time: nothing acts on what is held.")
MOST_NODES = 256  # of one `holds add`


@holds.command()
def add(
    reason: Reason,
    span: Annotated[str, typer.Option("--for", metavar="SPAN", help="How long: 30m, 4h, 7d.")],
    node: Annotated[
        str | None, typer.Option(metavar="HOSTLIST", help="These nodes: gpu-0413 or gpu-[0413-0415].")
    ] = None,
    job: Annotated[str | None, typer.Option(metavar="JOB", help="Or this job.")] = None,
    dry_run: DryRun = False,
    _yes: Unasked = False,
    json: Json = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """Keep every remediation from acting on a node or a job until the time is over. What has begun is not stopped.

    \b
    Examples:
      faulthound holds add --node gpu-0413 --for 4h --reason "its HBM is being tested"
      faulthound holds add --job llama-405b --for 1d --reason "its last checkpoint is being copied"
    """
    from service.clock import now

    with to(service, ca_file, token_file) as connection:
        wishes = _wishes(node, job, reason, now() + _span(span))
        made = [_added(connection, wish, dry_run=dry_run) for wish in wishes]
        kept = concerning(waiting(connection), [wish["node"] for wish in wishes if "node" in wish], job)
    keeps(kept, "would be kept from acting" if dry_run else "kept from acting")
    if json:
        print_json(made)


@holds.command("list")
def list_holds(
    json: Json = False, service: ServiceUrl = DEFAULT_URL, ca_file: CaFile = None, token_file: TokenFile = None
) -> None:
    """List what is held now: by whom, why, and until when.

    \b
    Examples:
      faulthound holds list
      faulthound holds list --json | jq -r '.[] | select(.node == "gpu-0413").id'
    """
    with to(service, ca_file, token_file) as connection:
        rows = list(connection.all("/v1/holds"))
    if json:
        print_json(rows)
        return
    from service.cli.tables import print_table

    print_table(HOLD_COLUMNS, [hold_row(row) for row in rows])


@holds.command()
def expire(
    hold: Annotated[str, typer.Argument(metavar="ID", help="The hold's id, as `holds list` shows it.")],
    reason: OptionalReason = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """End a hold before its time. What was approved meanwhile may act at once.

    \b
    Examples:
      faulthound holds expire hold-0123456789ab
      faulthound holds expire hold-0123456789ab --dry-run
    """
    with to(service, ca_file, token_file) as connection:
        found = _found(connection, hold)
        effect = (
            f"End the hold of {found['by']} on {_of(found)} ({found['reason']}), so that remediations may act on it"
        )
        freed = concerning(waiting(connection), [found["node"]] if found.get("node") else [], found.get("job"))
        keeps(freed, "waits for it")
        consent.agreed(effect, yes=yes or dry_run)
        body = {} if reason is None else {"reason": reason}
        with consent.as_shown("faulthound holds list"):
            tag = f'"{found["version"]}"'
            answer = connection.post(f"/v1/holds/{hold}/expire", body, tag, **consent.rehearsed(dry_run))
    consent.would(effect) if dry_run else Speech().note(f"{hold} has ended")
    if json:
        print_json(answer)


HOLD_COLUMNS = ("hold", "of", "until", "by", "reason")


def hold_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of ``HOLD_COLUMNS`` for one hold."""
    return row["id"], _of(row), shown_instant(row["until"]), row["by"], row["reason"]


def _of(hold: Mapping[str, Any]) -> str:
    return f"node {hold['node']}" if hold.get("node") is not None else f"job {hold['job']}"


def _wishes(node: str | None, job: str | None, reason: str, until: float) -> list[dict[str, Any]]:
    """Return one wish a node, or one for the job."""
    if (node is None) == (job is None):
        raise CommandError("a hold is of nodes or of a job: give --node or --job, one of them")
    if node is None:
        return [{"job": job, "reason": reason, "until": until}]
    return [{"node": name, "reason": reason, "until": until} for name in _unfolded(node)]


def _unfolded(hostlist: str) -> list[str]:
    from collectors.formats import Damaged, hosts

    try:
        names = list(dict.fromkeys(hosts.expand(hostlist)))
    except Damaged as problem:
        raise CommandError(f"--node {hostlist[:80]!a}: {problem}: write gpu-0413 or gpu-[0413-0415]") from None
    if not 0 < len(names) <= MOST_NODES:
        raise CommandError(
            f"--node {hostlist[:80]!a} stands for {len(names):,} nodes, 1 to {MOST_NODES} fit: hold the job instead"
        )
    return names


def _span(text: str) -> float:
    if not re.fullmatch(r"\d{1,9}[smhd]", text):
        raise CommandError(f"--for {text!a} is no span of time: write 30m, 4h or 7d")
    return seconds_of(text)


def _added(connection: Connection, wish: Mapping[str, Any], *, dry_run: bool) -> Any:
    """Add one hold and say so at once: of several, those that were made before a refusal stand."""
    made = connection.post("/v1/holds", wish, **consent.rehearsed(dry_run))
    if dry_run:
        consent.would(f"Leave {_of(wish)} alone until {shown_instant(wish['until'])}")
    else:
        Speech().note(f"{made['id']}: {_of(made)} is left alone until {shown_instant(made['until'])}")
    if not made.get("known", True):
        kind = "nodes" if made.get("node") is not None else "jobs"
        Speech().note(f"nobody has seen {_of(made)} yet: is it spelt as `faulthound {kind} list` has it?")
    return made


def _found(connection: Connection, hold: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] | None = next((row for row in connection.all("/v1/holds") if row["id"] == hold), None)
    if found is None:
        raise CommandError(f"no hold {hold!a} is in force: `faulthound holds list` shows those that are")
    return found
