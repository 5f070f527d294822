"""Timings of collectives and transfers of a job, as NCCL Inspector would write them; what is slow is given.

Ranks are numbered tensor parallel first, then pipeline stage, then replica. In each step a rank receives from the stage
before, computes in layers with a tensor parallel all-reduce after each, sends to the next stage, and reduces gradients with
the replicas of its place. A collective ends on all members together: what a member's record is longer than the transfer is
how long it waited. Each rank's clock has an origin of its own.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

RankFactor = Callable[[int, int], float]
"""Rank and step → how many times as long as usual."""
PathFactor = Callable[[int, int], float]
"""Sender and receiver, or the first and the last member of a communicator → how many times as long a transfer takes."""
TENSOR_BYTES, STAGE_BYTES, GRADIENT_BYTES = 1 << 24, 1 << 22, 1 << 28


def as_usual(_one: int, _other: int) -> float:
    """Return that nothing is slow."""
    return 1.0


@dataclass(frozen=True)
class CollectiveJob:
    """A job and what is slow in it. ``verbose``: the plugin writes when operations began."""

    tensor: int = 2
    stages: int = 1
    replicas: int = 4
    ranks_per_node: int = 4
    layers: int = 4
    steps: int = 30
    seed: int = 0
    layer_seconds: float = 0.02
    jitter: float = 0.02
    compute: RankFactor = as_usual
    path: PathFactor = as_usual
    since: int = 0  # the step from which paths are as ``path`` says
    verbose: bool = True
    left_out: frozenset[int] = frozenset()  # ranks without records
    draws: random.Random = field(init=False)

    def __post_init__(self) -> None:
        """Seed the draws."""
        object.__setattr__(self, "draws", random.Random(self.seed))

    @property
    def ranks(self) -> int:
        """Return how many ranks there are."""
        return self.tensor * self.stages * self.replicas

    def node(self, rank: int) -> str:
        """Return a rank's host."""
        return f"gpu-{rank // self.ranks_per_node:04d}"

    def lines(self) -> dict[int, list[dict[str, Any]]]:
        """Return the objects that each rank's plugin writes, one an operation."""
        run = _Run(self)
        for step in range(self.steps):
            run.step(step)
        return {rank: lines for rank, lines in run.lines.items() if rank not in self.left_out}

    def files(self) -> Iterator[tuple[str, str]]:
        """Yield the name and the text of each rank's file."""
        for rank, lines in self.lines().items():
            yield f"{self.node(rank)}-pid{4000 + rank}.log", "".join(json.dumps(line) + "\n" for line in lines)


class _Run:
    """The job while it runs: each rank's own instant, and what was written."""

    def __init__(self, job: CollectiveJob) -> None:
        self.job, self.draws = job, job.draws
        self.at = [0.0] * job.ranks
        self.ahead = [self.draws.uniform(-300, 300) for _ in range(job.ranks)]
        self.lines: dict[int, list[dict[str, Any]]] = {rank: [] for rank in range(job.ranks)}
        self.sequences: dict[tuple[str, str, int], int] = {}
        self.now = 0

    def step(self, step: int) -> None:
        """Run one step: stage by stage, then the gradients."""
        job, self.now = self.job, step
        for stage in range(job.stages):
            for replica in range(job.replicas):
                members = [self._rank(tensor, stage, replica) for tensor in range(job.tensor)]
                self._stage(members, stage, step)
        for stage in range(job.stages):
            for tensor in range(job.tensor):
                members = [self._rank(tensor, stage, replica) for replica in range(job.replicas)]
                self._together("dp", members, "AllReduce", GRADIENT_BYTES, 0.01)

    def _rank(self, tensor: int, stage: int, replica: int) -> int:
        return (replica * self.job.stages + stage) * self.job.tensor + tensor

    def _stage(self, members: list[int], stage: int, step: int) -> None:
        job = self.job
        if stage:
            for rank in members:
                self._transfer(rank - job.tensor, rank)
        for _ in range(job.layers):
            for rank in members:
                self.at[rank] += job.layer_seconds * job.compute(rank, step) * self._noise()
            self._together("tp", members, "AllReduce", TENSOR_BYTES, 0.001)

    def _noise(self) -> float:
        return max(self.draws.gauss(1.0, self.job.jitter), 0.5)

    def _factor(self, one: int, other: int) -> float:
        return self.job.path(one, other) if self.now >= self.job.since else 1.0

    def _together(self, kind: str, members: list[int], operation: str, size: int, seconds: float) -> None:
        if len(members) < 2:
            return
        ends = max(self.at[rank] for rank in members) + seconds * self._factor(members[0], members[-1]) * self._noise()
        name = f"{kind}-{members[0]}-{members[-1]}"
        for place, rank in enumerate(members):
            perf = {
                "coll": operation,
                "coll_msg_size_bytes": size,
                "coll_busbw_gbs": 1.0,
                "coll_timing_source": "kernel_gpu",
            }
            self._write(rank, name, place, len(members), "coll", perf, ends)

    def _transfer(self, source: int, target: int) -> None:
        ends = max(self.at[source], self.at[target]) + 0.002 * self._factor(source, target) * self._noise()
        for rank, operation, peer in ((source, "Send", target), (target, "Recv", source)):
            perf = {"p2p": operation, "p2p_peer": peer, "p2p_msg_size_bytes": STAGE_BYTES, "p2p_busbw_gbs": 1.0}
            self._write(rank, "pp", rank, self.job.ranks, "p2p", perf, ends)

    def _write(self, rank: int, name: str, place: int, size: int, kind: str, perf: dict[str, Any], ends: float) -> None:
        key = (name, kind, rank)
        self.sequences[key] = self.sequences.get(key, 0) + 1
        began, self.at[rank] = self.at[rank], ends
        perf = {**perf, f"{kind}_sn": self.sequences[key], f"{kind}_exec_time_us": max(1e6 * (ends - began), 1.0)}
        clock_us = int(1e6 * (1_795_240_800 + self.ahead[rank]))
        if self.job.verbose:
            perf["event_trace_ts"] = {f"{kind}_start_ts": clock_us + int(1e6 * began)}
        self.lines[rank].append({
            "header": {"id": name, "rank": place, "n_ranks": size, "nnodes": 1},
            "metadata": {
                "inspector_output_format_version": "v5.1", "hostname": self.job.node(rank), "pid": 4000 + rank,
                "dump_timestamp_us": clock_us + 10_000_000_000,
            },
            f"{kind}_perf": perf,
        })  # fmt: skip
