"""Sixty-four simulated agents below the very engine: what we do not see is not dead.

    cut            the network of 30 % of the agents is cut for some minutes
    restart        the service is away: nothing is received, and the engine comes back to everything at once
    deaf           nothing is received from anybody for some minutes, while the engine goes on
    files          the file system that all jobs share does not answer
    clocks         every clock is up to 10 s off
    fault_cut      as cut, and at the same time a process of a node that is not cut is stopped
    fault_clocks   as clocks, and a process is stopped

In the first five no machine may be proposed; in the last two the stopped process's node must be, and no other.

    python -m tests.acceptance.blindness [--smallest] [--workers 2] [--only cut …] [--seeds 50]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any

from service.evaluation.proportions import interval
from simulation.live.course import Interruption
from simulation.live.fleet import Cut, Fleet
from simulation.live.job import Attempt, LiveJob
from simulation.live.scenes import BEGAN_AT, sketch
from tests.acceptance.fleet_rows import Row, Wanted, by_kind, rows, spread, write
from tests.support.simulated_fleet import Drive

NAME = "blindness"
KINDS = ("cut", "restart", "deaf", "files", "clocks", "fault_cut", "fault_clocks")
SEEDS, SMALLEST_SEEDS = 50, 1
JOBS, NODES_A_JOB, RANKS_A_NODE = 8, 8, 4
CUT_SHARE = 0.3
SKEW_SECONDS = 10.0
MINUTE = 60.0
CALM_SECONDS = 15 * MINUTE  # before anything happens: every job steps
AFTER_SECONDS = 5 * MINUTE


@dataclass(frozen=True, slots=True)
class Story:
    """What happens to the fleet in one seed."""

    jobs: tuple[LiveJob, ...]
    cuts: tuple[Cut, ...]
    away: tuple[tuple[float, float], ...]
    ahead_seconds: dict[str, float]
    at: float
    until: float
    guilty: str | None = None  # the node whose process is stopped


def tell(kind: str, seed: int, count: int = JOBS) -> Story:
    """Draw so many jobs of eight nodes, and what happens to them."""
    random = Random(f"blindness {kind} {seed}")
    at, lasting = BEGAN_AT + CALM_SECONDS, random.uniform(1.5, 8) * MINUTE
    struck = random.randrange(count) if kind.startswith("fault") else -1
    jobs, guilty = [], None
    for number in range(count):
        drawn = sketch(seed, kind, name=f"{kind}-{seed}-{number}", nodes=NODES_A_JOB, ranks_a_node=RANKS_A_NODE)
        interruptions = []
        if kind == "files":
            some = (
                frozenset(random.sample(range(drawn.world), drawn.world * 3 // 4))
                if random.random() < 0.3
                else frozenset()
            )
            interruptions = [Interruption(at + random.uniform(0, 5), "files", lasting, some)]
        if number == struck:
            rank = random.randrange(drawn.world)
            guilty = drawn.node_of(rank)
            interruptions = [Interruption(at + MINUTE / 2, "sigstop", inf, frozenset({rank}))]
        attempt = Attempt(1, drawn.course(*interruptions))
        jobs.append(LiveJob(name=drawn.name, habits=drawn.habits, nodes=drawn.nodes, ranks_a_node=RANKS_A_NODE,
                            attempts=[attempt], stages=drawn.stages))  # fmt: skip
    nodes = [node for job in jobs for node in job.nodes]
    end, cuts, away = at + lasting, (), ()
    if kind in ("cut", "fault_cut"):
        spared = [node for node in nodes if node != guilty]
        cuts = (Cut(frozenset(random.sample(spared, round(CUT_SHARE * len(nodes)))), at, end),)
    if kind in ("restart", "deaf"):
        cuts = (Cut(frozenset(nodes), at, end),)
        away = ((at, end),) if kind == "restart" else ()
    skewed = kind in ("clocks", "fault_clocks")
    ahead = {node: random.uniform(-SKEW_SECONDS, SKEW_SECONDS) for node in nodes} if skewed else {}
    slowest = max(job.habits.step_seconds for job in jobs)
    return Story(tuple(jobs), cuts, away, ahead, at, end + AFTER_SECONDS + 3 * slowest, guilty)


def run_one(kind: str, seed: int, count: int = JOBS) -> Row:
    """Let the engine watch one story, and say what it came to."""
    story = tell(kind, seed, count)
    fleet = Fleet(story.jobs, seed, BEGAN_AT, story.cuts, story.ahead_seconds)
    driver = Drive(fleet, away=story.away)
    seen = driver.run(story.until)
    assert driver.naive is not None
    replacing = seen.replacing
    right = [one for one in replacing if one.replaces == (story.guilty,)]
    node_of = {(job.name, rank): job.node_of(rank) for job in story.jobs for rank in range(job.world)}
    naive = [node_of[job, rank] for at, job, rank in driver.naive.evicted if at >= story.at]
    after = [one for one in seen.opened if one.opened_at >= story.at]
    return {
        "openings": Counter(f"{one.kind}: {one.symptoms[0].detector}" for one in after),
        "infrastructure": sum(one.job is None for one in after),
        "published": [
            f"{one.verdict.cause}, {one.verdict.action.kind}" for one in seen.published if one.at >= story.at
        ],
        "innocent": sorted({node for one in replacing for node in one.replaces} - {story.guilty}),
        "named_seconds": round(right[0].at - story.at - MINUTE / 2, 1) if right else None,
        "alarms": Counter(one.kind for one in seen.alarms if one.raised),
        "naive_innocent": sum(node != story.guilty for node in naive),
        "judgements": seen.judgements,
    }


def report(found: Sequence[Row]) -> dict[str, Any]:
    """Sum up by what happened."""
    return {
        "agents": JOBS * NODES_A_JOB,
        "jobs": JOBS,
        "kinds": {kind: _sum(kind, of) for kind, of in by_kind(found).items()},
        "innocent_machines_proposed": sum(len(row["innocent"]) for row in found),
        "naive_innocent_machines_evicted": sum(row["naive_innocent"] for row in found),
        "proposed": [row for row in found if row["innocent"]][:20],
        "missed": [row for row in found if row["kind"].startswith("fault") and row["named_seconds"] is None][:20],
    }


def _sum(kind: str, found: Sequence[Row]) -> dict[str, Any]:
    proposing = sum(bool(row["innocent"]) for row in found)
    named = [row["named_seconds"] for row in found if row["named_seconds"] is not None]
    openings: Counter[str] = sum((Counter(row["openings"]) for row in found), Counter())
    summed: dict[str, Any] = {
        "seeds": len(found),
        "that_proposed_an_innocent": proposing,
        "bound_95": interval(proposing, len(found))[1],
        "with_an_infrastructure_incident": sum(row["infrastructure"] > 0 for row in found),
        "openings": dict(openings),
        "alarms": dict(sum((Counter(row["alarms"]) for row in found), Counter())),
        "naive_innocent": sum(row["naive_innocent"] for row in found),
    }
    return summed | ({"named": len(named), "named_seconds": spread(named)} if kind.startswith("fault") else {})


def holds(document: dict[str, Any]) -> bool:
    """Tell whether the claims hold: nobody innocent proposed, a real fault still found, and the control worse."""
    faults = [one for kind, one in document["kinds"].items() if kind.startswith("fault")]
    return bool(
        document["innocent_machines_proposed"] == 0
        and sum(one["named"] for one in faults) >= 0.9 * sum(one["seeds"] for one in faults)
        and document["naive_innocent_machines_evicted"] > 0
    )


def main() -> int:
    """Run what is missing, write the document; 0 only if the claims hold."""
    parser = argparse.ArgumentParser(description="Blind the engine, in part or in whole.")
    parser.add_argument("--smallest", action="store_true", help="a seed of each kind, written to out/")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    parser.add_argument("--only", nargs="*", choices=KINDS, help="only these kinds, written to out/")
    parser.add_argument("--seeds", type=int, help="no more seeds than this a kind, written to out/")
    options = parser.parse_args()
    most = SMALLEST_SEEDS if options.smallest else min(SEEDS, options.seeds or SEEDS)
    wanted: list[Wanted] = [(kind, seed) for kind in options.only or KINDS for seed in range(most)]
    document = report(rows(NAME, wanted, run_one, options.workers))
    full = not (options.smallest or options.only or options.seeds)
    target = write(NAME, document, sys.argv[1:], full=full)
    print(json.dumps({name: document[name] for name in document if name not in ("proposed", "missed")}, indent=1))
    print(f"whole: {target}")
    return 0 if holds(document) else 1


if __name__ == "__main__":
    sys.exit(main())
