"""What `jobs show` prints below a job: its progress with pauses and witnesses, and its roles."""

from __future__ import annotations

from typing import Any

from service.cli.output import print_lines, print_table
from service.cli.times import shown_instant
from service.clock import now

MOST_SHOWN = 8


def print_progress(progress: dict[str, Any]) -> None:
    """Print the step times and bound, from which pauses they were learned, and the witnesses."""
    from service.reports.job_lines import WITNESSES, sentences

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
    from service.reports.job_lines import ROLE_COLUMNS, role_cells

    rows = directory["items"]
    print_lines(["", f"roles: {len(rows):,} instances"])
    print_table(ROLE_COLUMNS, [role_cells(row, now()) for row in rows])
