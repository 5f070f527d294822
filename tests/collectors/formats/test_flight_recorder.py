"""Flight Recorder dumps of every version and form give their exact columns, and damaged ones what came before."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import collectors.formats.flight_recorder.document
from collectors.files.path_owner import trailing_number
from collectors.files.reading import read_input, read_paths
from collectors.formats import Input, recognise
from collectors.records import FLIGHT_RECORDER_COLUMNS, FlightRecorderDump, Record, Unread
from tests.support.needs import needs_torch

ENTRIES_IN_LABELLED_DUMPS = {"gpu_error_2nd": 278, "lock_gil_1st": 142}


def entry(number: int, **changes: Any) -> dict[str, Any]:
    """One entry as version 2.9 writes it; a change to None takes the field away."""
    fields = {
        "record_id": number,
        "pg_id": 6,
        "process_group": ("39", "PIPELINE_MODEL_PARALLEL_GROUP"),
        "thread_name": "python3",
        "thread_id": "23456244340032",
        "collective_seq_id": 29,
        "p2p_seq_id": 100 + number,
        "op_id": 200 + number,
        "profiling_name": "nccl:send 0->1",
        "time_created_ns": 1_758_581_237_526_848_193 + number,
        "input_sizes": [[2048, 1, 5120]],
        "input_dtypes": ["Float"],
        "output_sizes": [[2048, 1, 5120]],
        "output_dtypes": ["Half"],
        "state": "started",
        "time_discovered_started_ns": 1_758_581_237_526_900_000,
        "time_discovered_completed_ns": None,
        "retired": False,
        "timeout_ms": 180_000,
        "is_p2p": True,
        "frames": [
            {"name": "forward", "filename": "model.py", "line": 12},
            {"name": "main", "filename": "t.py", "line": 3},
        ],
    }
    return {key: value for key, value in (fields | changes).items() if key not in changes or value is not None}


def document(entries: list[Any], **changes: Any) -> dict[str, Any]:
    """A whole dump of version 2.9 of rank 3."""
    config = {
        "0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(16)))},
        "39": {"name": "39", "desc": "PIPELINE_MODEL_PARALLEL_GROUP", "ranks": "[3, 11]"},
    }
    counters = {"last_enqueued_collective": 14146, "last_started_collective": -1, "last_completed_collective": 14145}
    fields = {
        "version": "2.9",
        "pg_config": config,
        "nccl_version": "2.27.3",
        "pg_status": {"0": counters},
        "entries": entries,
    }
    return {key: value for key, value in (fields | changes).items() if value is not None}


def read(data: bytes, source: str = "_dump_3", at: float | None = None) -> list[Record]:
    """What reading such a file gives, in this process."""
    return list(
        read_input(
            Input(
                source,
                io.BytesIO(data),
                data[:65536],
                3 if source == "_dump_3" else None,
                None,
                at,
                trailing_number(source),
            )
        )
    )


def dump_of(data: bytes, source: str = "_dump_3", at: float | None = None) -> FlightRecorderDump:
    """The one dump in such a file."""
    (found,) = [record for record in read(data, source, at) if isinstance(record, FlightRecorderDump)]
    return found


def column(dump: FlightRecorderDump, name: str) -> list[Any]:
    """A column's values; names and sizes as the text they stand for."""
    values = array({"<i8": "q", "<i4": "i", "<i1": "b"}[FLIGHT_RECORDER_COLUMNS[name]])
    values.frombytes(dump.columns[name])
    texts = FLIGHT_RECORDER_COLUMNS[name] == "<i4"
    return [dump.strings[value] if texts and value >= 0 else value for value in values]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_gives_its_columns(protocol: int) -> None:
    """Every field of every entry arrives under its column, in each protocol."""
    dump = dump_of(pickle.dumps(document([entry(0), entry(1, state="completed", retired=True)]), protocol))
    assert (dump.rank, dump.version, dump.library_version, dump.count, dump.truncated) == (3, "2.9", "2.27.3", 2, False)
    assert {name: column(dump, name) for name in FLIGHT_RECORDER_COLUMNS} == {
        "record_id": [0, 1],
        "group": ["39", "39"],
        "collective_seq": [29, 29],
        "p2p_seq": [100, 101],
        "op_id": [200, 201],
        "pg_id": [6, 6],
        "operation": ["nccl:send 0->1"] * 2,
        "state": [1, 2],
        "retired": [0, 1],
        "is_p2p": [1, 1],
        "created_ns": [1_758_581_237_526_848_193, 1_758_581_237_526_848_194],
        "started_ns": [1_758_581_237_526_900_000] * 2,
        "completed_ns": [-1, -1],
        "input_sizes": ["[[2048,1,5120]]"] * 2,
        "output_sizes": ["[[2048,1,5120]]"] * 2,
        "dtypes": ["Float>Half"] * 2,
        "timeout_ms": [180_000] * 2,
        "frames": ["forward (model.py:12)\nmain (t.py:3)"] * 2,
    }
    assert [(group.name, group.members and group.members.ranks()) for group in dump.groups] == [
        ("0", tuple(range(16))),
        ("39", (3, 11)),
    ]
    assert array("q", dump.pg_status["completed"]).tolist() == [14145]


