"""What `jobs show` prints below a job: its progress with pauses and witnesses, and its roles."""

from __future__ import annotations

from typing import Any

from service.cli.output import print_lines, print_table
from service.cli.times import shown_instant
from service.clock import now

MOST_SHOWN = 8


def print_progress(progress: dict[str, Any]) -> None:
    """Print the step times and bound, from which pauses they were learned, and the witnesses."""
    from service.reports.rhythm import WITNESSES, sentences

    print_lines(["", *sentences(progress), ""])
    pauses = progress["pauses"][-MOST_SHOWN:]
    if pauses:
        cells = [
            (shown_instant(one["at"]), f"{one['step']:,}", f"{one['seconds']:.0f} s", "yes" if one["learned"] else "no")
            for one in pauses
        ]
        print_table(("pause until", "after step", "seconds", "learned"), cells)
        print_lines([""])
    before = f"said at {shown_instant(progress['as_of'])}, before the newest step"
    print_table(
        ("witness", before if progress["is_outdated"] else "says", "at"),
        [
            (WITNESSES.get(one["witness"], one["witness"]), one["state"], shown_instant(one["at"]))
            for one in progress["witnesses"]
        ],
    )


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
