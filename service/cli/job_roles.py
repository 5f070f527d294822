"""The roles of a job as a table: what each instance does, and what it waits for."""

from __future__ import annotations

from typing import Any

from service.cli.output import print_lines, print_table
from service.cli.times import shown_instant
from service.clock import now


def print_roles(directory: dict[str, Any]) -> None:
    """Print the directory of a job's roles."""
    rows = directory["items"]
    print_lines(["", f"roles: {len(rows):,} instances"])
    columns = ("role", "instance", "phase", "for", "waits for", "weights", "epoch", "heard", "state")
    print_table(columns, [_cells(row, now()) for row in rows])


def _cells(row: dict[str, Any], at: float) -> tuple[str, ...]:
    does = row["activity"]
    waits = does["waiting_for"] and f"{does['waiting_for']}, {_age(does['waiting_since'], at)}"
    weights = "" if row["weights"] is None else f"{row['weights']:,}"
    heard = f"{_age(row['renewed_at'], at)} ago" if row["state"] == "serving" else shown_instant(row["renewed_at"])
    return (
        row["role"], row["instance"], row["phase"], _age(does["phase_since"], at) if row["phase"] else "", waits, weights,
        f"{row['epoch']:,}", heard, row["state"],
    )  # fmt: skip


def _age(since: float | None, at: float) -> str:
    return "" if since is None else f"{max(0.0, at - since):,.0f} s"
