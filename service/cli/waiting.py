"""The remediations that wait: what a hold, a freeze or an open breaker keeps from acting, and what is let go."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from service.client import Connection
from service.speech import Speech

WAITING = ("claimed", "approved", "proposed")  # what would act first comes first
SHOWN = 8

Row = Mapping[str, Any]


def waiting(connection: Connection) -> list[Row]:
    """Return the remediations that have not begun, whoever they are about."""
    return [row for status in WAITING for row in connection.all("/v1/remediations", status=status)]


def concerning(rows: Iterable[Row], nodes: Collection[str], job: str | None) -> list[Row]:
    """Return those that act on the job, or take one of the nodes out."""
    from analyzers.remediation.types import same_node

    return [
        row for row in rows
        if row["job"] == job or any(same_node(node, other) for node in nodes for other in row.get("nodes") or ())
    ]  # fmt: skip


def keeps(rows: Collection[Row], lead: str) -> None:
    """Say which these are, each with what it would do. ``lead``: what becomes of each, ``kept from acting`` for example."""
    from service.reports.remediations import short

    for row in list(rows)[:SHOWN]:
        Speech().note(f"{lead}: {row['id']}, {row['status']}: {short(row)} of {row['job']}")
    if len(rows) > SHOWN:
        Speech().note(f"and {len(rows) - SHOWN:,} more: `faulthound remediations list`")
