"""Blocks come back as they went in, for every version's future, and damage is named."""

from __future__ import annotations

import zlib
from array import array
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.records import (
    FLIGHT_RECORDER_COLUMNS,
    FlightRecorderDump,
    Frame,
    Group,
    KernelEvent,
    LogEvent,
    Members,
    Placement,
    ProcessState,
    RasCommunicator,
    RasPeerDead,
    RasRank,
    Record,
    StackDump,
    Thread,
    Unread,
    block,
)
from collectors.records.record import LARGEST_RANK, Damaged

GOLDEN = Path(__file__).parents[2] / "golden" / "block_v1.fhb"


def one_of_each() -> list[Record]:
    """Every kind of record with its telling fields set, as they were on the first day."""
    world, pair = Members.of(range(16)), Members.of([3, 11])
    wide = {"<i8": "q", "<i4": "i", "<i1": "b"}
    first_day = [name for name in FLIGHT_RECORDER_COLUMNS if name != "pg_id"]
    columns = {name: array(wide[FLIGHT_RECORDER_COLUMNS[name]], [1, 0]).tobytes() for name in first_day}
    return [
        FlightRecorderDump(
            source="dumps/_dump_3",
            at=1758581240.25,
            rank=3,
            node="gpu-0413",
            version="2.9",
            library_version="2.27.3",
            groups=(Group("0", "default_pg", world), Group("39", "PIPELINE", pair), Group("7")),
            strings=("0", "nccl:send 0->1"),
            count=2,
            columns=columns,
            pg_status={"pg_id": array("q", [0, 6]).tobytes()},
            truncated=True,
        ),
        FlightRecorderDump(rank=11, groups=(Group("0", "default_pg", world),)),
        StackDump(tool="py-spy", pid=7, threads=(Thread(frames=(Frame("forward", "model.py", 12),), main=True),)),
        ProcessState(pid=7, state="D", wait_channel="io_schedule", elapsed_seconds=12.5),
        KernelEvent(event="xid", code=149, pci="0000:9b:00", status=(1, 2, 4294967295), node="gpu-0413"),
        LogEvent(event="watchdog_timeout", sequence=12, elapsed_ms=600001, first=False),
        RasCommunicator(hash="0x1", size=2, ranks=(RasRank(rank=1, counts={"AllReduce": 9}),), warnings=("slow",)),
        RasPeerDead(host="gpu-0413", gpus=(0, 1)),
        Placement(ranks=world, nodes=("a", "b") * 8, world_size=16),
        Unread(source="x", reason="an empty file", outcome="empty", offset=0),
    ]


def _with_body(body: bytes) -> bytes:
    return block.HEADER.pack(block.MAGIC, 0, zlib.crc32(body), len(body)) + body


@pytest.mark.parametrize("pack", [False, True])
def test_every_kind_comes_back(pack: bool) -> None:
    """A block gives back the very records it was made of, packed or not."""
    assert block.decode(block.encode(one_of_each(), pack=pack)) == one_of_each()


def test_the_first_day_s_block_is_read_forever() -> None:
    """The block written on the first day decodes to the same records in every later version."""
    assert block.decode(GOLDEN.read_bytes()) == one_of_each()


def test_equal_member_lists_are_written_once_and_shared() -> None:
    """The world group of many dumps costs its bytes once in the block and one object in memory."""
    world = Members.of(range(4096))
    dumps = [FlightRecorderDump(rank=rank, groups=(Group("0", "", world),)) for rank in range(100)]
    data = block.encode(dumps)
    assert len(data) < 4096 * 4 + 100 * 200
    groups = [record.groups[0] for record in block.decode(data) if isinstance(record, FlightRecorderDump)]
    assert len({id(group.members) for group in groups}) == 1


def test_an_unknown_kind_is_skipped_and_counted() -> None:
    """A newer version's record, and its value in an old kind, cost neither the block nor its other records."""
    known = msgspec.msgpack.encode([{"kind": "unread", "reason": "x", "newer_field": 3}])[1:]
    newer = msgspec.msgpack.encode([{"kind": "telepathy", "at": 1.0}])[1:]
    odd = msgspec.msgpack.encode([{"kind": "unread", "reason": "x", "outcome": "a newer outcome"}])[1:]
    decoded = block.decode_counting(_with_body(b"\x92\x90\x93" + newer + known + odd))
    assert decoded.records == [Unread(reason="x")]
    assert decoded.skipped == {"telepathy": 1, "unread": 1}


def test_a_cut_block_names_the_byte() -> None:
    """A block that ends anywhere before its end is damaged, and the message says where."""
    data = block.encode(one_of_each())
    for length in range(0, len(data), 7):
        with pytest.raises(Damaged, match=rf"byte {length:,}" if length > block.HEADER.size else "byte"):
            block.decode(data[:length])


def test_a_changed_byte_is_noticed() -> None:
    """No flipped bit of a block passes for a record."""
    data = block.encode(one_of_each(), pack=True)
    for at in range(0, len(data), 11):
        changed = bytearray(data)
        changed[at] ^= 0x40
        with pytest.raises(Damaged):
            block.decode(bytes(changed))


def test_a_member_list_outside_the_table_is_not_followed() -> None:
    """A number without its list skips the record rather than naming other ranks."""
    record = msgspec.msgpack.encode([{"kind": "placement", "ranks": 5}])[1:]
    assert block.decode_counting(_with_body(b"\x92\x90\x91" + record)).skipped == {"placement": 1}


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
INTEGER = st.integers(-(2**63), 2**63 - 1)
MEMBERS = st.none() | st.lists(st.integers(0, LARGEST_RANK), max_size=8).map(Members.of)
WHOSE = {
    "source": TEXT,
    "at": st.none() | st.floats(-1e11, 1e11),
    "rank": st.none() | st.integers(0, LARGEST_RANK),
}
FRAME = st.builds(Frame, TEXT, TEXT, INTEGER)
ANY = st.one_of(
    st.builds(
        FlightRecorderDump,
        **WHOSE,
        groups=st.lists(st.builds(Group, TEXT, TEXT, MEMBERS), max_size=3).map(tuple),
        strings=st.lists(TEXT, max_size=3).map(tuple),
        columns=st.dictionaries(TEXT, st.binary(max_size=40), max_size=3),
        truncated=st.booleans(),
    ),
    st.builds(
        StackDump,
        **WHOSE,
        threads=st.lists(st.builds(Thread, frames=st.lists(FRAME).map(tuple)), max_size=2).map(tuple),
    ),
    st.builds(KernelEvent, **WHOSE, event=TEXT, status=st.lists(INTEGER, max_size=4).map(tuple)),
    st.builds(Placement, **WHOSE, ranks=MEMBERS, nodes=st.lists(TEXT, max_size=3).map(tuple)),
    st.builds(Unread, **WHOSE, reason=TEXT, outcome=st.sampled_from(["damaged", "empty"])),
)


@settings(max_examples=50)
@given(st.lists(ANY, max_size=4), st.booleans())
def test_any_records_come_back(records: list[Record], pack: bool) -> None:
    """Whatever the fields hold within their bounds, a block returns it unchanged."""
    assert block.decode(block.encode(records, pack=pack)) == records