def test_json_says_the_same_as_the_pickle() -> None:
    """Strings for numbers, 0 for unset times, no frames and sorted keys give the columns that the pickle gives."""
    entries = [entry(0, frames=None), entry(1, frames=None)]
    zeroed = [one | {"time_discovered_completed_ns": 0} for one in entries]
    status = {
        "0": {
            f"last_{name}_collective": text
            for name, text in (("enqueued", "14146"), ("started", "-1"), ("completed", "14145"))
        }
    }
    written = json.dumps(
        document(zeroed, pg_status=status, nccl_version=None, comm_lib_version="2.27.3"), sort_keys=True
    )
    assert dump_of(written.encode()) == dump_of(pickle.dumps(document(entries), 2))


def test_a_dump_without_entries_is_a_dump() -> None:
    """JSON leaves the key out and a pickle may hold an empty list: neither is an error."""
    for data in (
        json.dumps({key: value for key, value in document([]).items() if key != "entries"}).encode(),
        pickle.dumps(document([]), 2),
    ):
        assert (dump_of(data).count, len(dump_of(data).groups)) == (0, 2)


def test_old_versions_lack_fields() -> None:
    """Version 2.0 has one counter, no p2p flag, no timeout: what is absent is unset and the operation's name decides."""
    old = entry(
        0, collective_seq_id=None, p2p_seq_id=None, is_p2p=None, timeout_ms=None, frames=None, input_dtypes=None
    )
    dump = dump_of(pickle.dumps(document([old | {"seq_id": 7}], version="2.0"), 2))
    values = {name: column(dump, name)[0] for name in ("collective_seq", "p2p_seq", "is_p2p", "timeout_ms", "frames")}
    assert values == {"collective_seq": 7, "p2p_seq": -1, "is_p2p": 1, "timeout_ms": -1, "frames": -1}


def test_groups_that_only_entries_name_have_no_members() -> None:
    """Gloo leaves pg_config empty: the group is known by name, and its members are not guessed."""
    dump = dump_of(pickle.dumps(document([entry(0)], pg_config={}), 2))
    assert [(group.name, group.description, group.members) for group in dump.groups] == [
        ("39", "PIPELINE_MODEL_PARALLEL_GROUP", None)
    ]


@pytest.mark.parametrize(
    ("source", "changes", "rank"),
    [
        ("mine_11", {}, 3),  # "send 0->1" in [3, 11]: rank 3, whatever the prefix or the number
        ("mine_11", {"profiling_name": "nccl:all_reduce"}, 11),
        ("mine", {"profiling_name": "nccl:all_reduce"}, None),
        ("snapshot_2", {"profiling_name": "nccl:all_reduce"}, None),  # no member of [3, 11]
    ],
)
def test_the_content_says_whose_a_nameless_dump_is(source: str, changes: dict[str, Any], rank: int | None) -> None:
    """A send names its rank; a number at the end of a name counts only if the groups hold it."""
    assert dump_of(pickle.dumps(document([entry(0, **changes)]), 2), source).rank == rank


