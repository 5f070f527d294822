"""Collectors for the tests of workers; only a worker's process imports this file, which registers them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from collectors.live import Cursor, NothingToCollect, Readings, Request, Run, collector
from collectors.live.sources.host import Host
from collectors.records import LogEvent

FAKE = {"gives": "a test", "every_seconds": 1.0, "limit_seconds": 1.0}


@collector("obedient", **FAKE)  # type: ignore[arg-type]
def obedient(host: Host) -> Run:
    """Does what the file that its option names says."""

    def run(asked: Request | None) -> Iterator[LogEvent | Readings | Cursor]:
        print("a library that prints")
        reported = Path(host.option("obedient", "script", "")).read_text().split()
        for word in reported:
            if word == "record":
                yield LogEvent(event="x", pid=os.getpid(), text=asked.verb if asked else "")
            elif word == "readings":
                yield Readings("gpu", ["a"], ["x"], [[None]])
            elif word == "cursor":
                yield Cursor((host.cursor("obedient") or 0) + 1)
            elif word == "nothing":
                raise NothingToCollect("no such device")
            elif word == "raise":
                raise RuntimeError("the driver says no")
            elif word == "die":
                os.kill(os.getpid(), signal.SIGSEGV)
            elif word == "slow":
                time.sleep(2.0)
            elif word == "hang":
                signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
                time.sleep(3600)

    return run
