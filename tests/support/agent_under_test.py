"""A real agent process with collectors of a test: ``python -m tests.support.agent_under_test STATE URL [LEAVING]``.

``counted`` reads a source that grows: numbers with a cursor. ``sampled`` samples a counter that it keeps in a file.
LEAVING is how many seconds it may ship after SIGTERM, where the agent's own bound would be too short on a busy machine.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

from collectors.agent import agent
from collectors.agent.settings import Settings
from collectors.live import Collector, Cursor, Readings, Request, Run
from collectors.live.sources.host import Host
from collectors.records import LogEvent

A_RUN = 5


def counted(host: Host) -> Run:
    """Yield the next numbers of an endless source, a cursor behind every one but the last two of a run."""

    def run(_asked: Request | None) -> Iterator[LogEvent | Cursor]:
        start = host.cursor("counted") or 0
        for number in range(start, start + A_RUN):
            yield LogEvent(event="x", sequence=number, text="y" * 200)
            if number < start + A_RUN - 2:
                yield Cursor(number + 1)
        yield Cursor(start + A_RUN)

    return run


def sampled(host: Host) -> Run:
    """Yield one reading a run."""

    def run(_asked: Request | None) -> Iterator[Readings]:
        yield Readings("sampled", [""], ["nanoseconds_total"], [[int(host.clock.now() * 1e9)]], "<i8")

    return run


def main(state: str, url: str, leaving: str = "") -> None:
    """Run the agent until it is asked to stop, or killed."""
    agent.LEAVING_SECONDS = float(leaving or agent.LEAVING_SECONDS)
    logging.basicConfig(level=logging.WARNING)
    makes = {"counted": counted, "sampled": sampled}
    collectors = {name: Collector(name, "a test", 0.05, 5.0, make) for name, make in makes.items()}
    agent.serve(Settings(service=url, node="gpu-0001", state=Path(state), ship_seconds=0.1), collectors)


if __name__ == "__main__":
    main(*sys.argv[1:])
