"""What intake takes, every consumer survives: mutants of valid blocks, and records of every kind at the bounds of their types."""

from __future__ import annotations

from pathlib import Path
from random import Random

import msgspec
import pytest
from sqlalchemy import select

from collectors.files.reading import read_paths
from collectors.records import KernelEvent, Members, Placement, Record, Unread, block, bundle
from collectors.records.record import LARGEST_RANK, MOST_RANKS
from service.api.inspection import inspect
from service.store.database import Database
from service.store.follower import Follower
from service.store.log import Incoming, Log
from service.store.models import AuditEvent
from service.store.window.assembly import Feed
from service.store.window.compaction import Compaction
from service.store.window.tail import Tail
from tests.support.poison import KINDS, NODES, Consumers, Maker, mutant, valid_bodies, with_body
from tests.support.postgres import database, postgres, url
from tests.support.served import an_event, served

__all__ = ["database", "postgres", "url"]  # fixtures

MUTANTS, RECORDS = 400, 200
# A process state whose ``wait_channel`` is no UTF-8: 61 bytes that ended the follower for good.
NO_TEXT = with_body(b"\x92\x90\x91\x83\xa4kind\xa7process\xa3pid\x07\xacwait_channel\xa2\xff\xfe")


def test_mutants_of_blocks_hurt_no_consumer() -> None:
    """Bytes of valid blocks are changed, taken out and put in: what intake takes, all behind it take, and none raises."""
    random, consumers = Random(11), Consumers()
    bodies = list(valid_bodies(random, 12))
    for _ in range(MUTANTS):
        consumers.send(with_body(mutant(random.choice(bodies), random)))

    print(dict(consumers.counts))
    assert dict(consumers.failures) == {}
    assert min(consumers.counts[name] for name in ("accepted", "refused", "malformed", "judgements")) > 0


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__struct_config__.tag))
def test_records_at_their_bounds_hurt_no_consumer(kind: type[Record]) -> None:
    """Records of one kind with the extremes of its types, among such of other kinds, are all read and judged."""
    random, consumers = Random(str(kind)), Consumers(judge_every=20)
    for _ in range(RECORDS // 10):
        maker = Maker(random, random.choice(NODES))
        consumers.send(block.encode([*(maker.record(kind) for _ in range(7)), maker.record()]), maker.node)

    assert dict(consumers.failures) == {}
    assert (consumers.counts["malformed"], consumers.counts["refused"], consumers.counts["records"]) == (
        0, 0, 8 * consumers.counts["sent"],
    )  # fmt: skip


def test_a_text_that_is_no_text_costs_its_record() -> None:
    """The record is counted as malformed, and its neighbours are decoded, at intake as anywhere else."""
    poison = block.body(NO_TEXT)[3:]
    good = msgspec.msgpack.encode(an_event())
    data = with_body(b"\x92\x90\x93" + good + bytes(poison) + good)

    decoded = block.decode_counting(data)

    assert (decoded.records, decoded.skipped, decoded.malformed) == ([an_event(), an_event()], {"process": 1}, 1)
    taken = inspect(data, "gpu-0001", most_records=9, largest_bytes=1 << 20)
    assert (taken.records, taken.skipped, taken.malformed) == (3, {"process": 1}, 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "flight_recorder", "count": -1},
        {"kind": "flight_recorder", "count": 1 << 40},
        {"kind": "flight_recorder", "count": 3, "columns": {"record_id": bytes(16)}},
        {"kind": "flight_recorder", "rank": -1},
        {"kind": "flight_recorder", "rank": LARGEST_RANK + 1},
        {"kind": "placement", "world_size": MOST_RANKS + 1},
        {"kind": "placement", "world_size": -1},
        {"kind": "placement", "attempt": -1},
        {"kind": "placement", "ranks": 1},
        {"kind": "placement", "ranks": 2},
        {"kind": "process", "pid": 1 << 63},
        {"kind": "process", "pid": 1, "at": float("nan")},
        {"kind": "process", "pid": 1, "started_at": float("inf")},
        {"kind": "log_event", "event": "exit", "text": "x" * 65_537},
        {"kind": "log_event", "event": "exit", "node": "n" * 4_097},
        {"kind": "role_state", "tokens_total": -1},
        {"kind": "role_state", "renewed_at": 1e12},
        {"kind": "role_state", "state": "dead"},
        {"kind": "stacks", "threads": [{}] * 4_097},
        {"kind": "unread", "reason": "x" * (1 << 20), "source": "y"},
    ],
    ids=lambda fields: ", ".join(f"{name}={str(value)[:20]}" for name, value in fields.items()),
)
def test_what_no_consumer_could_use_is_decoded_nowhere(fields: dict[str, object]) -> None:
    """Lengths, ranges and identities are checked where a record is decoded, so that no analyzer meets them."""
    lists = msgspec.msgpack.encode([Members.of([1]).data, Members.of([-1]).data, b"\x01\x00\x00\x00\x02"])
    data = with_body(b"\x92" + lists + b"\x91" + msgspec.msgpack.encode(fields))

    assert block.decode_counting(data).skipped == {str(fields["kind"]): 1}


