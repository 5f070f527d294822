"""Traces of torch.profiler: what a rank's file becomes, under which names and forms, and what spoilt and hostile ones say."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analyzers.diagnosis.slow.op_table import tabulate
from collectors.files.reading import read_paths
from collectors.formats import Input, recognise, registry
from collectors.formats.traces.kineto import gathered, json_stream
from collectors.formats.traces.kineto.parts import parts as parts_of
from collectors.records import OP_COLUMNS, OpTimings, Placement, Record, Unread
from tests.support.kineto_traces import MAIN, Event, KinetoJob, as_kineto, span
from tests.support.needs import needs_torch

NAME = "rank3.4711.pt.trace.json"


def read(folder: Path, text: str | bytes, name: str = NAME) -> list[Record]:
    """Return the records of one file."""
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return list(read_paths([folder / name]))


def parts(record: Record) -> dict[str, list[float]]:
    """Return a record's seconds by operation, in the order of its steps."""
    assert isinstance(record, OpTimings), record
    columns = {name: np.frombuffer(record.columns[name], code).tolist() for name, code in OP_COLUMNS.items()}
    found: dict[str, list[float]] = {}
    for operation, seconds in zip(columns["operation"], columns["duration"], strict=True):
        found.setdefault(record.strings[operation], []).append(seconds)
    return found


def document(**changes: Any) -> Event:
    """Return rank 3's trace of two steps."""
    return KinetoJob(steps=2, jitter=0.0, **changes).ranks()[3]


@pytest.mark.parametrize("device", [False, True], ids=["host", "device"])
def test_a_step_is_a_few_operations(tmp_path: Path, device: bool) -> None:
    """What is nested counts once, what hides behind computation not, and the parts fill the step."""
    placement, record = read(tmp_path, as_kineto(document(device=device, times={0: 1.5})))
    found = {name: seconds[0] for name, seconds in parts(record).items()}
    computed = {"kernels-compute": 0.060, "optimizer-kernels": 0.002}
    if not device:
        computed = {"forward-compute": 0.020, "backward-compute": 0.040, "optimizer-compute": 0.002}
    assert {name: found[name] for name in computed} == pytest.approx(computed, rel=0.05)
    assert found["data-loader"] == pytest.approx(0.0005)
    assert found["comm"] == pytest.approx(0.035, rel=0.05)  # rank 0 comes 30 ms later, and the transfer takes 5
    assert isinstance(placement, Placement)
    assert (placement.world_size, placement.node) == (4, "gpu-0003")
    assert isinstance(record, OpTimings)
    assert (record.rank, record.node, record.told_by) == (3, "gpu-0003", "kineto")
    assert record.device_model == ("NVIDIA H100" if device else "")


@pytest.mark.parametrize("form", ["lines", "one line", "gzip", "tabs", "list"])
def test_any_layout_gives_the_same(tmp_path: Path, form: str) -> None:
    """Kineto's lines, and what tools that rewrite traces make of them."""
    whole = document()
    expected = parts(read(tmp_path, as_kineto(whole))[-1])
    text = {
        "lines": as_kineto(whole), "one line": json.dumps(whole), "tabs": json.dumps(whole, indent="\t"),
        "gzip": as_kineto(whole), "list": json.dumps(whole["traceEvents"]),
    }[form]  # fmt: skip
    data = gzip.compress(text.encode()) if form == "gzip" else text.encode()
    records = read(tmp_path, data, NAME + (".gz" if form == "gzip" else ""))
    assert parts(records[-1]) == expected


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank5.12.pt.trace.json", 5),
        ("trace_6.json", 6),
        ("rank7_trace.json", 7),
        ("profile_8.json", 8),
        ("rank-9.json", 9),
    ],
)
def test_a_rank_comes_from_the_name_where_the_trace_has_none(tmp_path: Path, name: str, rank: int) -> None:
    """As trainers name their traces."""
    whole = document()
    del whole["distributedInfo"]
    (record,) = read(tmp_path, as_kineto(whole), name)
    assert record.rank == rank


