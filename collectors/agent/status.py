"""The agent's account of itself: a ``Coverage`` record a minute for the service, and a status file on the node."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from collectors.agent import agent_version
from collectors.agent.runner import Runner
from collectors.agent.settings import Misconfigured, Settings
from collectors.agent.ship import Shipped
from collectors.agent.spool import Spool
from collectors.records import CollectorReport, Coverage

FILE = "status.json"
FRESH_SECONDS = 35.0  # the status file is written every 10 s


class Status(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What ``faulthound-agent status`` shows, as the running agent wrote it."""

    pid: int
    node: str
    version: str
    service: str | None
    started_at: float  # UTC seconds, here and below
    written_at: float
    stopped: bool = False
    shipped_batches: int = 0  # since the start
    shipped_bytes: int = 0
    shipped_at: float | None = None
    service_trouble: str = ""  # why the service did not accept the newest batch; empty: it did
    spool_trouble: str = ""  # why the state folder takes nothing; empty: it does
    clock_offset_seconds: float | None = None  # this node's clock less the service's
    spooled_batches: int = 0
    spooled_bytes: int = 0
    dropped_batches: int = 0  # since the state folder was made, as the rest
    dropped_records: int = 0
    refused_batches: int = 0
    rejected_records: int = 0
    collectors: tuple[CollectorReport, ...] = ()

    def add_shipping(self, spool: Spool, shipped: Shipped) -> None:
        """Fill in how the records leave the node."""
        self.shipped_batches, self.shipped_bytes, self.shipped_at = shipped.batches, shipped.bytes, shipped.at
        self.service_trouble, self.spool_trouble = shipped.trouble, spool.trouble
        self.clock_offset_seconds = shipped.clock_offset_seconds
        self.spooled_batches, self.spooled_bytes = spool.held()
        self.dropped_batches, self.dropped_records = spool.state.dropped.batches, spool.state.dropped.records
        self.refused_batches, self.rejected_records = spool.state.refused_batches, spool.state.rejected_records

    def is_alive(self, now: float) -> bool:
        """Return whether the agent that wrote the status still runs."""
        return not self.stopped and now - self.written_at < FRESH_SECONDS


def read_status(settings: Settings) -> Status | None:
    """Return what the running agent last wrote; None where there is no such file.

    Raise ``Misconfigured`` where this user may not read the folder: the agent may be well.
    """
    try:
        return msgspec.json.decode((settings.state / FILE).read_bytes(), type=Status)
    except PermissionError:
        raise Misconfigured(
            f"the state folder {settings.state} is another user's: ask as root or as the agent's user, or give --state"
        ) from None
    except (OSError, msgspec.DecodeError):
        return None


def coverage_of(runners: Iterable[Runner], spool: Spool, started_at: float) -> Coverage:
    """Return the account since the last one."""
    batches, size_bytes = spool.held()
    dropped = spool.state.dropped
    return Coverage(
        source="agent",
        agent_version=agent_version(),
        started_at=started_at,
        collectors=tuple(runner.report() for runner in runners),
        spooled_batches=batches,
        spooled_bytes=size_bytes,
        dropped_batches=dropped.batches,
        dropped_records=dropped.records,
        dropped_bytes=dropped.bytes,
        dropped_from=dropped.from_at,
        dropped_until=dropped.until_at,
        refused_batches=spool.state.refused_batches,
    )
