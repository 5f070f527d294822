"""The naive control: the same collectors at the same rates, every value a JSON row, every tick a POST.

python -m tests.bench.naive_agent URL
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec

from collectors.agent.agent import run_of
from collectors.agent.once import as_json
from collectors.live import Collector, Cursor, NothingToCollect, Readings, registry
from collectors.live.sources.host import Host
from collectors.records import Record

NODE = "gpu-0001"


def rows(yielded: object, host: Host) -> Iterator[dict[str, Any]]:
    """Yield what one yield becomes: a row a value, or the record as it is."""
    now = host.clock.now()
    if isinstance(yielded, Readings):
        for device, values in zip(yielded.devices, yielded.values, strict=True):
            for metric, value in zip(yielded.metrics, values, strict=True):
                if value is not None:
                    yield {
                        "node": NODE,
                        "at": now,
                        "scope": yielded.scope,
                        "device": device,
                        "metric": metric,
                        "value": value,
                    }
    elif isinstance(yielded, Record):
        yield json.loads(as_json(msgspec.structs.replace(yielded, node=NODE, at=yielded.at or now)))


def run(collector: Collector, host: Host, client: httpx.Client) -> None:
    """Run one collector by its interval for ever."""
    collect = run_of(collector)(host)
    due_at = time.monotonic()
    while True:
        sent: list[dict[str, Any]] = []
        try:
            for yielded in collect(None):
                if isinstance(yielded, Cursor):
                    host.cursors[collector.name] = yielded.value
                sent += rows(yielded, host)
        except NothingToCollect:
            pass
        except Exception as error:
            print(f"{collector.name}: {error}", file=sys.stderr)
        if sent:
            headers = {
                "Content-Type": "application/json",
                "Faulthound-Node": NODE,
                "Faulthound-Batch": f"{time.time_ns()}",
            }
            client.post("/v1/records", content=json.dumps(sent), headers=headers)
        due_at = max(due_at + collector.every_seconds, time.monotonic())
        time.sleep(max(0.0, due_at - time.monotonic()))


def main(url: str) -> None:
    """Run all collectors side by side."""
    host = Host(NODE)
    with httpx.Client(base_url=url) as client:
        for collector in registry().values():
            threading.Thread(target=run, args=(collector, host, client), daemon=True).start()
        threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1])