@pytest.mark.parametrize("device", [False, True], ids=["host", "device"])
def test_older_categories_mean_the_same(tmp_path: Path, device: bool) -> None:
    """Of older versions: annotations are operators, threads are texts, and the device has no annotations."""
    whole = document(device=device)
    events = [event for event in whole["traceEvents"] if event.get("cat") != "gpu_user_annotation"]
    expected = parts(read(tmp_path, as_kineto(whole | {"traceEvents": events}))[-1])
    old = {"cpu_op": "Operator", "user_annotation": "Operator", "kernel": "Kernel"}
    renamed = [event | {"cat": old.get(event.get("cat", ""), ""), "tid": str(event["tid"])} for event in events]
    assert parts(read(tmp_path, as_kineto(whole | {"traceEvents": renamed}))[-1]) == expected


def test_a_trace_of_no_rank_says_what_to_call_it(tmp_path: Path) -> None:
    """For nothing shows which of several it is."""
    whole = document()
    del whole["distributedInfo"]
    (unread,) = read(tmp_path, as_kineto(whole), "trace.json")
    assert isinstance(unread, Unread)
    assert "rank0.json" in unread.reason


def test_a_trace_without_steps_says_how_to_record_them(tmp_path: Path) -> None:
    """A profiler without a schedule, or whose step() is never called, marks none."""
    whole = document()
    whole["traceEvents"] = [event for event in whole["traceEvents"] if not event["name"].startswith("ProfilerStep")]
    (unread,) = read(tmp_path, as_kineto(whole))
    assert isinstance(unread, Unread)
    assert "prof.step()" in unread.reason


def test_launches_are_no_computation(tmp_path: Path) -> None:
    """A CUDA job that was profiled without its device looks alike on every rank, whichever is slow."""
    whole = document(device=True)
    whole["traceEvents"] = [event for event in whole["traceEvents"] if event.get("cat") != "kernel"]
    (unread,) = read(tmp_path, as_kineto(whole))
    assert isinstance(unread, Unread)
    assert "ProfilerActivity.CUDA" in unread.reason


