"""Agents that number what they spool, many in one process: the agent's own spool and shipper, and a collector that counts.

    python -m tests.support.durability.fleet FOLDER URL --agents 64 [--seal-seconds 0.5] [--clock-offset 10] [--spool-bytes N]

Each writes numbers from 1 on; the newest is a cursor in the spool, so that an agent which was killed goes on where the
spool says. On SIGTERM the fleet writes no more, ships what it has, and prints the last number of each agent.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
import time
from pathlib import Path

from collectors.agent.client import Client
from collectors.agent.segment import Entry
from collectors.agent.settings import Settings
from collectors.agent.ship import Shipper
from collectors.agent.spool import Spool
from collectors.records import Coverage, LogEvent, block
from tests.support.durability.counting import EVENT

RECORDS_AT_ONCE = 3
PAUSE_SECONDS = 0.2
DRAIN_SECONDS = 120.0


class Clock:
    """A node's clock that is wrong by some seconds."""

    def __init__(self, offset_seconds: float) -> None:
        self.offset_seconds = offset_seconds

    def now(self) -> float:
        """Return what this node believes."""
        return time.time() + self.offset_seconds

    def monotonic(self) -> float:
        """Return seconds since boot."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)


class Agent:
    """One node: a spool, a shipper, and the number that it wrote last."""

    def __init__(self, node: str, folder: Path, url: str, options: argparse.Namespace) -> None:
        self.node = node
        folder.mkdir(parents=True, exist_ok=True)
        clock = Clock(options.clock_offset)
        self.spool = Spool(folder, node, clock, bytes_max=options.spool_bytes, seal_seconds=options.seal_seconds)
        self.last = int(self.spool.state.cursors.get("count", 0))
        client = Client(Settings(service=url, node=node, state=folder), clock)
        self.shipper = Shipper(self.spool, client, clock, node)
        self.shipper.start()

    def count(self) -> None:
        """Spool some numbers and, with them, how far they go."""
        numbers = range(self.last + 1, self.last + 1 + RECORDS_AT_ONCE)
        records = [LogEvent(event=EVENT, node=self.node, sequence=number, text="x" * 200) for number in numbers]
        self.spool.add(Entry([block.encode([record]) for record in records], cursors={"count": numbers[-1]}))
        self.last = numbers[-1]
        self.spool.seal()

    def drained(self) -> bool:
        """Seal what is open and say whether everything was delivered."""
        self.spool.seal(now=True)
        return self.spool.held()[0] == 0

    def tell_dropped(self) -> None:
        """Spool what the agent says of its own losses."""
        dropped = self.spool.state.dropped
        self.spool.add(Entry([block.encode([Coverage(node=self.node, dropped_records=dropped.records)])]))


def _drain(agents: list[Agent]) -> None:
    deadline = time.monotonic() + DRAIN_SECONDS
    while time.monotonic() < deadline and sum(not agent.drained() for agent in agents):
        time.sleep(0.2)


def main() -> None:
    """Count until SIGTERM, drain, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("url")
    parser.add_argument("--agents", type=int, default=64)
    parser.add_argument("--seal-seconds", type=float, default=0.5)
    parser.add_argument("--clock-offset", type=float, default=0.0)
    parser.add_argument("--spool-bytes", type=int, default=256 << 20)
    options = parser.parse_args()
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    agents = [
        Agent(f"gpu-{number:04d}", options.folder / f"gpu-{number:04d}", options.url, options)
        for number in range(options.agents)
    ]
    print("counting", flush=True)
    while not ended.wait(PAUSE_SECONDS):
        for agent in agents:
            agent.count()
    _drain(agents)
    for agent in agents:
        agent.tell_dropped()  # when everything else is delivered: no bound can drop anything any more
    _drain(agents)
    left = sum(agent.spool.held()[0] for agent in agents)
    refused = sum(agent.spool.state.refused_batches for agent in agents)
    print(
        json.dumps({"last": {agent.node: agent.last for agent in agents}, "left": left, "refused": refused}), flush=True
    )


if __name__ == "__main__":
    main()
