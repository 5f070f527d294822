"""Senders who mean harm, or are broken: whatever arrives where a batch should be, the service refuses it and lives on."""

from __future__ import annotations

import json
import os
import socket
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collectors.records import KernelEvent, Samples, block
from service.api.inspection import MOST_OBJECTS, Broken, TooMuch, inspect
from tests.support.served import BLOCK_TYPE, Client, an_event, served, serving

MOST_GROWTH_BYTES = 400 << 20  # of a service at its default bounds under the worst that fits into them
FINAL = {413, 422}
A_BLOCK = block.encode([an_event(), Samples(node="gpu-0001", scope="gpu", values=bytes(64))], pack=True)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Return a client of a service that lets one sender send all this."""
    with served(tmp_path_factory.mktemp("hostile"), node_batches_burst=1_000_000) as client:
        yield client


def a_block(body: bytes, *, packed: bool = True) -> bytes:
    """Return a block with a right header around any body."""
    if packed:
        from backports import zstd

        body = zstd.compress(body, 3)
    return block.HEADER.pack(block.MAGIC, int(packed), zlib.crc32(body), len(body)) + body


def array(count: int) -> bytes:
    """Return the beginning of a MessagePack array."""
    return b"\xdd" + struct.pack(">I", count)


# What a byte of MessagePack can claim, a million times over.
BOMBS = {
    "sixty megabytes of nothing": a_block(b"\x92\x90\x91\x81\xa1x\xc6" + struct.pack(">I", 60 << 20) + bytes(60 << 20)),
    "more than may be unpacked": a_block(bytes(200 << 20)),
    "four billion records": a_block(b"\x92\x90" + array(0xFFFFFFFF) + b"\x80"),
    "ten million records": a_block(b"\x92\x90" + array(10_000_000) + b"\x80" * 10_000_000),
    "sixty million member lists": a_block(b"\x92" + array(30_000_000) + b"\xc4\x00" * 30_000_000 + b"\x90"),
    "sixty million threads": a_block(
        b"\x92\x90\x91\x82\xa4kind\xa6stacks\xa7threads" + array(60_000_000) + b"\x80" * 60_000_000
    ),
    "sixty million names": a_block(
        b"\x92\x90\x91\x82\xa4kind\xa9placement\xa5nodes" + array(60_000_000) + b"\xa0" * 60_000_000
    ),
    "ten thousand deep": a_block(b"\x92\x90\x91" + b"\x91" * 10_000 + b"\x80"),
    "ten million deep": a_block(b"\x92\x90\x91" + b"\x91" * 10_000_000 + b"\x80"),
    "a member list that is cut": a_block(b"\x92\x91\xc4\x03abc\x90"),
    "no records at all": a_block(b"\x92\x90\x80"),
    "a frame that never ends": block.HEADER.pack(block.MAGIC, 1, zlib.crc32(b"\x28\xb5\x2f\xfd"), 4) + b"\x28\xb5\x2f\xfd",
    "a length of exabytes": block.HEADER.pack(block.MAGIC, 0, 0, 1 << 62) + b"x",
    "two blocks": A_BLOCK + A_BLOCK,
    "a record that is none": a_block(b"\x92\x90\x93\x01\xa1x\xc0"),
    "a node that is a number": a_block(b"\x92\x90\x91\x82\xa4kind\xa7process\xa4node\x05"),
}  # fmt: skip


def memory_bytes(pid: int) -> int:
    """Return the most memory that a process has held."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


@pytest.mark.system
def test_bombs_are_refused_in_bounded_memory(tmp_path: Path) -> None:
    """No bomb is taken or makes the service fail, it grows by no more than its bounds, and it serves the next agent."""
    variables = {"FAULTHOUND_NODE_BATCHES_BURST": "10000"}
    with serving(tmp_path, variables) as (url, process), httpx.Client(base_url=url, timeout=60) as client:
        headers = {"Content-Type": BLOCK_TYPE, "Faulthound-Node": "gpu-0001"}
        client.post("/v1/records", content=A_BLOCK, headers={**headers, "Faulthound-Batch": "before"})
        before = memory_bytes(process.pid)
        statuses = {}
        for number, (name, data) in enumerate(BOMBS.items()):
            answer = client.post("/v1/records", content=data, headers={**headers, "Faulthound-Batch": f"b{number}"})
            statuses[name] = answer.status_code
        last = client.post("/v1/records", content=A_BLOCK, headers={**headers, "Faulthound-Batch": "after"})
        grown = memory_bytes(process.pid) - before

    # One record of sixty megabytes is within every bound: it is stored as it came.
    assert statuses.pop("sixty megabytes of nothing") == 202
    assert {name: status for name, status in statuses.items() if status not in FINAL} == {}
    assert last.status_code == 202
    print(f"the service grew by {grown >> 20} MB")
    assert grown < MOST_GROWTH_BYTES


