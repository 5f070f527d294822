"""A soak's result as a table for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Row = dict[str, Any]


def table(result: Row) -> str:
    """Return the sums, what happened by kind, and every incident, proposal and fault."""
    parts = (_sums, _kinds, _faults, _incidents, _proposals)
    return "\n\n".join("\n".join(part(result)) for part in parts) + "\n"


def _sums(result: Row) -> Iterator[str]:
    for name, value in result.items():
        if not isinstance(value, (dict, list)):
            yield f"{name.replace('_', ' '):42} {value}"
    control = result["naive"]
    yield f"control: {control['rule']}"
    yield f"  {control['alarms']} alarms, {control['wrong_alarms']} wrong; {control['faults_missed']} faults missed"


def _kinds(result: Row) -> Iterator[str]:
    columns = {
        "happened": "times", "told": "told", "named": "named", "median_seconds": "median s", "worst_seconds": "worst s",
        "incidents": "incidents", "wrong_incidents": "wrong", "proposals": "proposals", "wrong_proposals": "wrong",
    }  # fmt: skip
    yield f"{'what happened':18}" + "".join(f"{title:>11}" for title in columns.values())
    for kind, row in result["by_kind"].items():
        cells = ("" if row[name] is None else row[name] for name in columns)
        yield f"{kind:18}" + "".join(f"{cell:>11}" for cell in cells)


def _faults(result: Row) -> Iterator[str]:
    yield "every fault: job, kind, guilty ranks, how long it lasted, told after"
    for row in result["every_fault"]:
        reported = "never" if row["told_seconds"] is None else f"{row['told_seconds']} s{', named' * row['named']}"
        more = "" if row["due"] else " (too short to be due)"
        if (after := row.get("told_after_return_seconds")) is not None:
            more += f" ({after} s after the return)"
        more += f" (by {row['joined']}, which was still open)" if row["joined"] else ""
        yield f"  {row['job']:10} {row['kind']:16} {row['ranks']!s:12} {row['lasted_seconds']:7.1f} s  {reported}{more}"


def _incidents(result: Row) -> Iterator[str]:
    yield "every incident: job, kind, what it is about, what it said"
    for row in result["every_incident"]:
        about = f"{row['is_about']} +{row['begun_seconds_before']} s" if row["is_about"] else "nothing"
        yield f"  {row['grade']:8} {row['id']} {row['job'] or 'the fleet':10} {row['kind']} ({row['detector']}), about {about}"
        closed = row["closed_because"] or "still open"
        yield f"           open {row['open_seconds']:.0f} s ({closed}); {row['versions']} versions, {row['flips']} flips"
        yield from (f"           said {said}" for said in row["said"])
        yield from (f"           WRONG {reason}" for reason in row["wrong"])


def _proposals(result: Row) -> Iterator[str]:
    yield "every proposal: job, kind, nodes, what it is about, status"
    for row in result["every_proposal"]:
        grade, nodes = "wrong" if row["wrong"] else "right", ",".join(row["nodes"])
        yield f"  {grade:8} {row['id']} {row['job']:10} {row['kind']:12} {nodes:18} about {row['is_about']}"
        yield f"           {row['status']}{', LEFT OPEN' * row['left_open']}: {row['because']}"
        yield from (f"           WRONG {reason}" for reason in row["wrong"])