def test_files_name_what_they_leave_out(tmp_path: Path) -> None:
    """A block and a bundle with a record that is none give the others to ``diagnose``, and name what was left out."""
    (tmp_path / "batch.fhb").write_bytes(NO_TEXT)
    entries = [bundle.Batch(7, 1e9, NO_TEXT), bundle.Batch(8, 1e9, block.encode([an_event()]))]
    (tmp_path / "incident.fhz").write_bytes(b"".join(bundle.write(bundle.Manifest(job=""), entries)))

    found = list(read_paths([tmp_path]))

    left_out = [one for one in found if isinstance(one, Unread) and "'process' were left out" in one.reason]
    assert [one.source.rpartition("/")[2] for one in left_out] == ["batch.fhb", "incident.fhz#7"]
    assert sum(isinstance(one, KernelEvent) for one in found) == 1


@pytest.fixture
def follower(database: Database) -> tuple[Log, Follower]:
    """Return a log and the follower with the window of samples, as a service has them."""
    log = Log(database)
    return log, Follower(database, log, [Feed(Tail(600.0), Compaction(database))], clock=lambda: 1e9)


@pytest.mark.system
def test_a_follower_reads_on(follower: tuple[Log, Follower], database: Database) -> None:
    """Whatever is in the log, of this intake or another writer, the follower passes every batch and counts what it leaves out."""
    log, reader = follower
    random = Random(7)
    bodies = list(valid_bodies(random, 8))
    for number in range(150):
        data = with_body(mutant(random.choice(bodies), random)) if number % 3 else random.randbytes(40)
        log.append(
            [Incoming(random.choice(NODES), f"b{number}", random.choice((None, 1e9, -1e300)), 1e9 + number, 1, data)]
        )
    last = log.append([Incoming(NODES[0], "last", None, 1e9 + 999, 1, block.encode([an_event(NODES[0])]))])[0]
    while reader.turn():
        pass

    counts = reader.counts
    assert (reader.sequence, counts.batches, counts.consumer_failures, counts.underivable_batches) == (
        last.sequence,
        151,
        0,
        0,
    )
    assert counts.undecodable_batches >= 50
    with database.session() as session:
        reported = set(session.scalars(select(AuditEvent.kind)))
    assert reported == {"batch_undecodable"}


@pytest.mark.system
def test_a_service_stays_ready(tmp_path: Path) -> None:
    """After the bytes that ended the follower the service is ready, derives what follows, and tells of them."""
    with served(tmp_path, engine=False) as client:
        taken = client.ship_bytes("gpu-0001", NO_TEXT, "poison")
        client.ship("gpu-0001", [Placement(job="llama", attempt=1, ranks=Members.of([0]), nodes=("gpu-0001",))], "b2")
        client.eventually("/v1/jobs/llama", lambda found: found["name"] == "llama")

        assert (taken.status_code, taken.json()["skipped"]) == (202, {"process": 1})
        assert client.get("/readyz").status_code == 200
        metrics = client.get("/metrics").text
    assert "faulthound_ingest_malformed_records_total 1.0" in metrics
    assert "faulthound_malformed_records_total 1.0" in metrics
