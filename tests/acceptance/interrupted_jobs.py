"""`kill`, Ctrl-C and a stopped rank while an agent is restarted, and while the service is down for ten minutes.

Twelve real jobs at once for each of the two: four things that happen, with steps in a file, in a pipe and nowhere. What was
played is kept in out/soak: a second call judges it again.

    python -m tests.acceptance.interrupted_jobs [--smallest] [--only agent|service] [--seed 1] [--again]
"""

from __future__ import annotations

import argparse
import sys

from tests.bench.measure import REPOSITORY
from tests.support.soak import schedule
from tests.support.soak.soak_matrix import measure


def main() -> int:
    """Play or take what is kept, and judge; 0 only if nothing was wrong and nothing is left open."""
    parser = argparse.ArgumentParser(description="Interrupt agents and service in the middle of faults and ends.")
    parser.add_argument("--smallest", action="store_true", help="four jobs and agents alone, written to out/")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="play it anew")
    parser.add_argument("--only", choices=["agent", "service"], help="one of the two")
    options = parser.parse_args()
    if options.smallest:
        small = schedule.interrupted_briefly(options.seed)
        return 0 if measure(small, REPOSITORY / "out" / "interrupted_agents.json", again=True) else 1
    held = [
        measure(schedule.interrupted(options.seed, what), REPOSITORY / "docs" / "measured" / name, again=options.again)
        for what, name in (("agent", "interrupted_agents.json"), ("service", "interrupted_service.json"))
        if options.only in {None, what}
    ]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
