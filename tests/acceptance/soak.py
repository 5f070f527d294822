"""A day in an hour: a service and agents at their usual settings, and plain torchrun jobs to which everything happens.

Jobs start, finish, are cancelled, crash, save, evaluate, wait in a debugger, hang and recover, by a seeded table of stories
(`tests/support/soak/schedule.py`), while agents are restarted. Then every incident and proposal is listed with whether it was
right, and every fault with the seconds until it was reported. What was played is kept in out/soak: a second call judges it again;
--again plays it anew.

    python -m tests.acceptance.soak [--smallest] [--rounds 3] [--seed 1] [--again]
"""

from __future__ import annotations

import argparse
import sys

from tests.bench.measure import REPOSITORY
from tests.support.soak import schedule
from tests.support.soak.soak_matrix import measure

ROUNDS = 3


def main() -> int:
    """Play or take what is kept, and judge; 0 only if nothing was wrong, nothing is left open and everything was reported."""
    parser = argparse.ArgumentParser(description="Let the product watch real jobs for an hour.")
    parser.add_argument("--smallest", action="store_true", help="three jobs, written to out/")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="of twenty minutes; fewer than %(default)s go to out/"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="play it anew")
    options = parser.parse_args()
    table = schedule.short(options.seed) if options.smallest else schedule.day(options.seed, options.rounds)
    full = not options.smallest and options.rounds >= ROUNDS
    target = REPOSITORY / ("docs/measured" if full else "out") / "soak.json"
    return 0 if measure(table, target, again=options.again or options.smallest) else 1


if __name__ == "__main__":
    sys.exit(main())
