"""What the rows of ``slow_jobs`` come to: right, named, unnamed and wrong, by kind of job and by fault."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

Row = dict[str, Any]
WORTH_SHARE = 0.13  # a slowdown of more must be found
EARLY_SECONDS = 1_200.0  # after a run's first slowdown: later its jobs have been slow before


def totals(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the figures that the docs quote."""
    healthy = [row for row in rows if row["culprit"] < 0]
    slow = [row for row in rows if row["culprit"] >= 0]
    lanes = sorted({row["lane"] for row in slow})
    return {
        "rows_measured": len(rows),
        "right": sum(not row["wrong"] for row in rows),
        "by_run": {
            str(run): _of_run([row for row in rows if row["run"] == run])
            for run in sorted({row["run"] for row in rows})
        },
        "proposed": sum(len(row["proposed"]) for row in rows),
        "healthy_stretches_of_ten_minutes": len(healthy),
        "openings_in_healthy_stretches": sum(row["slow_incidents"] for row in healthy),
        "by_job": {lane: _of([row for row in slow if row["lane"] == lane]) for lane in lanes},
        "by_job_and_fault": {
            f"{lane}, {fault}": _of([row for row in slow if (row["lane"], row["fault"]) == (lane, fault)])
            for lane in lanes
            for fault in sorted({row["fault"] for row in slow if row["lane"] == lane})
        },
    }


def _of(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the figures of some slow stretches. Only those count as found or missed whose steps became longer enough."""
    worth = [row for row in rows if row["longer"] > WORTH_SHARE]
    return {
        "slowed": len(rows),
        "longer_by_13_percent": len(worth),
        "opened": sum(row["slow_incidents"] > 0 for row in worth),
        "guilty_rank_named": sum(row["named"] == [row["culprit"]] for row in worth),
        "nobody_named": sum(not row["named"] and not row["named_otherwise"] for row in worth),
        "others_named": sum(any(rank != row["culprit"] for rank in row["named"]) for row in rows),
        "latent_and_reported": sum(
            any(one["rank"] == row["culprit"] for one in row["latent"]) for row in rows if row["longer"] <= WORTH_SHARE
        ),
        "median_opened_seconds": _median(row.get("opened_seconds") for row in worth),
        "median_verdict_seconds": _median(row.get("verdict_seconds") for row in worth),
        "median_named_seconds": _median(row.get("named_seconds") for row in worth),
    }


def _of_run(rows: Sequence[Row]) -> dict[str, Any]:
    """Return how one run went, the first try of its code, and how busy its machine was."""
    stood_still = [row for row in rows if row["other_incidents"]]
    return {
        "rows": len(rows),
        "right": sum(not row["wrong"] for row in rows),
        "with_other_incidents": len(stood_still),
        "right_of_those": sum(not row["wrong"] for row in stood_still),
        "median_load": _median(row["load"] for row in rows),
        "one_rank_slow": {
            lanes: _named([row for row in rows if ("+probe" in row["lane"]) is probe])
            for lanes, probe in (("with the probe", True), ("without", False))
        },
        "one_rank_slow_in_time": _in_time([row for row in rows if row["culprit"] >= 0]),
    }


def _in_time(rows: Sequence[Row]) -> dict[str, Any]:
    """Return how many of those where one rank alone made the steps longer were opened, in a run's first minutes and later."""
    began_at = min((row["at"] for row in rows), default=0)
    alone = [row for row in rows if row["longer"] > WORTH_SHARE and not row["fault"].endswith("all")]
    early = [row for row in alone if row["at"] < began_at + EARLY_SECONDS]
    late = [row for row in alone if row["at"] >= began_at + EARLY_SECONDS]
    return {
        when: {"longer_by_13_percent": len(some), "opened": sum(row["slow_incidents"] > 0 for row in some)}
        for when, some in (("first_20_minutes", early), ("later", late))
    }


def _named(rows: Sequence[Row]) -> dict[str, Any]:
    """Return who was named where one rank alone made the steps longer, and how often a rank was where all did."""
    worth = [row for row in rows if row["culprit"] >= 0 and row["longer"] > WORTH_SHARE and row["slow_incidents"]]
    alone = [row for row in worth if not row["fault"].endswith("all")]
    return {
        "opened": len(alone),
        "guilty_rank_named": sum(row["named"] == [row["culprit"]] for row in alone),
        "named_and_taken_back": sum(row["named_seconds"] is not None and not row["named"] for row in alone),
        "others_named": sum(any(rank != row["culprit"] for rank in row["named"]) for row in alone),
        "median_named_seconds": _median(row["named_seconds"] for row in alone if row["named"] == [row["culprit"]]),
        "all_slow": len(worth) - len(alone),
        "named_where_all_are": sum(bool(row["named"]) for row in worth if row["fault"].endswith("all")),
    }


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
