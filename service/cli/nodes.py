"""``faulthound nodes``: the machines that report, what their agents see, how each stands, and that one is back."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from service.cli import consent
from service.cli.asking import print_json, shown_instant, to
from service.cli.consent import DryRun, Reason, Yes
from service.client import DEFAULT_URL, CaFile, Connection, Json, ServiceUrl, TokenFile, instant
from service.endings import Forbidden
from service.speech import Speech

NOT_FOUND = 404
nodes = typer.Typer(
    no_args_is_help=True, help="List the nodes and how each stands, show one, and say that one is back."
)
Name = Annotated[str, typer.Argument(metavar="NODE", help="The node's name.")]


@nodes.command("list")
def list_nodes(
    since: Annotated[str | None, typer.Option(metavar="WHEN", help="Reported after 10m, 2h ago or RFC 3339.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="No more than these.")] = None,
    unfit: Annotated[
        bool, typer.Option("--unfit", help="Only those that are not fit, whether they report or not.")
    ] = False,
    json: Json = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """List the nodes that have reported, and how each stands: fit, suspected, out, burn_in, offender.

    \b
    Examples:
      faulthound nodes list --since 5m
      faulthound nodes list --unfit
      faulthound nodes list --json | jq -r '.[].name'
    """
    from service.cli.tables import print_table
    from service.clock import now

    with to(service, ca_file, token_file) as connection:
        path = "/v1/fleet/records" if unfit else "/v1/nodes"
        rows = list(connection.all(path, limit, since=None if unfit else instant("--since", since, now())))
    if json:
        print_json(rows)
    elif unfit:
        print_table(STANDING_COLUMNS, [standing_row(row) for row in rows])
    else:
        columns = ("node", "state", "last seen", "clock off by", "agent")
        print_table(columns, [(row["name"], row["state"], *_row(row)[1:]) for row in rows])


@nodes.command()
def show(
    node: Name,
    json: Json = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """Show a node: how it stands and what happened to it, its devices, and what its agent sees or cannot see.

    \b
    Examples:
      faulthound nodes show gpu-0413
      faulthound nodes show gpu-0413 --json | jq .record.history
    """
    with to(service, ca_file, token_file) as connection:
        record = connection.get(f"{_path(node)}/record")
        document = _reported(connection, node) | {"record": record}
    if json:
        print_json(document)
        return
    _print_node(document)


@nodes.command()
def returned(
    node: Name,
    reason: Reason,
    checked: Annotated[bool, typer.Option("--checked", help="It has passed a check: it needs no burn-in.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """Say that a node which was taken out serves again. Until jobs have run well on it for a day it counts as no spare.

    The scheduler is not told: resume the node there, or undo the remediation, which does both.

    \b
    Examples:
      faulthound nodes returned gpu-0413 --reason "its HBM was replaced"
      faulthound nodes returned gpu-0413 --reason "a night of dcgmi diag -r 4" --checked --yes
    """
    with to(service, ca_file, token_file) as connection, consent.as_shown(f"faulthound nodes show {node}"):
        found, tag = connection.tagged(f"{_path(node)}/record")
        after = "fit at once" if checked else f"under burn-in for {found['needed_seconds'] / 3_600:g} h of good steps"
        effect = f"Take {node} as back, {after} ({found['state']}: {found['why']})"
        consent.agreed(effect, yes=yes or dry_run)
        wish = {"reason": reason, "checked": checked}
        answer = connection.post(f"{_path(node)}/returned", wish, tag, **consent.rehearsed(dry_run))
    consent.would(effect) if dry_run else Speech().note(
        f"{node} is {answer['state'].replace('_', '-')}: {answer['why']}"
    )
    if json:
        print_json(answer)


STANDING_COLUMNS = ("node", "state", "since", "until", "why")


def standing_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of ``STANDING_COLUMNS`` for one node's record."""
    return row["node"], row["state"], shown_instant(row["since"]), shown_instant(row["until"]), row["why"]


def record_lines(record: Mapping[str, Any]) -> Iterator[str]:
    """Say how a node stands and what happened to it, in lines."""
    yield f"  {record['state'].replace('_', '-')}: {record['why']}"
    for name in ("since", "until"):
        if record[name] is not None:
            yield f"  {name}: {shown_instant(record[name])}{' at the earliest' if name == 'until' else ''}"
    if record["history"]:
        out, vain = len(record["evictions"]), record["acquittals"]
        yield f"  faulty: {record['probability']:.1%} by all that is remembered; evictions of late: {out}, in vain: {vain}"
    for line in record["history"]:
        yield f"  {shown_instant(line['at'])}  {line['kind'].replace('_', ' ')}{': ' if line['note'] else ''}{line['note']}"


def _path(node: str) -> str:
    from urllib.parse import quote

    return f"/v1/nodes/{quote(node, safe='')}"


def _reported(connection: Connection, node: str) -> dict[str, Any]:
    """Return what the node's agent has reported; of one that has long been silent nothing is left but its record."""
    try:
        found: dict[str, Any] = connection.get(_path(node))
    except Forbidden as problem:
        if problem.status != NOT_FOUND:
            raise
        return {}
    return found


def _row(row: dict[str, Any]) -> tuple[str, str, str, str]:
    offset = row["clock_offset_seconds"]
    off = "" if offset is None else f"{offset:+.3f} s"
    return row["name"], shown_instant(row["last_seen_at"]), off, row["agent_version"]


def _print_node(document: dict[str, Any]) -> None:
    from service.cli.tables import print_table
    from service.reports.text import printable

    record = document["record"]
    lines = [f"{record['node']}: it has not reported for long"]
    if "name" in document:
        _, seen, off, agent = _row(document)
        lines = [f"{document['name']}: last seen {seen}, clock off by {off or 'unknown'}, agent {agent or 'unknown'}"]
    for line in (*lines, *record_lines(record)):
        sys.stdout.write(printable(line).replace("\n", " ") + "\n")
    if document.get("devices"):
        sys.stdout.write("\n")
        print_table(
            ("device", "type", "index", "name", "pci"),
            [
                (id, *(str(device.get(key, "")) for key in ("type", "index", "name", "pci")))
                for id, device in sorted(document["devices"].items())
            ],
        )
    if collectors := document.get("coverage", {}).get("collectors"):
        sys.stdout.write("\n")
        counts = ("runs", "records", "nothing", "failures", "overran")
        print_table(
            ("collector", *counts, "newest reason"),
            [(row["name"], *(str(row.get(key, 0)) for key in counts), row.get("error", "")) for row in collectors],
        )
