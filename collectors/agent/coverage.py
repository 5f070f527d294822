"""The agent's account of itself: a ``Coverage`` record a minute for the service, a status file for the node."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from collectors.agent import agent_version
from collectors.agent.runner import Runner
from collectors.agent.ship import Shipped
from collectors.agent.spool import Spool
from collectors.records import CollectorReport, Coverage


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
    service_trouble: str = ""  # why the newest batch was not taken; empty: it was
    spool_trouble: str = ""  # why the state folder takes nothing; empty: it does
    clock_offset_seconds: float | None = None  # this node's clock less the service's
    spooled_batches: int = 0
    spooled_bytes: int = 0
    dropped_batches: int = 0  # since the state folder was made, as the rest
    dropped_records: int = 0
    refused_batches: int = 0
    rejected_records: int = 0
    collectors: tuple[CollectorReport, ...] = ()


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


def tell_shipping(status: Status, spool: Spool, shipped: Shipped) -> Status:
    """Fill in how the records leave the node."""
    status.shipped_batches, status.shipped_bytes, status.shipped_at = shipped.batches, shipped.bytes, shipped.at
    status.service_trouble, status.spool_trouble = shipped.trouble, spool.trouble
    status.clock_offset_seconds = shipped.clock_offset_seconds
    status.spooled_batches, status.spooled_bytes = spool.held()
    status.dropped_batches, status.dropped_records = spool.state.dropped.batches, spool.state.dropped.records
    status.refused_batches, status.rejected_records = spool.state.refused_batches, spool.state.rejected_records
    return status
