"""Steps of simulated healthy jobs, days of them, below the very rule that opens slow incidents: how often it opens one.

What opens no incident evicts nothing, so that openings bound false evictions from above. The jobs are those of
``healthy_fleet``, and each is watched by its steps alone, for as long; what only traffic shows has no steps and is left out.
A control opens where the mean step of the newest two minutes is a tenth longer than that of the half hour before.

    python -m tests.acceptance.healthy_pace [--smallest]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from math import inf

from rich.progress import track

from analyzers.incidents.job_views.pace_changes import SLOWER_SHARE, Slowdown
from analyzers.incidents.job_views.step_pace import StepPace
from simulation.live.scene_list import healthy_day
from tests.bench.measure import REPOSITORY, provenance
from tests.support.simulated_fleet import upper_bound

NAME = "healthy_pace"
SEEDS, HOURS = 96, 96.0
SMALLEST_SEEDS, SMALLEST_HOURS = 6, 2.0
EVERY_SECONDS = 10.0  # between two looks
RECENT, BEFORE = 12, 180  # looks: two minutes, half an hour
DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Watched:
    """One job: how its steps vary, for how many days it was watched, the slowdowns found, and how often the control opened."""

    seed: int
    law: str
    step_seconds: float
    days: float
    found: tuple[float, ...] = ()  # which part longer each slowdown's steps take
    naive: int = 0


class Naive:
    """The control."""

    def __init__(self) -> None:
        self.opened = 0
        self._points: deque[tuple[float, int]] = deque(maxlen=RECENT + BEFORE + 1)
        self._lasts = False

    def look(self, at: float, step: int) -> None:
        """Take up the newest step of a look."""
        self._points.append((at, step))
        if len(self._points) <= RECENT + BEFORE:
            return
        recent, before = (self._mean(*pair) for pair in ((BEFORE, BEFORE + RECENT), (0, BEFORE)))
        slower = recent > (1 + SLOWER_SHARE) * before
        self.opened += slower and not self._lasts
        self._lasts = slower

    def _mean(self, first: int, last: int) -> float:
        (begin, step), (end, after) = self._points[first], self._points[last]
        return (end - begin) / (after - step) if after > step else inf


def watch(seed: int, hours: float) -> Watched | None:
    """Watch one job by its steps; None where it has none."""
    scene = healthy_day(seed, hours)
    habits, course = scene.job.habits, scene.job.attempts[0].course
    if habits.reported_by == "traffic":
        return None
    pace, naive, found = StepPace(), Naive(), list[Slowdown]()
    since = course.begin
    while since < scene.until:
        until = since + EVERY_SECONDS
        seen = [(step, at) for step, at, _ in course.steps(since, until) if step % habits.log_every == 0]
        for step, at in seen:
            pace.add(at, step)
        before = pace.slowdown
        pace.update(())
        if pace.slowdown is not None and before is None:
            found.append(pace.slowdown)
        if seen:
            naive.look(seen[-1][1], seen[-1][0])
        course.forget(until)
        since = until
    days = (scene.until - scene.job.attempts[0].course.begin) / DAY
    shares = tuple(round(one.share, 3) for one in found)
    return Watched(seed, habits.law, habits.step_seconds, round(days, 3), shares, naive.opened)


def report(jobs: Sequence[Watched]) -> dict[str, object]:
    """Sum up."""
    days, opened = sum(one.days for one in jobs), sum(len(one.found) for one in jobs)
    return {
        "jobs": len(jobs),
        "laws": dict(Counter(one.law for one in jobs)),
        "job_days": round(days, 1),
        "openings": opened,
        "bound_95_a_job_day": round(upper_bound(opened, days), 4),
        "control_openings": sum(one.naive for one in jobs),
        "that_opened": [asdict(one) for one in jobs if one.found],
    }


def main() -> int:
    """Watch all jobs, write the document; 0 only if the control opens more, and few days have an opening."""
    parser = argparse.ArgumentParser(description="Watch the steps of simulated healthy jobs.")
    parser.add_argument("--smallest", action="store_true", help="a few jobs for two hours, written to out/")
    options = parser.parse_args()
    seeds, hours = (SMALLEST_SEEDS, SMALLEST_HOURS) if options.smallest else (SEEDS, HOURS)
    with ProcessPoolExecutor(2) as pool:
        every = track(pool.map(watch, range(seeds), [hours] * seeds), NAME.replace("_", " "), total=seeds)
        jobs = [one for one in every if one is not None]
    summary = report(jobs)
    document = provenance(" ".join([f"python -m tests.acceptance.{NAME}", *sys.argv[1:]])) | summary
    target = REPOSITORY / ("out" if options.smallest else "docs/measured") / f"{NAME}.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(summary, indent=1))
    opened = sum(len(one.found) for one in jobs)
    return 0 if opened <= sum(one.days for one in jobs) / 10 and opened <= sum(one.naive for one in jobs) else 1


if __name__ == "__main__":
    sys.exit(main())
