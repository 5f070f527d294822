"""``faulthound standbys``: how many nodes should stand by, and why."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from service.cli.asking import print_json, to
from service.client import DEFAULT_URL, CaFile, Json, ServiceUrl, TokenFile

COLUMNS = ("for", "nodes", "standbys", "with 95 %", "declared", "missing")


def standbys(
    nodes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="For a job of so many nodes; for the fleet, if left out.")
    ] = None,
    json: Json = False,
    service: ServiceUrl = DEFAULT_URL,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
) -> None:
    """Say how many nodes should stand by, so that on 99 days in 100 no failed node waits for another.

    The rate of failures is the fleet's own, as far as it has a history, and is told with its interval. Jobs
    that run are compared with the spares that their owners have declared.

    \b
    Examples:
      faulthound standbys
      faulthound standbys --nodes 1024
      faulthound standbys --json | jq '.jobs[] | select(.missing > 0)'
    """
    with to(service, ca_file, token_file) as connection:
        found = connection.get("/v1/fleet/standbys", nodes=nodes)
    if json:
        print_json(found)
        return
    from service.cli.tables import print_table

    sys.stdout.write(f"{found['why']}.\n\n")
    sizes = [standby_row("a job of this size", one) for one in found["sizes"]]
    print_table(COLUMNS, [*(standby_row(one["job"], one) for one in found["jobs"]), *sizes])


def standby_row(whose: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of ``COLUMNS`` for one size, or one job."""
    interval = f"{row['standbys_low']} to {row['standbys_high']}"
    declared, missing = ("" if row.get(name) is None else str(row[name]) for name in ("spares", "missing"))
    return whose, f"{row['nodes']:,}", str(row["standbys"]), interval, declared, missing