def test_a_place_in_groups_is_a_coordinate(tmp_path: Path) -> None:
    """By the descriptions of Megatron-LM and DeviceMesh; other groups give none."""
    groups = (
        {"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1, 2, 3]},
        {"pg_name": "1", "pg_desc": "mesh_pp", "ranks": [1, 3]},
        {"pg_name": "2", "pg_desc": "DATA_PARALLEL_GROUP", "ranks": [2, 3]},
    )
    *_, record = read(tmp_path, as_kineto(document(groups=groups)))
    assert isinstance(record, OpTimings)
    assert record.coordinates == {"pp": 1, "dp": 1}


def test_a_rank_with_a_file_for_each_of_its_steps_is_one_worker(tmp_path: Path) -> None:
    """A schedule that repeats writes a file a cycle."""
    whole = document()
    step = [[event for event in whole["traceEvents"] if event["name"] != f"ProfilerStep#{other}"] for other in (3, 4)]
    for number, events in enumerate(step):
        (tmp_path / f"rank3.{number}.json").write_text(as_kineto(whole | {"traceEvents": events}))
    records = [one for one in read_paths([tmp_path]) if isinstance(one, OpTimings)]
    table = tabulate(records)
    assert len(records) == 2
    assert (len(table.workers), table.steps.tolist()) == (1, [3, 4])


def test_without_communication_a_gap_may_be_a_wait(tmp_path: Path) -> None:
    """So that only what operations take counts."""
    whole = document(extra={3: 30.0})
    seen = ("gloo", "c10d")
    whole["traceEvents"] = [event for event in whole["traceEvents"] if not event["name"].startswith(seen)]
    assert parts(read(tmp_path, as_kineto(whole))[-1])["forward-compute"][0] == pytest.approx(0.020)
    assert parts(read(tmp_path, as_kineto(document(extra={3: 30.0})))[-1])["forward-compute"][0] == pytest.approx(0.050)


@pytest.mark.parametrize("spoilt", ['{"ph": "X", "name": "a"b"}', '{"ph": "X" "ts": 1}', "nonsense", '{"name": "\n"}'])
def test_an_event_that_is_no_json_costs_itself(tmp_path: Path, spoilt: str) -> None:
    """Those behind it are read, and it is counted."""
    text = as_kineto(document())
    expected = parts(read(tmp_path, text)[-1])
    middle = text.index(",\n    {", len(text) // 2)
    *_, record, unread = read(tmp_path, f"{text[:middle]},\n    {spoilt}{text[middle:]}")
    assert parts(record) == expected
    assert isinstance(unread, Unread)
    assert unread.reason.startswith("1 events are no JSON")


def test_a_trace_that_is_cut_is_used_up_to_there(tmp_path: Path) -> None:
    """A job that was killed while it wrote leaves one."""
    text = as_kineto(document())
    *_, record, unread = read(tmp_path, text[: len(text) * 2 // 3])
    assert parts(record)["forward-compute"]
    assert isinstance(unread, Unread)
    assert "ends before" in unread.reason


HOSTILE = {
    "nothing": "",
    "no number": '"ts": "1", "dur": [1], "name": "aten::mm"',
    "not finite": '"ts": NaN, "dur": Infinity, "name": "aten::mm"',
    "too large": '"ts": 1e400, "dur": 1e308, "name": "aten::mm"',
    "backwards": '"ts": 5, "dur": -7, "name": "aten::mm"',
    "digits": f'"ts": {"7" * 5_000}, "dur": 1, "name": "aten::mm"',
    "deep": f'"ts": 1, "dur": 1, "name": "aten::mm", "args": {"[" * 5_000}{"]" * 5_000}',
    "a step of no number": '"ts": 1, "dur": 1, "cat": "user_annotation", "name": "ProfilerStep#99999999999999999999"',
    "half a pair": '"ts": 1, "dur": 1, "name": "\\ud800"',
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_event_changes_nothing(tmp_path: Path, hostile: str) -> None:
    """Whatever it states, the steps are what the others say."""
    text = as_kineto(document())
    expected = parts(read(tmp_path, text)[-1])
    begin = '"traceEvents": ['
    event = f'{{"ph": "X", "cat": "cpu_op", {hostile}}}' if hostile else "{}"
    records = read(tmp_path, text.replace(begin, f"{begin}{event},"))
    assert [parts(one) for one in records if isinstance(one, OpTimings)] == [expected]


@pytest.mark.parametrize(
    "info", ["[]", '{"rank": -1}', '{"rank": true, "world_size": 1e9}', '{"rank": 1e3, "pg_config": 7}']
)
def test_hostile_places_are_none(tmp_path: Path, info: str) -> None:
    """Then the name gives the rank."""
    whole = document() | {"distributedInfo": json.loads(info), "host_name": ["x"], "deviceProperties": [[]]}
    (record,) = read(tmp_path, as_kineto(whole))
    assert isinstance(record, OpTimings)
    assert (record.rank, record.node, record.device_model) == (3, None, "")


def test_what_is_beyond_the_bounds_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trace of hours is cut, and says so."""
    monkeypatch.setattr(gathered, "MOST_SPANS", 8)
    *_, unread = read(tmp_path, as_kineto(document()))
    assert isinstance(unread, Unread)
    assert unread.outcome == "limit"


def test_pieces_of_any_size_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """No event is lost where one piece ends and the next begins, nor a letter of several bytes."""
    whole = document()
    whole["traceEvents"].append(span("α€𝄞", 1.0, 1.0))
    data = json.dumps(whole, ensure_ascii=False).encode()
    expected = list(json_stream.JsonStream(io.BytesIO(data), "traceEvents").members())
    monkeypatch.setattr(json_stream, "LONGEST", 1_000)
    for size in (1, 7, 100, 4_096):
        monkeypatch.setattr(json_stream, "CHUNK_BYTES", size)
        stream = json_stream.JsonStream(io.BytesIO(data), "traceEvents")
        assert list(stream.members()) == expected
        assert not stream.spoilt
        assert not stream.cut


def test_only_a_profilers_trace_is_taken_for_one() -> None:
    """A dump of the Flight Recorder describes the same groups, and is its own reader's."""
    groups = ({"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1, 2, 3]},)
    dump = {"comm_lib_version": "2.27.5", "pg_config": {"0": {"desc": "default_pg"}}, "entries": []}
    known = [
        (as_kineto(document(groups=groups)), "kineto_trace"),
        (json.dumps(document()["traceEvents"]), "kineto_trace"),
        (json.dumps(dump), "flight_recorder_json"),
    ]
    for text, name in known:
        format = recognise(text.encode()[: 1 << 16], "trace_0.json")
        assert format is not None
        assert format.name == name


def test_threads_beyond_the_steps_own_are_no_computation() -> None:
    """A loader's thread pins memory beside it."""
    found = gathered.KinetoSpans()
    for event in (
        span("ProfilerStep#1", 0.0, 100.0, category="user_annotation"), span("aten::mm", 0.0, 60.0),
        span("aten::pin_memory", 50.0, 50.0, thread=MAIN + 9),
    ):  # fmt: skip
        found.add(event)
    assert [(one.name, round(one.seconds * 1e6)) for one in parts_of(found)] == [("forward-compute", 60)]


REAL = """
import sys, torch, torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters())
loader = torch.utils.data.DataLoader(torch.randn(160, 64), batch_size=16)
def export(prof):
    prof.export_chrome_trace(f"{sys.argv[1]}/trace.json.gz")
when = schedule(wait=1, warmup=2, active=4, repeat=1)
with profile(activities=[ProfilerActivity.CPU], schedule=when, on_trace_ready=export) as prof:
    for batch in loader:
        model(batch).square().mean().backward()
        optimizer.step()
        prof.step()
"""


@pytest.mark.system
def test_this_torch_s_own_trace_is_read(tmp_path: Path) -> None:
    """What the installed torch writes of a job on gloo: its rank, and parts that fill each of its steps."""
    needs_torch("no real trace can be made here")
    subprocess.run([sys.executable, "-c", REAL, str(tmp_path)], check=True, capture_output=True, timeout=120)
    placement, record = read_paths([tmp_path / "trace.json.gz"])
    assert isinstance(placement, Placement)
    assert placement.world_size == 1
    assert isinstance(record, OpTimings)
    assert record.rank == 0
    found = parts(record)
    assert set(found) == {"forward-compute", "backward-compute", "optimizer-compute", "comm", "data-loader"}
    events = json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))["traceEvents"]
    steps = {event["name"]: event["dur"] / 1e6 for event in events if event["name"].startswith("ProfilerStep#")}
    assert sorted(steps) == [f"ProfilerStep#{number}" for number in (3, 4, 5, 6)]
    assert sum(map(sum, found.values())) == pytest.approx(sum(steps.values()), rel=1e-3)


def test_the_reader_is_listed() -> None:
    """With the command that makes such a file."""
    assert any(one.name == "kineto_trace" and "export_chrome_trace" in one.made_by for one in registry())


def test_an_empty_list_of_events_has_no_steps() -> None:
    """And nothing of the reader fails."""
    data = b'{"schemaVersion": 1, "traceEvents": []}'
    format = recognise(data, "x.json")
    assert format is not None
    with pytest.raises(ValueError, match="no steps"):
        list(format.read(Input("x.json", io.BytesIO(data), data)))