def test_an_implausible_modification_time_is_not_believed() -> None:
    """A file older than its newest entry, or copied weeks later, does not say when it was written."""
    data, newest = pickle.dumps(document([entry(0)]), 2), 1_758_581_237.5
    assert dump_of(data, at=newest + 600).at == newest + 600
    assert [dump_of(data, at=at).at for at in (newest - 600, newest + 90 * 86400)] == [None, None]


GARBAGE: list[Any] = [
    None,
    -5,
    "x",
    "17",
    1.5,
    float("nan"),
    float("inf"),
    [],
    {},
    [[["deep"]]],
    {"a": 1},
    True,
    2**70,
    b"\xff",
    "\ud800",
]


@pytest.mark.parametrize("value", GARBAGE, ids=repr)
@pytest.mark.parametrize(
    "write", [lambda d: pickle.dumps(d, 4), lambda d: json.dumps(d, default=repr).encode()], ids=["pickle", "json"]
)
def test_garbage_in_one_field_costs_that_field(value: Any, write: Callable[[Any], bytes]) -> None:
    """Any value in any field leaves two entries, the other one intact, and nothing raised."""
    for key in entry(0):
        dump = dump_of(write(document([entry(0), entry(1) | {key: value}])))
        assert dump.count == 2, key
        assert all(len(dump.columns[name]) == 2 * int(kind[2]) for name, kind in FLIGHT_RECORDER_COLUMNS.items())
        assert (column(dump, "record_id")[0], column(dump, "operation")[0]) == (0, "nccl:send 0->1")
        assert min(column(dump, "created_ns") + column(dump, "completed_ns")) >= -1
    for key in document([]):
        assert read(write(document([entry(0)]) | {key: value})), key
    for key in ("name", "desc", "ranks"):
        config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 3]"} | {key: value}}
        assert dump_of(write(document([entry(0)], pg_config=config))).count == 1


def test_entries_that_are_none_are_counted_and_left_out() -> None:
    """A list holding other things than entries keeps its entries and says how many it lost."""
    dump, *_ = records = sorted(
        read(pickle.dumps(document([entry(0), 7, None, [entry(1)]]), 2)), key=lambda r: type(r).__name__
    )
    assert isinstance(dump, FlightRecorderDump)
    assert dump.count == 1
    assert [record.reason for record in records if isinstance(record, Unread)] == [
        "3 of its entries are not entries and were left out"
    ]


