"""``faulthound nodes``: the machines that report, and what their agents see."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from service.commands.asking import print_json, shown_instant, to
from service.commands.connection import DEFAULT_URL, CaFile, Json, ServiceUrl, TokenFile, instant

nodes = typer.Typer(no_args_is_help=True, help="List the nodes that report, and show what an agent sees.")


@nodes.command("list")
def list_nodes(
    since: Annotated[str | None, typer.Option(metavar="WHEN", help="Reported after 10m, 2h ago or RFC 3339.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="No more than these.")] = None,
    json: Json = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """List the nodes that have reported.

    \b
    Examples:
      faulthound nodes list --since 5m
      faulthound nodes list --json | jq -r '.[].name'
    """
    from service.clock import now

    with to(service, ca_file, token_file) as connection:
        rows = list(connection.all("/v1/nodes", limit, since=instant("--since", since, now())))
    if json:
        print_json(rows)
        return
    from service.commands.tables import print_table

    print_table(("node", "last seen", "clock off by", "agent"), [_row(row) for row in rows])


@nodes.command()
def show(
    node: Annotated[str, typer.Argument(metavar="NODE", help="The node's name.")],
    json: Json = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """Show a node: its devices, and what each collector of its agent sees or cannot see.

    \b
    Examples:
      faulthound nodes show gpu-0413
      faulthound nodes show gpu-0413 --json | jq .coverage
    """
    from urllib.parse import quote

    with to(service, ca_file, token_file) as connection:
        document = connection.get(f"/v1/nodes/{quote(node, safe='')}")
    if json:
        print_json(document)
        return
    _print_node(document)


def _row(row: dict[str, Any]) -> tuple[str, str, str, str]:
    offset = row["clock_offset_seconds"]
    off = "" if offset is None else f"{offset:+.3f} s"
    return row["name"], shown_instant(row["last_seen_at"]), off, row["agent_version"]


def _print_node(document: dict[str, Any]) -> None:
    from service.commands.tables import print_table

    _, seen, off, agent = _row(document)
    sys.stdout.write(
        f"{document['name']}: last seen {seen}, clock off by {off or 'unknown'}, agent {agent or 'unknown'}\n"
    )
    if document["devices"]:
        sys.stdout.write("\n")
        print_table(
            ("device", "type", "index", "name", "pci"),
            [
                (id, *(str(device.get(key, "")) for key in ("type", "index", "name", "pci")))
                for id, device in sorted(document["devices"].items())
            ],
        )
    if collectors := document["coverage"].get("collectors"):
        sys.stdout.write("\n")
        counts = ("runs", "records", "nothing", "failures", "overran")
        print_table(
            ("collector", *counts, "newest reason"),
            [(row["name"], *(str(row.get(key, 0)) for key in counts), row.get("error", "")) for row in collectors],
        )
