"""An agent that comes back after an absence of its service: its spool arrives whole, slowed by its rates at most."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from collectors.agent.client import Client as AgentClient
from collectors.agent.segment import Entry
from collectors.agent.settings import Settings
from collectors.agent.ship import Shipper
from collectors.agent.spool import Spool
from collectors.live.sources.clock import NodeClock
from collectors.records import block
from service.store.models import Batch
from tests.bench.fleet_load import SHIP_SECONDS, Node
from tests.support.served import Client, served

pytestmark = pytest.mark.system

CLOCK = NodeClock()
SHIPMENTS_A_BATCH = 6  # while the service is away a segment grows for a minute
TEN_MINUTES, THREE_MINUTES = 60, 18  # shipments
HALF_A_DAY_SECONDS = 12 * 3_600.0


def spooled(folder: Path, shipments: int) -> tuple[Spool, int]:
    """Return the spool of a node of eight GPUs at the agents' usual rates, and how many records it holds."""
    folder.mkdir()
    node, count = Node(1), 0
    spool = Spool(folder, node.name, CLOCK, bytes_max=256 << 20, seal_seconds=3_600.0)
    for number in range(1, shipments + 1):
        records = node.records(time.time() - SHIP_SECONDS * (shipments - number))
        spool.add(Entry(records=[block.encode([record]) for record in records]))
        count += len(records)
        if number % SHIPMENTS_A_BATCH == 0:
            spool.seal(now=True)
    return spool, count


@contextmanager
def shipping(spool: Spool, url: str) -> Iterator[None]:
    """Ship a spool until it is empty."""
    agent = AgentClient(Settings(service=url, node=spool.node), CLOCK)
    shipper = Shipper(spool, agent, CLOCK, spool.node)
    shipper.start()
    deadline = time.monotonic() + 60
    while spool.held()[0] and time.monotonic() < deadline:
        time.sleep(0.02)
    yield
    shipper.finish(5.0)
    agent.close()


def arrived(client: Client) -> tuple[int, list[str]]:
    """Return how many records are in the log, and the batches in their order."""
    with client.service.database.session() as session:
        rows = session.query(Batch).order_by(Batch.sequence).all()
        return sum(row.records for row in rows), [row.batch_id for row in rows]


def test_ten_minutes_without_a_service_cost_no_record_and_no_wait(tmp_path: Path) -> None:
    """By the usual rates nothing of it is slowed, and half a day of the same has room at once."""
    spool, records = spooled(tmp_path / "spool", TEN_MINUTES)
    with served(tmp_path, engine=False) as client:
        with shipping(spool, client.url):
            found, batches = arrived(client)
        slowed, intake = dict(client.service.intake.slowed), client.service.intake
        left, _ = intake._records_of_nodes._buckets["", spool.node]
        burst = intake.settings.node_records_burst

    assert (found, len(batches), slowed) == (records, TEN_MINUTES // SHIPMENTS_A_BATCH, {})
    assert batches == sorted(batches)
    assert (spool.state.dropped.batches, spool.state.refused_batches) == (0, 0)
    assert (burst - left) * HALF_A_DAY_SECONDS / (TEN_MINUTES * SHIP_SECONDS) < burst


def test_a_rate_that_is_too_low_delays_and_loses_nothing(tmp_path: Path) -> None:
    """Where the backlog is more than the rate has room for, the agent waits as it is asked to: all arrives, once and in order."""
    spool, records = spooled(tmp_path / "spool", THREE_MINUTES)
    with served(tmp_path, engine=False, node_records_per_second=2_000.0, node_records_burst=50) as client:
        with shipping(spool, client.url):
            found, batches = arrived(client)
        slowed = dict(client.service.intake.slowed)

    assert slowed["node_records_per_second"] >= 2
    assert (found, len(batches), batches) == (records, THREE_MINUTES // SHIPMENTS_A_BATCH, sorted(batches))
    assert (spool.state.dropped.batches, spool.state.refused_batches) == (0, 0)
