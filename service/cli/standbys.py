"""``faulthound standbys``: how many nodes should stand by, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from service.cli.output import print_lines, print_table
from service.cli.verbs import Answer, with_service
from service.client import Connection

COLUMNS = ("for", "nodes", "standbys", "with 95 %", "declared", "missing")


def _standbys(
    connection: Connection,
    nodes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="For a job of so many nodes; for the fleet, if left out.")
    ] = None,
) -> Answer:
    """Show how many nodes should stand by, so that on 99 days in 100 no failed node waits for another.

    The failure rate is the fleet's own, as far as it has a history, and comes with its interval. Running
    jobs are compared with the spares that their owners have declared.

    \b
    Examples:
      faulthound standbys
      faulthound standbys --nodes 1024
      faulthound standbys --json | jq '.jobs[] | select(.missing > 0)'
    """
    found = connection.get("/v1/fleet/standbys", nodes=nodes)
    rows = [*((one["job"], one) for one in found["jobs"]), *(("a job of this size", one) for one in found["sizes"])]

    def show() -> None:
        print_lines([f"{found['why']}.", ""])
        print_table(COLUMNS, [standby_row(whose, one) for whose, one in rows])

    return Answer(found, show)


standbys = with_service(_standbys, json=True)


def standby_row(whose: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of ``COLUMNS`` for one size, or one job."""
    interval = f"{row['standbys_low']} to {row['standbys_high']}"
    declared, missing = ("" if row.get(name) is None else str(row[name]) for name in ("spares", "missing"))
    return whose, f"{row['nodes']:,}", str(row["standbys"]), interval, declared, missing
