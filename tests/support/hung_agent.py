"""A real agent whose one collector hangs: ``python -m tests.support.hung_agent STATE URL apart|pool|held``."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from collectors.agent import notify
from collectors.agent.agent import serve
from collectors.agent.settings import Settings
from collectors.files import apart
from collectors.live import Collector, Request, Run
from collectors.live.sources.host import Host
from collectors.records import LogEvent
from tests.support.parsing_faults import ENDLESS

FAULTS = Path(__file__).with_name("parsing_faults.py")


def hung(host: Host, way: str, state: Path) -> Run:
    """Return a run that hangs in a parser apart, in a thread of a pool, or in a pattern that keeps the interpreter."""

    def run(_asked: Request | None) -> Iterator[LogEvent]:
        yield LogEvent(event="x", text="before it hangs")
        (state / "hangs").touch()
        if way == "apart":
            host.apart.parse("faults", "hang", seconds=120.0)
        elif way == "pool":
            with ThreadPoolExecutor(1) as threads:
                threads.submit(time.sleep, 3600.0).result()
        else:
            ENDLESS.match("a" * 100)

    return run


def main(state: str, url: str, way: str) -> None:
    """Run the agent."""
    logging.basicConfig(level=logging.WARNING)
    notify.HELD_SECONDS = 1.5
    apart.child_command = lambda *_: [sys.executable, "-P", str(FAULTS)]  # type: ignore[assignment]
    collectors = {"hung": Collector("hung", "a test", 0.05, 1.0, lambda host: hung(host, way, Path(state)))}
    serve(Settings(service=url, node="gpu-0001", state=Path(state), ship_seconds=0.1), collectors)


if __name__ == "__main__":
    main(*sys.argv[1:])