@pytest.mark.parametrize("form", ["pickle2", "pickle4", "json"])
def test_a_cut_dump_keeps_its_whole_entries(form: str) -> None:
    """Cut anywhere, a dump gives exactly the entries that were whole before the cut, and says where it is damaged."""
    whole = document([entry(number, frames=None) for number in range(40)])
    data = json.dumps(whole, indent=1).encode() if form == "json" else pickle.dumps(whole, int(form[-1]))
    counts = []
    step = max(97, len(data) // 100 | 1)
    for length in range(step, len(data) - 2, step):
        records = read(data[:length])
        assert any(isinstance(record, Unread) and record.outcome == "damaged" for record in records), length
        dumps = [record for record in records if isinstance(record, FlightRecorderDump)]
        for dump in dumps:
            assert dump.truncated
            assert column(dump, "record_id") == list(range(dump.count))
            assert set(column(dump, "operation")) <= {"nccl:send 0->1"}
        counts.append(dumps[0].count if dumps else 0)
    assert counts == sorted(counts)
    assert counts[-1] >= 38


def test_the_labelled_dumps_are_read_exactly(corpus: Path) -> None:
    """The 32 labelled dumps give every entry as the standard unpickler sees it, and their ranks with and without names."""
    for folder, expected in ENTRIES_IN_LABELLED_DUMPS.items():
        dumps = [
            record
            for record in read_paths([corpus / "flight_recorder" / folder])
            if isinstance(record, FlightRecorderDump)
        ]
        assert len(dumps) == 16
        assert sum(dump.count for dump in dumps) == expected
        for dump in dumps:
            data = Path(dump.source).read_bytes()
            truth = plain(data)
            assert dump.rank == int(Path(dump.source).name.removeprefix("_dump_"))
            assert dump_of(data, "nameless").rank == dump.rank
            assert {group.name: str(list(group.members.ranks())) for group in dump.groups if group.members} == {
                name: group["ranks"] for name, group in truth["pg_config"].items()
            }
            assert column(dump, "record_id") == [one["record_id"] for one in truth["entries"]]
            assert column(dump, "operation") == [one["profiling_name"] for one in truth["entries"]]
            assert column(dump, "group") == [one["process_group"][0] for one in truth["entries"]]
            assert column(dump, "input_sizes") == [str(one["input_sizes"]).replace(" ", "") for one in truth["entries"]]


def plain(data: bytes) -> dict[str, Any]:
    """A trusted dump as the standard library reads it."""
    found: dict[str, Any] = pickle.Unpickler(io.BytesIO(data)).load()
    return found


def test_a_labelled_dump_cut_anywhere_never_crashes(corpus: Path) -> None:
    """Cut at every 97th byte, a real dump gives its first entries or none, and always says that it is damaged."""
    for folder in ENTRIES_IN_LABELLED_DUMPS:
        data = (corpus / "flight_recorder" / folder / "_dump_9").read_bytes()
        ids = [one["record_id"] for one in plain(data)["entries"]]
        for length in range(97, len(data), 97):
            records = read(data[:length], "_dump_9")
            assert any(isinstance(record, Unread) and record.outcome == "damaged" for record in records)
            for record in records:
                if isinstance(record, FlightRecorderDump):
                    assert column(record, "record_id") == ids[: record.count]


REAL = """
import sys, torch, torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=0, world_size=1)
for _ in range(5):
    dist.all_reduce(torch.ones(4))
dist.barrier()
open(f"{sys.argv[1]}/comm_lib_trace_rank_0", "wb").write(_dump_fr_trace(True, True, False))
open(f"{sys.argv[1]}/rank0.json", "wb").write(_dump_fr_trace_json(True, False))
"""


@pytest.mark.system
def test_this_torch_s_own_dumps_are_read(tmp_path: Path) -> None:
    """What the installed torch writes, as pickle with stacks and as JSON, says the same of the same six operations."""
    needs_torch("no real dump can be made here")
    subprocess.run([sys.executable, "-c", REAL, str(tmp_path)], check=True, capture_output=True, timeout=120)
    (tmp_path / "store").unlink(missing_ok=True)
    dumps = list(read_paths([tmp_path]))
    assert all(isinstance(dump, FlightRecorderDump) for dump in dumps), dumps
    pickled, written = dumps
    assert isinstance(pickled, FlightRecorderDump)
    assert isinstance(written, FlightRecorderDump)
    for dump in (pickled, written):
        assert (dump.rank, dump.count) == (0, 6)
        assert column(dump, "operation")[:5] == ["gloo:all_reduce"] * 5
        assert column(dump, "collective_seq") == list(range(1, 7))
        assert column(dump, "input_sizes")[0] == "[[4]]"
    assert column(pickled, "created_ns") == column(written, "created_ns")
    assert "all_reduce" in column(pickled, "frames")[0]


def test_another_pickle_is_no_dump() -> None:
    """A pickle of something else is recognised as a pickle and not mistaken for a dump."""
    data = pickle.dumps({"weights": [1.0, 2.0]}, 2)
    found = recognise(data, "x")
    assert found is not None
    assert found.name == "flight_recorder_pickle"
    assert [record.outcome for record in read(data) if isinstance(record, Unread)] == ["unrecognised"]


@pytest.mark.parametrize(("size", "refused"), [(10, False), (11, True)])
def test_a_dump_is_read_up_to_its_bound(monkeypatch: pytest.MonkeyPatch, size: int, refused: bool) -> None:
    """At the bound the bytes are all there; one more is refused with the bound and the next step."""
    monkeypatch.setattr(collectors.formats.flight_recorder.document, "DUMP_BYTES", 10)

    got = collectors.formats.flight_recorder.document.whole(
        Input(source="_dump_0", stream=io.BytesIO(b"x" * size), head=b"")
    )

    assert isinstance(got, Unread) is refused
    assert not refused or ("10 bytes" in got.reason and "fewer entries" in got.reason)
