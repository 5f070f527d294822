"""The progress of a job for people: rhythm and bound, from which pauses they were learned, and the witnesses."""

from __future__ import annotations

from typing import Any

from service.cli.output import print_lines, print_table
from service.cli.times import shown_instant

MOST_SHOWN = 8


def print_progress(progress: dict[str, Any]) -> None:
    """Print it."""
    p99, allowed, lines = progress["p99_seconds"], progress["allowed_seconds"], list[str]()
    if p99 is not None:
        lines.append(f"rhythm: p99 of a report's interval {p99:.1f} s, of {progress['intervals']} intervals")
    if progress["ended_at"] is not None:
        lines.append(f"its processes have ended: {shown_instant(progress['ended_at'])}")
    elif allowed is not None:
        lines.append(f"bound: silent for {max(0.0, progress['silent_seconds']):.0f} s; {allowed:.0f} s are allowed now")
    lines += [f"pauses for {one['seconds']:.0f} s every {one['period']:,} steps" for one in progress["habits"]]
    print_lines(["", *lines, ""] if lines else [""])
    pauses = progress["pauses"][-MOST_SHOWN:]
    if pauses:
        cells = [
            (shown_instant(one["at"]), f"{one['step']:,}", f"{one['seconds']:.0f} s", "yes" if one["learned"] else "no")
            for one in pauses
        ]
        print_table(("pause until", "after step", "seconds", "learned"), cells)
        print_lines([""])
    print_table(
        ("witness", "says", "at"),
        [(one["witness"], one["state"], shown_instant(one["at"])) for one in progress["witnesses"]],
    )