def test_a_body_that_never_ends_is_cut_off(client: Client) -> None:
    """A sender that streams without end, and one that promises too much, get 413 long before they are through."""
    headers = {"Content-Type": BLOCK_TYPE, "Faulthound-Node": "gpu-0001", "Faulthound-Batch": "b"}

    endless = client.as_("").post("/v1/records", content=(bytes(1 << 20) for _ in range(20)), headers=headers)
    promised = client.as_("").post("/v1/records", content=bytes(20 << 20), headers=headers)

    assert (endless.status_code, promised.status_code) == (413, 413)
    assert client.service.intake.arriving_bytes == 0


def test_a_sender_that_goes_away_leaves_nothing(client: Client) -> None:
    """A connection that ends within the body stores nothing, holds no memory and is no failure."""
    address = (client.base_url.host, client.base_url.port or 0)
    for _ in range(20):
        with socket.create_connection(address) as sender:
            head = f"POST /v1/records HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {BLOCK_TYPE}\r\n"
            sender.sendall(
                f"{head}Faulthound-Node: n\r\nFaulthound-Batch: b\r\nContent-Length: 9999\r\n\r\nxx".encode()
            )

    assert client.get("/healthz").status_code == 200
    client.eventually("/readyz", lambda _: client.service.intake.arriving_bytes == 0)
    assert "500" not in client.get("/metrics").text.partition("faulthound_requests_total{")[2].partition("# ")[0]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_a_damaged_block_is_never_a_failure(client: Client, data: st.DataObject) -> None:
    """A block with any bytes changed, cut or added is stored or refused for good, and never answered with 500."""
    damaged = bytearray(A_BLOCK)
    for at, value in data.draw(st.lists(st.tuples(st.integers(0, len(damaged) - 1), st.integers(0, 255)), max_size=4)):
        damaged[at] = value
    cut = data.draw(st.integers(0, len(damaged)) | st.just(len(damaged)))

    answer = client.ship_bytes("gpu-0001", bytes(damaged[:cut]) + data.draw(st.binary(max_size=4)), os.urandom(8).hex())

    assert answer.status_code in {202, *FINAL}, answer.text


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(body=st.binary(max_size=200))
def test_any_body_in_a_right_header_is_never_a_failure(client: Client, body: bytes) -> None:
    """Whatever a block with the right checksum holds, it is stored or refused for good, and the follower goes on."""
    answer = client.ship_bytes("gpu-0001", a_block(b"\x92\x90" + body, packed=False), os.urandom(8).hex())

    assert answer.status_code in {202, 403, *FINAL}, answer.text


NAMES = st.sampled_from(["kind", "event", "node", "ranks", "nodes", "columns", "at", "pid", "threads", "frames"])
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(NAMES | st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@pytest.mark.system
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    records=st.lists(
        st.builds(
            lambda kind, more: {"kind": kind, **more},
            st.sampled_from(["kernel_event", "placement", "flight_recorder", "samples", "stacks", "zzz"]),
            st.dictionaries(NAMES, JSON_VALUES, max_size=4),
        )
        | JSON_VALUES,
        max_size=4,
    )
)  # fmt: skip
def test_any_json_is_never_a_failure(client: Client, records: list[object]) -> None:
    """Whatever JSON holds, infinities and lone surrogates included, it is stored or refused for good."""
    answer = client.post(
        "/v1/records", content=json.dumps(records), headers={"Content-Type": "application/json", "Faulthound-Node": "n"}
    )

    assert answer.status_code in {202, 403, *FINAL}, answer.text


@pytest.mark.parametrize(
    "text", ["[" * 10_000, '[{"a":' * 10_000, "[1e999]", '["\\ud800"]', "", "null", "\x00", "[{}" * 3]
)
def test_odd_json_is_refused(client: Client, text: str) -> None:
    """JSON that is deep, cut, empty or no array is refused for good."""
    headers = {"Content-Type": "application/json", "Faulthound-Node": "n"}

    assert client.post("/v1/records", content=text, headers=headers).status_code == 422


def test_the_follower_survived(client: Client) -> None:
    """After everything that was stored above, the log is read to its end and a healthy node is seen."""
    client.ship("gpu-0099", [KernelEvent(event="xid", code=79, node="gpu-0099")], "last")

    client.eventually("/v1/nodes/gpu-0099", lambda node: node["name"] == "gpu-0099")
    assert client.get("/readyz").status_code == 200


def test_a_large_batch_is_weighed() -> None:
    """A batch of two million values is refused by their number, one of a few large columns is not, and a cut one is reported."""
    bounds = {"most_records": 10, "largest_bytes": 64 << 20}
    columns = block.encode([Samples(scope="gpu", values=bytes(2 << 20)) for _ in range(3)])
    many = a_block(b"\x92\x90\x91\x81\xa1x" + array(2_000_000) + b"\x01" * 2_000_000)
    cut = a_block(b"\x92\x90" + array(9) + b"\xc6" + struct.pack(">I", 2 << 20) + bytes(2 << 20))

    assert inspect(columns, "n", **bounds).records == 3
    with pytest.raises(TooMuch, match=f"more than {MOST_OBJECTS:,} values"):
        inspect(many, "n", **bounds)
    with pytest.raises(Broken, match="ends inside a record"):
        inspect(cut, "n", **bounds)
