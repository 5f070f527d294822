"""Simulated jobs below the very engine: days of health, pauses that look like hangs, and faults, each by seed.

Healthy jobs and pauses must propose to replace no machine; faults must be named, or health would be bought with blindness.
A naive control, "evict whoever has been silent for the longest after 30 s without a step", watches the same batches.

    python -m tests.acceptance.healthy_fleet [--smallest] [--workers 2] [--only healthy spin …] [--seeds 50]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

from service.evaluation.proportions import interval
from simulation.live.scene_list import FAULTS, PAUSES, Scene, healthy_day, play
from tests.acceptance.fleet_rows import Row, Wanted, by_kind, rows, spread, write
from tests.support.simulated_fleet import Published, Seen, drive, names, upper_bound

NAME = "healthy_fleet"
HEALTHY = "healthy"
SEEDS = {HEALTHY: 80} | dict.fromkeys(PAUSES, 50) | dict.fromkeys(FAULTS, 20)
SMALLEST = {HEALTHY: 2} | dict.fromkeys(PAUSES, 1) | dict.fromkeys(FAULTS, 1)
HOURS, SMALLEST_HOURS = 96.0, 1.0  # of one healthy job: what it does by habit is new on its first day only
DAY = 86_400.0
OPENINGS_A_DAY_MAX = 1.0
ENOUGH_DAYS = 10.0  # in its first hours a job's habits are new: fewer days say nothing of openings a day
LATENCY_SECONDS_MAX = 30.0
LATENCY_STEPS_MAX = 3.0  # steps at p99, or lines of the log where it tells of every tenth step only
P99_FACTOR = 1.8  # of the median step: lognormal steps with sigma 0.25 have it at p99
RIGHT_SHARE_MIN = 0.95


def run_one(kind: str, seed: int, hours: float = HOURS) -> Row:
    """Let the engine watch one scene, and say what it came to."""
    scene = healthy_day(seed, hours) if kind == HEALTHY else play(kind, seed)
    seen, naive = drive(scene, seed)
    job, truth = scene.job, scene.truth
    guilty = [rank in truth.ranks for _, _, rank in naive.evicted]
    return {
        "days": round((scene.until - job.attempts[0].course.begin) / DAY, 4),
        "ranks": job.world,
        "tells": job.habits.reported_by,
        "step_seconds": job.habits.step_seconds,
        "openings": Counter(one.symptoms[0].detector for one in seen.opened),
        "opened_on_day": [int((one.opened_at - job.attempts[0].course.begin) // DAY) for one in seen.opened],
        "closed": len(seen.closed),
        "judgements": seen.judgements,
        "published": [_told(one, scene) for one in seen.published],
        "innocent": sorted({node for one in seen.published for node in one.replaces} - set(truth.nodes)),
        "alarms": len(seen.alarms),
        "naive_innocent": guilty.count(False),
        "naive_guilty": guilty.count(True),
    } | (_caught(seen, scene) if kind in FAULTS else {})


def _told(one: Published, scene: Scene) -> Row:
    verdict = one.verdict
    return {
        "after_seconds": round(one.at - scene.truth.at, 1),
        "symptom": verdict.symptom,
        "cause": verdict.cause,
        "classes": [root.fault_class for root in verdict.roots],
        "culprits": [culprit.id for culprit in verdict.culprits][:4],
        "action": verdict.action.kind,
        "replaces": list(one.replaces),
    }


def _caught(seen: Seen, scene: Scene) -> Row:
    """Say when the fault was named, and whether the machine was proposed that should be."""
    truth, habits = scene.truth, scene.job.habits
    right = [one for one in seen.published if names(one.verdict, scene)]
    proposed = [one for one in seen.replacing if set(one.replaces) == set(truth.nodes)]
    told_every = habits.step_seconds * habits.log_every * P99_FACTOR
    bound = max(LATENCY_SECONDS_MAX, LATENCY_STEPS_MAX * told_every)
    return {
        "right": bool(right) and names(seen.published[-1].verdict, scene),
        "first_right": bool(right) and right[0].version == 1,
        "named_seconds": round(right[0].at - truth.at, 1) if right else None,
        "bound_seconds": round(bound, 1),
        "evicts": truth.evicts and not habits.captured,  # stacks alone do not evict
        "evicted_seconds": round(proposed[0].at - truth.at, 1) if proposed else None,
    }


def run_smallest(kind: str, seed: int) -> Row:
    """Run one scene with an hour for days."""
    return run_one(kind, seed, SMALLEST_HOURS)


def report(found: Sequence[Row]) -> dict[str, Any]:
    """Sum up: health, pauses, faults, and what the control did."""
    kinds = by_kind(found)
    quiet = [row for row in found if row["kind"] not in FAULTS]
    return {
        "healthy": _healthy(kinds.get(HEALTHY, [])),
        "pauses": {kind: _pause(of) for kind, of in kinds.items() if kind in PAUSES},
        "faults": {kind: _fault(of) for kind, of in kinds.items() if kind in FAULTS},
        "innocent_machines_proposed": sum(len(row["innocent"]) for row in found),
        "naive_innocent_machines_evicted": sum(row["naive_innocent"] for row in found),
        "proposed_without_a_fault": [row for row in quiet if row["innocent"]][:20],
        "wrong": [row for row in found if row["kind"] in FAULTS and not row["right"]][:20],
    }


def _healthy(found: Sequence[Row]) -> dict[str, Any]:
    days = sum(row["days"] for row in found)
    openings: Counter[str] = sum((Counter(row["openings"]) for row in found), Counter())
    proposing = sum(bool(row["innocent"]) for row in found)
    return {
        "job_days": round(days, 1),
        "openings": dict(openings),
        "openings_a_day": round(openings.total() / days, 3) if days else None,
        "openings_on_first_days": sum(row["opened_on_day"].count(0) for row in found),
        "first_days": len(found),
        "jobs_with_more_than_one_a_day": sum(sum(row["openings"].values()) > max(1.0, row["days"]) for row in found),
        "incidents_that_proposed": proposing,
        "incidents_that_named_a_machine": sum(map(_named, found)),
        "bound_95_a_job_day": round(upper_bound(proposing, days), 4) if days else None,
        "naive_evictions": sum(row["naive_innocent"] for row in found),
    }


def _pause(found: Sequence[Row]) -> dict[str, Any]:
    proposing = sum(bool(row["innocent"]) for row in found)
    return {
        "seeds": len(found),
        "that_opened": sum(bool(row["openings"]) for row in found),
        "that_proposed": proposing,
        "that_named_a_machine": sum(map(_named, found)),
        "bound_95": interval(proposing, len(found))[1],
        "last_said": dict(Counter(_last(row) for row in found)),
        "naive_evictions": sum(row["naive_innocent"] for row in found),
    }


def _fault(found: Sequence[Row]) -> dict[str, Any]:
    named = [row for row in found if row["named_seconds"] is not None]
    stepping = [row for row in named if row["tells"] != "traffic"]
    due = [row for row in found if row["evicts"]]
    return {
        "seeds": len(found),
        "right": sum(row["right"] for row in found),
        "first_version_right": sum(row["first_right"] for row in found),
        "named_seconds": spread([row["named_seconds"] for row in stepping]),
        "named_seconds_without_steps": spread([row["named_seconds"] for row in named if row["tells"] == "traffic"]),
        "within_bound": sum(row["named_seconds"] <= row["bound_seconds"] for row in stepping),
        "of": len(stepping),
        "evicted": sum(row["evicted_seconds"] is not None for row in due),
        "evicted_of": len(due),
        "evicted_seconds": spread([row["evicted_seconds"] for row in due if row["evicted_seconds"] is not None]),
        "last_said": dict(Counter(_last(row) for row in found)),
        "naive_guilty": sum(row["naive_guilty"] > 0 for row in found),
        "naive_innocent": sum(row["naive_innocent"] for row in found),
    }


def _named(row: Row) -> int:
    """Return how many verdicts call a machine the cause."""
    return sum(one["cause"] == "machine" for one in row["published"])


def _last(row: Row) -> str:
    if not row["published"]:
        return "nothing"
    last = row["published"][-1]
    return f"{last['symptom']}: {last['cause']}, {last['action']}"


def holds(document: dict[str, Any]) -> bool:
    """Tell whether the claims hold: nobody innocent proposed, few openings, faults named, and the control worse."""
    healthy, faults = document["healthy"], document["faults"].values()
    caught, seeds = sum(one["right"] for one in faults), sum(one["seeds"] for one in faults)
    return bool(
        document["innocent_machines_proposed"] == 0
        and healthy["incidents_that_named_a_machine"] == 0
        and (healthy["job_days"] < ENOUGH_DAYS or healthy["openings_a_day"] <= OPENINGS_A_DAY_MAX)
        and caught >= RIGHT_SHARE_MIN * seeds
        and document["naive_innocent_machines_evicted"] > 0
    )


def main() -> int:
    """Run what is missing, write the document; 0 only if the claims hold."""
    parser = argparse.ArgumentParser(description="Let the engine watch simulated jobs.")
    parser.add_argument(
        "--smallest", action="store_true", help="an hour for days, a seed of each kind, written to out/"
    )
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    parser.add_argument("--only", nargs="*", choices=sorted(SEEDS), help="only these kinds, written to out/")
    parser.add_argument("--seeds", type=int, help="no more seeds than this a kind, written to out/")
    options = parser.parse_args()
    sizes = SMALLEST if options.smallest else SEEDS
    kinds = options.only or list(sizes)
    wanted: list[Wanted] = [
        (kind, seed) for kind in kinds for seed in range(min(sizes[kind], options.seeds or sizes[kind]))
    ]
    found = rows(
        f"{NAME}_smallest" if options.smallest else NAME, wanted, run_smallest if options.smallest else run_one,
        options.workers,
    )  # fmt: skip
    document = report(found)
    full = not (options.smallest or options.only or options.seeds)
    target = write(NAME, document, sys.argv[1:], full=full)
    shown = {name: document[name] for name in document if name not in ("proposed_without_a_fault", "wrong")}
    print(json.dumps(shown, indent=1))
    print(f"whole: {target}")
    return 0 if holds(document) else 1


if __name__ == "__main__":
    sys.exit(main())
