"""Few bytes on the wire that unpack to as much as the bounds of a batch allow, and an engine that meets them.

    python -m tests.support.floods KIND [BODIES]

prints the bytes on the wire and the most memory that the engine's part took, as JSON.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from analyzers.incidents.messages import EngineTick, Received
from analyzers.incidents.state import EngineState, EvidenceLimits
from analyzers.incidents.step import step
from collectors.records import (
    CollectorReport,
    Coverage,
    Device,
    FlightRecorderDump,
    Frame,
    Group,
    KernelEvent,
    LogEvent,
    Members,
    Placement,
    RasCommunicator,
    RasRank,
    Record,
    Ring,
    StackDump,
    Steps,
    Thread,
    block,
)
from service.api.inspection import TooMuch, inspect
from service.packaged_knowledge import load

AT, NODE, JOB = 1_795_230_847.0, "gpu-0666", "llama"
BODIES, BODY_BYTES = 40, 60 << 20
TEXT = "x" * 65_536
_MINE = {"node": NODE, "job": JOB, "attempt": 1}


def _texts(turn: int) -> Iterator[Record]:
    for number in range(BODY_BYTES // 65_600):
        yield KernelEvent(event=f"e{turn % 8}", text=TEXT, code=number, **_MINE)  # type: ignore[arg-type]


def _large_texts(turn: int) -> Iterator[Record]:
    for number in range(BODY_BYTES // 500_000):
        yield KernelEvent(event=f"e{turn}", text="x" * 500_000, code=number, **_MINE)  # type: ignore[arg-type]


def _logs(turn: int) -> Iterator[Record]:
    frames = (Frame("f" * 4_000, "g" * 4_000),) * 32
    for number in range(BODY_BYTES // 400_000):
        yield LogEvent(event="traceback", text=TEXT, frames=frames, source=f"{turn}.{number}", at=AT, **_MINE)  # type: ignore[arg-type]


def _ranks(turn: int) -> Iterator[Record]:
    for number in range(30_000):
        yield Steps(
            rank=turn * 30_000 + number, told_by="probe", count=1, columns={"step": bytes(8), "at": bytes(8)}, **_MINE
        )  # type: ignore[arg-type]


def _threads(turn: int) -> Iterator[Record]:
    for number in range(12):
        yield StackDump(pid=turn * 12 + number, threads=(Thread(),) * 4_000, rank=number % 8, **_MINE)  # type: ignore[arg-type]


def _counts(turn: int) -> Iterator[Record]:
    for number in range(4):
        ranks = tuple(RasRank(rank=rank + 1_000) for rank in range(8_000))
        yield RasCommunicator(hash=f"{turn}.{number}", size=8, ranks=ranks, **_MINE)  # type: ignore[arg-type]


def _lists(turn: int) -> Iterator[Record]:
    columns = {"entered_ns": bytes(8), "left_ns": b"\xff" * 8, "collective_seq": bytes(8)}
    for number in range(100):
        groups = (Group("", "", Members.of([turn * 100 + number] * 120_000)),)
        rank = (turn * 100 + number) % 4_096
        yield Ring(rank=rank, at=AT + turn, count=1, columns=columns, groups=groups, **_MINE)  # type: ignore[arg-type]


def _dumps(turn: int) -> Iterator[Record]:
    for number in range(12):
        count = 500_000
        yield FlightRecorderDump(
            rank=(turn * 12 + number) % 4_096, count=count, columns={"record_id": bytes(8 * count)}, **_MINE
        )  # type: ignore[arg-type]


def _devices(turn: int) -> Iterator[Record]:
    attributes = {f"a{number}": "y" * 4_000 for number in range(200)}
    for number in range(70):
        yield Device(type="gpu", id=f"{turn}.{number}", attributes=attributes, **_MINE)  # type: ignore[arg-type]


def _jobs(turn: int) -> Iterator[Record]:
    for number in range(64):
        ranks = Members.of(range(4_096))
        yield Placement(node=NODE, job=f"job-{turn % 4}.{number}", attempt=1, ranks=ranks, nodes=(NODE,) * 4_096)


def _accounts(turn: int) -> Iterator[Record]:
    reports = tuple(CollectorReport(name=f"{turn}.{number}") for number in range(4_000))
    for _ in range(8):
        yield Coverage(collectors=reports, **_MINE)  # type: ignore[arg-type]


FLOODS: dict[str, Callable[[int], Iterator[Record]]] = {
    "texts": _texts, "large texts": _large_texts, "logs": _logs, "ranks": _ranks, "threads": _threads, "counts": _counts,
    "lists": _lists, "dumps": _dumps, "devices": _devices, "jobs": _jobs, "accounts": _accounts,
}  # fmt: skip


def play(kind: str, bodies: int) -> dict[str, object]:
    """Send so many bodies of a kind to an engine; return what they were on the wire, and what it took."""
    state = EngineState(load(), limits=EvidenceLimits())
    wire = taken = 0
    begin = _resident()
    for turn in range(bodies):
        data = block.encode(FLOODS[kind](turn), pack=True)
        wire += len(data)
        try:
            inspect(data, NODE, most_records=100_000, largest_bytes=64 << 20)
        except TooMuch:
            continue
        taken += 1
        decoded = block.decode_counting(data)
        at = AT + turn
        step(
            state,
            Received(sequence=turn + 1, received_at=at, node=NODE, records=tuple(decoded.records), sent_at=at),
            at,
        )
        del decoded
        step(state, EngineTick(), at)
    return {
        "kind": kind, "bodies": bodies, "taken": taken, "wire_bytes": wire, "evidence_bytes": state.evidence_bytes,
        "shed_records": state.shed_records, "left_out": state.failed, "held_bytes": _resident() - begin,
        "most_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }  # fmt: skip


def _resident() -> int:
    return int(Path("/proc/self/statm").read_bytes().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    print(json.dumps(play(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else BODIES)))
