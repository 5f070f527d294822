"""``faulthound nodes``: the machines that report, the state and the history of each, and reporting that one is back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from service.cli import consent
from service.cli.consent import DryRun, Reason, Yes
from service.cli.options import Limit
from service.cli.output import print_lines, print_table
from service.cli.times import instant, shown_instant
from service.cli.verbs import Answer, command, table
from service.client import Connection, resource
from service.clock import now

nodes = typer.Typer(
    no_args_is_help=True, help="List the nodes and their states, show one, and report that one is back."
)
Name = Annotated[str, typer.Argument(metavar="NODE", help="The node's name.")]


@command(nodes, "list", ids=True)
def list_nodes(
    connection: Connection,
    since: Annotated[str | None, typer.Option(metavar="WHEN", help="Reported after 10m, 2h ago or RFC 3339.")] = None,
    limit: Limit = None,
    unfit: Annotated[
        bool, typer.Option("--unfit", help="Only those that are not fit, whether they report or not.")
    ] = False,
) -> Answer:
    """List the nodes that have reported, with the state of each: fit, suspected, out, burn_in, offender.

    The state is of the machine. A node marked silent does not report: its agent has ended, its network is cut, or
    it is down.

    \b
    Examples:
      faulthound nodes list --since 5m
      faulthound nodes list --unfit
      faulthound nodes list --json | jq -r '.[].name'
    """
    if unfit:
        return table(list(connection.all("/v1/fleet/records", limit)), STANDING_COLUMNS, standing_row, "node")
    rows = list(connection.all("/v1/nodes", limit, since=instant("--since", since, now())))
    columns = ("node", "state", "reports", "last seen", "clock off by", "agent")
    return table(rows, columns, lambda row: (row["name"], row["state"], reports(row), *_seen(row)), "name")


@command(nodes)
def show(connection: Connection, node: Name) -> Answer:
    """Show a node: its state and history, its devices, and what its agent collects or cannot collect.

    \b
    Examples:
      faulthound nodes show gpu-0413
      faulthound nodes show gpu-0413 --json | jq .record.history
    """
    record = connection.get(resource("nodes", node, "record"))
    # Of a node that has long been silent only its record is left.
    document = (connection.find(resource("nodes", node)) or {}) | {"record": record}
    return Answer(document, lambda: _print_node(document))


@command(nodes)
def returned(
    connection: Connection,
    node: Name,
    reason: Reason,
    checked: Annotated[bool, typer.Option("--checked", help="It has passed a check: it needs no burn-in.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> Answer:
    """Report that a node which was taken out serves again. It counts as no spare until jobs have run well on it for a day.

    The scheduler is not informed: resume the node there, or undo the remediation, which does both.

    \b
    Examples:
      faulthound nodes returned gpu-0413 --reason "its HBM was replaced"
      faulthound nodes returned gpu-0413 --reason "a night of dcgmi diag -r 4" --checked --yes
    """
    with consent.as_shown(f"faulthound nodes show {node}"):
        found, tag = connection.tagged(resource("nodes", node, "record"))
        after = "fit at once" if checked else f"under burn-in for {found['needed_seconds'] / 3_600:g} h of good steps"
        effect = f"Take {node} as back, {after} ({found['state']}: {found['why']})"
        consent.agreed(effect, yes=yes or dry_run)
        body, path = {"reason": reason, "checked": checked}, resource("nodes", node, "returned")
        answer = connection.post(path, body, tag, **consent.rehearsed(dry_run))
    note = f"{node} is {answer['state'].replace('_', '-')}: {answer['why']}"
    return consent.changed(answer, effect, note, dry_run=dry_run)


def reports(row: Mapping[str, Any]) -> str:
    """Return whether a node reports, or for how long it has been silent."""
    from service.reports.instants import span

    silent = row.get("silent_seconds")
    return "yes" if silent is None else f"SILENT for {span(silent)}"


STANDING_COLUMNS = ("node", "state", "since", "until", "why")


def standing_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of ``STANDING_COLUMNS`` for one node's record."""
    return row["node"], row["state"], shown_instant(row["since"]), shown_instant(row["until"]), row["why"]


def record_lines(record: Mapping[str, Any]) -> Iterator[str]:
    """Yield a node's state and history, a line each."""
    yield f"  {record['state'].replace('_', '-')}: {record['why']}"
    for name in ("since", "until"):
        if record[name] is not None:
            yield f"  {name}: {shown_instant(record[name])}{' at the earliest' if name == 'until' else ''}"
    if record["history"]:
        out, vain = len(record["evictions"]), record["acquittals"]
        yield f"  probability of a fault, from its history: {record['probability']:.1%}; recent evictions: {out}, in vain: {vain}"
    for line in record["history"]:
        yield f"  {shown_instant(line['at'])}  {line['kind'].replace('_', ' ')}{': ' if line['note'] else ''}{line['note']}"


def _seen(row: dict[str, Any]) -> tuple[str, str, str]:
    offset = row["clock_offset_seconds"]
    off = "" if offset is None else f"{offset:+.3f} s"
    return shown_instant(row["last_seen_at"]), off, row["agent_version"]


def _print_node(document: dict[str, Any]) -> None:
    record = document["record"]
    first = f"{record['node']}: it has not reported for long"
    if "name" in document:
        seen, off, agent = _seen(document)
        silent = "" if document.get("silent_seconds") is None else f" ({reports(document)})"
        first = (
            f"{document['name']}: last seen {seen}{silent}, clock off by {off or 'unknown'}, agent {agent or 'unknown'}"
        )
    print_lines([first, *record_lines(record)])
    if document.get("devices"):
        print_lines([""])
        keys = ("type", "index", "name", "pci")
        cells = [
            (id, *(str(device.get(key, "")) for key in keys)) for id, device in sorted(document["devices"].items())
        ]
        print_table(("device", *keys), cells)
    if collectors := document.get("coverage", {}).get("collectors"):
        print_lines([""])
        counts = ("runs", "records", "nothing", "failures", "overran", "killed_parses")
        cells = [(row["name"], *(str(row.get(key, 0)) for key in counts), row.get("error", "")) for row in collectors]
        print_table(("collector", *counts, "newest reason"), cells)
