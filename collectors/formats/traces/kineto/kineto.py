"""A trace of torch.profiler, one file a rank: from events to a few operations of each step."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from collectors.formats import Damaged, Input, reader
from collectors.formats.traces.kineto.gathered import MOST_SPANS, KinetoSpans
from collectors.formats.traces.kineto.json_stream import JsonStream
from collectors.formats.traces.kineto.parts import parts
from collectors.formats.traces.op_columns import LARGEST_COORDINATE, WorkerColumns
from collectors.records import Members, Placement, Record, Unread
from collectors.records.record import LARGEST_RANK, MOST_RANKS

EVENTS = "traceEvents"
MOST_EVENTS = 20_000_000
_HEADER = ("distributedInfo", "deviceProperties", "host_name")
_EVENT = re.compile(rb'"ph"\s?:\s?"[A-Za-z]"')
# Descriptions of groups by Megatron-LM and DeviceMesh: a rank's place in such a group is its coordinate.
_GROUPS = {
    "pipeline_model_parallel_group": "pp", "mesh_pp": "pp", "context_parallel_group": "cp", "mesh_cp": "cp",
    "data_parallel_group": "dp", "mesh_dp": "dp", "mesh_dp_shard": "dp",
}  # fmt: skip
_SHARED_NAMES = re.compile(r"localhost|\(none\)|$")
NO_STEPS = (
    "its trace has no steps: profile with schedule=torch.profiler.schedule(wait=1, warmup=2, active=10) and call "
    "prof.step() at the end of each step"
)
NO_KERNELS = (
    "its job computes on devices, and the trace has no kernels: the host's times are those of launches. Profile with "
    "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
)
NO_RANK = "its trace states no rank, and its name ends in none: call the files rank0.json, rank1.json, …"


def _sniff(head: bytes, _source: str) -> int:
    opening = head[:64].lstrip()[:1]
    if opening == b"{":
        known = b'"schemaVersion"' in head and (b'"distributedInfo"' in head or b'"deviceProperties"' in head)
        return 95 if known or f'"{EVENTS}"'.encode() in head else 0
    return 60 if opening == b"[" and _EVENT.search(head) and b'"ts"' in head else 0


@reader(
    "kineto_trace", made_by="torch.profiler: prof.export_chrome_trace(f'rank{rank}.json.gz')", sniff=_sniff,
    gives="what each rank ran in each step, and for how long",
)  # fmt: skip
def read(input: Input) -> Iterator[Record]:
    """Yield the rank's place and its operations, and what was left out."""
    stream, gathered, header = JsonStream(input.stream, EVENTS), KinetoSpans(), dict[str, Any]()
    events = 0
    for key, value in stream.members():
        if key == EVENTS:
            events += 1
            if events > MOST_EVENTS:
                gathered.over += 1
                break
            gathered.add(value)
        elif key in _HEADER:
            header[key] = value
    yield from _records(gathered, header, input)
    yield from _left_out(stream, gathered, input.source)


def _records(gathered: KinetoSpans, header: dict[str, Any], input: Input) -> Iterator[Record]:
    if not gathered.steps:
        raise Damaged(NO_STEPS)
    info = header.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    if not gathered.kernels.ends and (gathered.launches or info.get("backend") in ("nccl", "xccl", "hccl")):
        raise Damaged(NO_KERNELS)
    rank = _whole(info.get("rank"), LARGEST_RANK)
    rank = next((one for one in (rank, input.rank, input.trailing_number) if one is not None), None)
    if rank is None:
        raise Damaged(NO_RANK)
    host = header.get("host_name")
    named = isinstance(host, str) and _SHARED_NAMES.match(host) is None and host.isprintable()
    node = host[:200] if named and isinstance(host, str) else input.node
    worker = WorkerColumns(rank, _coordinates(info, rank), node, _device(header.get("deviceProperties")))
    for part in parts(gathered):
        worker.add(part.name, part.step, part.started, part.seconds, -1, -1, math.nan)
    if size := _whole(info.get("world_size"), MOST_RANKS):
        placed: dict[str, Any] = {"ranks": Members.of([rank]), "nodes": (node,)} if node else {}
        yield Placement(source=input.source, at=input.at, node=node, world_size=size, **placed)
    yield from worker.records(source=input.source, at=input.at, told_by="kineto")


def _coordinates(info: dict[str, Any], rank: int) -> dict[str, int]:
    """Return a rank's place in the groups that its trace describes."""
    found: dict[str, int] = {}
    groups = info.get("pg_config")
    for group in groups if isinstance(groups, list) else ():
        description = group.get("pg_desc") if isinstance(group, dict) else None
        members = group.get("ranks") if isinstance(group, dict) else None
        dimension = _GROUPS.get(description.lower()) if isinstance(description, str) else None
        if dimension and isinstance(members, list) and rank in members[: LARGEST_COORDINATE + 1]:
            found.setdefault(dimension, members.index(rank))
    return found


def _device(properties: Any) -> str:
    first = properties[0] if isinstance(properties, list) and properties else {}
    name = first.get("name") if isinstance(first, dict) else None
    return name[:200] if isinstance(name, str) else ""


def _whole(value: Any, most: int) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else None


def _left_out(stream: JsonStream, gathered: KinetoSpans, source: str) -> Iterator[Unread]:
    if gathered.over:
        reason = (
            f"{gathered.over:,} events are not read: {MOST_SPANS:,} that stand apart are the most: record fewer steps"
        )
        yield Unread(source=source, reason=reason, outcome="limit")
    if stream.spoilt:
        yield Unread(source=source, reason=f"{stream.spoilt:,} events are no JSON", outcome="damaged")
    if stream.cut:
        reason = "it ends before its list of events does: what came before is used"
        yield Unread(source=source, reason=reason, outcome="damaged")
