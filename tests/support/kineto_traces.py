"""Traces of torch.profiler as Kineto writes them, of a job of several ranks that wait for one another once a step.

Times are made, names and fields are Kineto's. Of the host: a CPU job on gloo, whose collectives run in a thread of their own.
Of the device: a CUDA job on NCCL, whose host runs ahead.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from analyzers.model.verdict import Verdict
from collectors.files.reading import read_paths
from tests.support.op_traces import judged

Event = dict[str, Any]
MAIN, GLOO, STREAM, NCCL_STREAM = 100, 101, 7, 20
MS = 1_000.0  # microseconds


@dataclass(frozen=True)
class KinetoJob:
    """Milliseconds a step, by rank where they differ. ``extra``: of Python code before the forward, in no operation."""

    world: int = 4
    ranks_a_node: int = 1
    steps: int = 10
    forward: float = 20.0
    backward: float = 40.0
    optimizer: float = 2.0
    transfer: float = 5.0
    times: dict[int, float] = field(default_factory=dict)  # how many times as long a rank computes
    loader: dict[int, float] = field(default_factory=dict)
    usual_loader: float = 0.5
    extra: dict[int, float] = field(default_factory=dict)
    offset_seconds: dict[int, float] = field(default_factory=dict)  # of a rank's clock
    device: bool = False
    jitter: float = 0.01
    seed: int = 0
    collective: str = "all_reduce"
    groups: tuple[Event, ...] = ()

    def ranks(self) -> dict[int, Event]:
        """Return each rank's trace."""
        draws = Random(self.seed)
        events: dict[int, list[Event]] = {rank: list(_named_threads()) for rank in range(self.world)}
        at = 0.0
        for step in range(3, 3 + self.steps):
            at = self._step(step, at, events, draws)
        return {rank: self._document(rank, events[rank]) for rank in events}

    def _step(self, step: int, at: float, events: dict[int, list[Event]], draws: Random) -> float:
        lengths = {}
        for rank in range(self.world):
            slow = self.times.get(rank, 1.0) * (1 + self.jitter * draws.gauss(0, 1))
            parts = (
                self.loader.get(rank, self.usual_loader), self.extra.get(rank, 0.0), self.forward * slow,
                self.backward * slow, self.optimizer * slow,
            )  # fmt: skip
            lengths[rank] = tuple(part * MS for part in parts)
        begun = {rank: at + sum(parts[:4]) for rank, parts in lengths.items()}
        done = max(begun.values()) + self.transfer * MS
        end = done + max(parts[4] for parts in lengths.values())
        for rank, parts in lengths.items():
            origin = self.offset_seconds.get(rank, 0.0) * 1e6 + 4.5e12
            write = _device_step if self.device else _host_step
            for event in write(step, at, parts, begun[rank], done, end, self.collective):
                events[rank].append(event | {"ts": round(event["ts"] + origin, 3), "dur": round(event["dur"], 3)})
        return end

    def _document(self, rank: int, events: list[Event]) -> Event:
        info: Event = {"backend": "nccl" if self.device else "gloo", "rank": rank, "world_size": self.world}
        if self.groups:
            info["pg_config"] = [group for group in self.groups if rank in group["ranks"]]
        devices = [{"id": 0, "name": "NVIDIA H100", "numSms": 132}] if self.device else []
        return {
            "schemaVersion": 1, "deviceProperties": devices, "distributedInfo": info,
            "host_name": f"gpu-{rank // self.ranks_a_node:04d}",
            "displayTimeUnit": "ms", "baseTimeNanoseconds": 0, "traceEvents": events, "traceName": f"{rank}.json",
        }  # fmt: skip

    def write(self, folder: Path, without: Sequence[int] = ()) -> Path:
        """Write a file a rank, and return their folder."""
        folder.mkdir(exist_ok=True)
        for rank, document in self.ranks().items():
            if rank not in without:
                (folder / f"rank{rank}.{4000 + rank}.pt.trace.json").write_text(as_kineto(document))
        return folder

    def verdict(self, folder: Path, without: Sequence[int] = ()) -> Verdict:
        """Write them, read them and judge them."""
        return judged(read_paths([self.write(folder, without)]))


def as_kineto(document: Event) -> str:
    """Return a trace in lines, an event after the other, as Kineto writes it."""
    return json.dumps(document, indent=2)


def span(name: str, begin: float, took: float, *, category: str = "cpu_op", thread: int = MAIN, **args: Any) -> Event:
    """Return one event that took time."""
    place = {"pid": 0, "tid": thread} if category in ("kernel", "gpu_user_annotation") else {"pid": 99, "tid": thread}
    return {"ph": "X", "cat": category, "name": name, **place, "ts": begin, "dur": took, "args": args}


def _named_threads() -> Iterator[Event]:
    for thread, name in ((MAIN, "thread 100 (python)"), (GLOO, "thread 101 (pt_gloo_runloop)")):
        yield {"ph": "M", "name": "thread_name", "pid": 99, "tid": thread, "ts": 0, "dur": 0, "args": {"name": name}}


def _host_step(
    step: int, at: float, parts: tuple[float, ...], begun: float, done: float, end: float, collective: str
) -> Iterator[Event]:
    loader, extra, forward, backward, optimizer = parts
    annotation = {"category": "user_annotation"}
    yield span(f"gloo:{collective}", begun, done - begun, thread=GLOO, **annotation)
    yield span(f"ProfilerStep#{step}", at, end - at, **annotation)
    yield span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, loader, **annotation)
    yield span("aten::stack", at, loader / 2)
    begin = at + loader + extra
    yield span("DistributedDataParallel.forward", begin, forward, **annotation)
    for half in (0, 1):
        yield span("aten::linear", begin + half * forward / 2, forward / 2)
        yield span("aten::addmm", begin + half * forward / 2, forward / 3)
    for half in (0, 1):
        yield span(
            "autograd::engine::evaluate_function: AddmmBackward0", begin + forward + half * backward / 2, backward / 2
        )
        yield span("AddmmBackward0", begin + forward + half * backward / 2, backward / 3)
    yield span(f"c10d::{collective}_", begun - backward / 10, backward / 1000)
    yield span("Optimizer.step#SGD.step", done, optimizer, **annotation)
    yield span("aten::add_", done, optimizer)


def _device_step(
    step: int, at: float, parts: tuple[float, ...], begun: float, done: float, end: float, collective: str
) -> Iterator[Event]:
    loader, extra, forward, backward, optimizer = parts
    host = max(at - 3 * MS, 0.0)  # the host runs ahead
    yield span(f"ProfilerStep#{step}", host, end - at, category="user_annotation")
    yield span("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at, loader, category="user_annotation")
    yield span("aten::linear", host, 1 * MS)
    kernel = {"category": "kernel", "thread": STREAM}
    begin = at + loader + extra
    yield span(f"ProfilerStep#{step}", at, end - at, category="gpu_user_annotation", thread=STREAM)
    for quarter in range(4):
        yield span("ampere_bf16_gemm", begin + quarter * (forward + backward) / 4, (forward + backward) / 4, **kernel)
    called = {"Collective name": collective}
    name = f"ncclDevKernel_{'SendRecv' if collective in ('send', 'all_to_allv') else 'AllReduce_Sum_bf16_RING_LL'}"
    yield span(name, begun - backward / 2, done - begun + backward / 2, category="kernel", thread=NCCL_STREAM, **called)
    yield span("Optimizer.step#AdamW.step", done, optimizer, category="gpu_user_annotation", thread=STREAM)
    yield span("multi_tensor_apply_kernel", done, optimizer, **kernel)
