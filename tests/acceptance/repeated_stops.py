"""One rank of a real job stopped again and again, for 30 to 170 s: reported each time, never learned as the job's rhythm.

Three jobs at once, with their steps in a file, in a pipe and nowhere; agents and service at their usual settings. What was
played is kept in out/soak: a second call judges it again.

    python -m tests.acceptance.repeated_stops [--smallest] [--count 20] [--seed 1] [--again]
"""

from __future__ import annotations

import argparse
import sys

from tests.bench.measure import REPOSITORY
from tests.support.soak import schedule
from tests.support.soak.soak_matrix import measure

SMALLEST = 1, 35.0  # how often, and the longest


def main() -> int:
    """Play or take what is kept, and judge; 0 only if every stop was reported and nothing was wrong."""
    parser = argparse.ArgumentParser(description="Stop a rank of real jobs again and again.")
    parser.add_argument("--smallest", action="store_true", help="one stop a job, written to out/")
    parser.add_argument("--count", type=int, default=schedule.STOPS, help="fewer than %(default)s are written to out/")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="play it anew")
    options = parser.parse_args()
    sizes = SMALLEST if options.smallest else (options.count, schedule.STOP_SECONDS[1])
    table = schedule.stops(options.seed, *sizes)
    full = not options.smallest and options.count >= schedule.STOPS
    target = REPOSITORY / ("docs/measured" if full else "out") / "repeated_stops.json"
    return 0 if measure(table, target, again=options.again or options.smallest) else 1


if __name__ == "__main__":
    sys.exit(main())
