"""What the service takes, what it refuses, and that a batch counts once."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.records import Members, Placement, Samples, block
from service.store.buckets import MOST_SENDERS, Buckets
from service.store.models import Batch
from tests.support.served import BLOCK_TYPE, Client, an_event, served

UNKNOWN = b"\x81\xa4kind\xa9telepathy"


def stored(client: Client) -> list[tuple[int, str, int]]:
    """Return (sequence, batch id, records) of the log."""
    with client.service.database.session() as session:
        return [(row.sequence, row.batch_id, row.records) for row in session.query(Batch).order_by(Batch.sequence)]


def test_a_batch_is_stored_once(client: Client) -> None:
    """The same batch sent twice is in the log once, and the second answer says that it was there."""
    first = client.ship("gpu-0001", [an_event(), an_event()])
    again = client.ship("gpu-0001", [an_event(), an_event()])

    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json() == {
        "batch": "b1", "accepted": 2, "duplicate": False, "sequence": 1, "skipped": {}, "rejected": []
    }  # fmt: skip
    assert again.json() == {**first.json(), "accepted": 0, "duplicate": True}
    assert stored(client) == [(1, "b1", 2)]


def test_two_nodes_may_use_one_id(client: Client) -> None:
    """A batch id is the sender's own: another node's batch of the same id is another batch."""
    client.ship("gpu-0001", [an_event()])

    assert client.ship("gpu-0002", [an_event("gpu-0002")]).json()["duplicate"] is False
    assert len(stored(client)) == 2


def test_an_unknown_kind_is_kept_and_named(client: Client) -> None:
    """A record of a later version is stored as it came, and the answer says that this version cannot use it."""
    body = b"\x92\x90\x91" + UNKNOWN
    import zlib

    data = block.HEADER.pack(block.MAGIC, 0, zlib.crc32(body), len(body)) + body

    assert client.ship_bytes("gpu-0001", data).json()["skipped"] == {"telepathy": 1}
    assert stored(client) == [(1, "b1", 1)]


def test_json_is_taken_one_by_one(client: Client) -> None:
    """Of a JSON array the good records are stored, and the others are named by their index."""
    body = [{"kind": "kernel_event", "event": "xid"}, {"kind": "telepathy"}, 7, {"kind": "process", "pid": 1}]

    answer = client.post("/v1/records", json=body, headers={"Faulthound-Node": "gpu-0001"})

    assert answer.status_code == 202
    assert answer.json()["accepted"] == 2
    assert [one["index"] for one in answer.json()["rejected"]] == [1, 2]
    (batch,) = client.service.log.read_from(0, 10)
    assert [record.node for record in block.decode(batch.block)] == ["gpu-0001"] * 2


def test_json_without_a_record_is_refused(client: Client) -> None:
    """Where no element can be read nothing is stored, and the problem says why of each."""
    answer = client.post("/v1/records", json=[{"kind": "telepathy"}, {}], headers={"Faulthound-Node": "gpu-0001"})

    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/0", "/1"]
    assert stored(client) == []


@pytest.mark.parametrize(
    "record",
    [an_event("gpu-0002"), Placement(ranks=Members.of([0, 1]), nodes=("gpu-0001", "gpu-0002"), world_size=2)],
    ids=["a record of another", "a rank placed on another"],
)
def test_a_node_speaks_for_itself(client: Client, record: object) -> None:
    """A batch that speaks for another node is refused whole, as a block and as JSON, and the refusal is audited."""
    assert client.ship("gpu-0001", [an_event(), record]).status_code == 403  # type: ignore[list-item]
    reported = [{"kind": "kernel_event", "event": "xid", "node": "gpu-0002"}]
    answer = client.post("/v1/records", json=reported, headers={"Faulthound-Node": "gpu-0001"})

    assert answer.status_code == 403
    assert answer.json()["type"] == "/docs/rest.md#not-your-node"
    assert stored(client) == []
    (event,) = client.eventually("/v1/events?kind=batch_refused", lambda page: page["items"])["items"]
    assert event["subject"] == "gpu-0001"
    assert "gpu-0002" in event["details"]["why"]


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Faulthound-Node", ""),
        ("Faulthound-Node", "../x"),
        ("Faulthound-Node", "a" * 256),
        ("Faulthound-Batch", "a" * 65),
        ("Faulthound-Batch", "a b"),
        ("Faulthound-Batch", ""),
        ("Faulthound-Sent-At", "yesterday"),
        ("Faulthound-Sent-At", "nan"),
        ("Faulthound-Sent-At", "-1"),
    ],
)
def test_a_bad_header_is_named(client: Client, header: str, value: str) -> None:
    """A header that is missing or breaks its rule is refused by name."""
    answer = client.ship("gpu-0001", [an_event()], **{header: value})

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == header


def test_only_records_are_taken(client: Client) -> None:
    """Another type, and a body that is packed from outside, are refused before they are read."""
    headers = {"Faulthound-Node": "gpu-0001", "Faulthound-Batch": "b"}

    assert (
        client.post("/v1/records", content=b"x", headers={**headers, "Content-Type": "text/plain"}).status_code == 415
    )
    assert client.ship("gpu-0001", [an_event()], **{"Content-Encoding": "gzip"}).status_code == 415


def test_bounds_hold_at_their_edge(tmp_path: Path) -> None:
    """The largest batch that a setting allows is taken, and one byte or one record more is not."""
    records = [an_event()] * 10
    data = block.encode(records)
    unpacked = len(data) - block.HEADER.size
    with served(tmp_path / "a", batch_bytes=1024, batch_records=10) as client:
        assert client.ship("gpu-0001", records).status_code == 202
        assert client.ship("gpu-0001", [*records, an_event()], "b2").status_code == 413
        assert client.ship_bytes("gpu-0001", bytes(1025), "b3").status_code == 413
        chunked = client.post(
            "/v1/records", content=iter([bytes(600), bytes(600)]),
            headers={"Content-Type": "application/vnd.faulthound.block", "Faulthound-Node": "a", "Faulthound-Batch": "b"},
        )  # fmt: skip
        assert chunked.status_code == 413
    large = [Samples(scope="gpu", values=bytes(2_000))]
    size = len(block.encode(large)) - block.HEADER.size
    for bound, status in ((size + 1, 202), (size - 1, 413)):
        with served(tmp_path / f"b{bound}", batch_unpacked_bytes=bound) as client:
            assert client.ship("gpu-0001", large).status_code == status
            assert client.ship_bytes("gpu-0001", block.encode(large), "plain").status_code == status
    assert unpacked < 1024


def test_a_token_has_a_rate_under_any_names(tmp_path: Path) -> None:
    """One token that invents a name a batch gets 429 past its burst; a node with a token of its own is not held up."""
    with served(tmp_path, token_batches_per_second=0.5, token_batches_burst=3) as client:
        admin = client.as_(str(client.post("/v1/tokens", json={"name": "a", "scopes": ["admin"]}).json()["token"]))
        made = [
            admin.post("/v1/tokens", json={"name": "x", "scopes": ["ingest"], **more}).json()["token"]
            for more in ({}, {"node": "gpu-0001"})
        ]
        answers = [
            client.as_(made[0]).ship(f"invented-{number}", [an_event(f"invented-{number}")]) for number in range(5)
        ]
        own = client.as_(made[1]).ship("gpu-0001", [an_event("gpu-0001")])

    assert [answer.status_code for answer in answers] == [202, 202, 202, 429, 429]
    assert "token_batches_per_second" in answers[-1].json()["detail"]
    assert own.status_code == 202


def test_a_flood_is_slowed(tmp_path: Path) -> None:
    """Past its burst a node gets 429 and when to come again; another node is not held up."""
    with served(tmp_path, node_batches_per_second=0.5, node_batches_burst=3) as client:
        answers = [client.ship("gpu-0001", [an_event()], f"b{number}") for number in range(5)]
        other = client.ship("gpu-0002", [an_event("gpu-0002")])

    assert [answer.status_code for answer in answers] == [202, 202, 202, 429, 429]
    assert 1 <= int(answers[-1].headers["Retry-After"]) <= 2
    assert other.status_code == 202


def test_a_sender_has_a_rate_in_bytes(tmp_path: Path) -> None:
    """Past its burst of bytes a node gets 429 and when to come again, declared or not; another is not held up."""
    with served(tmp_path, node_bytes_per_second=100.0, node_bytes_burst=3_000) as client:
        large = block.encode([Samples(scope="gpu", values=bytes(range(256)) * 8)])
        answers = [client.ship_bytes("gpu-0001", large, f"b{number}") for number in range(4)]
        headers = {"Content-Type": BLOCK_TYPE, "Faulthound-Node": "gpu-0002"}
        chunked = [
            client.post("/v1/records", content=iter([large]), headers={**headers, "Faulthound-Batch": f"c{number}"})
            for number in range(4)
        ]
        other = client.ship("gpu-0003", [an_event("gpu-0003")])
        text = client.get("/metrics").text

    assert 2_000 < len(large) < 2_400
    assert [answer.status_code for answer in answers] == [202, 202, 429, 429]
    assert 1 <= int(answers[-1].headers["Retry-After"]) <= 20
    assert "node_bytes_per_second" in answers[-1].json()["detail"]
    assert [answer.status_code for answer in chunked] == [202, 202, 429, 429]
    assert other.status_code == 202
    assert 'faulthound_ingest_slowed_total{setting="node_bytes_per_second"} 4.0' in text


def test_a_sender_has_a_rate_in_what_its_batches_hold(tmp_path: Path) -> None:
    """A few compressed bytes of many records, or of much content, are counted as what they unpack to; another is not held up."""
    many = block.encode([an_event("gpu-0001")] * 800, pack=True)
    large = block.encode([Samples(scope="gpu", values=bytes(200_000))], pack=True)
    with served(tmp_path, node_records_per_second=1.0, node_records_burst=1_500) as client:
        answers = [client.ship_bytes("gpu-0001", many, f"b{number}") for number in range(4)]
        swollen = [client.ship_bytes("gpu-0002", large, f"b{number}") for number in range(4)]
        other = client.ship("gpu-0003", [an_event("gpu-0003")])

    assert max(len(many), len(large)) < 10_000
    assert 429 in [answer.status_code for answer in answers]
    assert [answer.status_code for answer in swollen] == [202, 202, 429, 429]
    assert "node_records_per_second" in swollen[-1].json()["detail"]
    assert other.status_code == 202


def test_a_token_has_a_rate_in_bytes_under_any_names(tmp_path: Path) -> None:
    """What one node is refused is not taken from its token; what many names send together is."""
    large = block.encode([Samples(scope="gpu", values=bytes(range(256)) * 8)])
    own = {"node_bytes_per_second": 1.0, "node_bytes_burst": 2_000}
    with served(tmp_path, token_bytes_per_second=1.0, token_bytes_burst=5_000, **own) as client:
        names = ["loud", "loud", "loud", "loud", "quiet", "other", "last"]
        answers = [client.ship_bytes(name, large, f"b{number}") for number, name in enumerate(names)]

    assert [answer.status_code for answer in answers] == [202, 429, 429, 429, 202, 202, 429]
    assert "token_bytes_per_second" in answers[-1].json()["detail"]


def test_a_bucket_fills_at_its_rate() -> None:
    """A sender may send its burst at once, then as fast as the bucket fills, and senders are forgotten in the end."""
    clock = [0.0]
    buckets = Buckets(2.0, 3, clock=lambda: clock[0])

    assert [buckets.wait_seconds("a") for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    clock[0] = 0.5
    assert buckets.wait_seconds("a") == 0.0
    assert buckets.wait_seconds("a") > 0
    for number in range(MOST_SENDERS + 10):
        buckets.wait_seconds(number)
    assert len(buckets) == MOST_SENDERS


def test_a_full_queue_says_when_to_come_again(tmp_path: Path) -> None:
    """A batch for which the queue has no room gets 503 and Retry-After, and the bytes that arrive are bounded too."""
    with served(tmp_path, queue_bytes=1024) as client:
        intake = client.service.intake
        intake.arriving_bytes = 1024
        answer = client.ship("gpu-0001", [an_event()])
        intake.arriving_bytes = 0

        assert answer.status_code == 503
        assert int(answer.headers["Retry-After"]) >= 1
        assert client.ship("gpu-0001", [an_event()]).status_code == 202
        assert intake.arriving_bytes == 0


def test_what_was_sent_is_counted(client: Client) -> None:
    """/metrics tells batches, duplicates and records, and each request by its route's template."""
    for _ in range(2):
        client.ship("gpu-0001", [an_event(), an_event()])
    text = client.get("/metrics").text

    assert 'faulthound_ingest_batches_total{duplicate="false"} 1.0' in text
    assert 'faulthound_ingest_batches_total{duplicate="true"} 1.0' in text
    assert "faulthound_ingest_records_total 2.0" in text
    assert 'faulthound_requests_total{method="POST",route="/v1/records",status="202"} 2.0' in text
