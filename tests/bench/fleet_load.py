"""Agents of a fleet as a service meets them: a shipment every ten seconds from each node, at a moment of its own.

    python -m tests.bench.fleet_load URL --nodes 2048 --seconds 60 [--rows]

Every node keeps one connection for shipments and one for the long poll of commands. What a shipment holds is what an
agent with default rates sends of a node with eight GPUs and eight ranks. ``--rows``: the same readings as a JSON object a
value, for the naive control. Prints one JSON object: acknowledgements, their delays, what was refused.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import statistics
import time
from array import array
from collections import Counter
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from collectors.records import (
    CollectorReport,
    Coverage,
    Frame,
    Members,
    Placement,
    Record,
    Samples,
    StackDump,
    Thread,
    block,
)

GPUS = 8
SHIP_SECONDS = 10.0
POLL_SECONDS = 25
START_SECONDS = 20.0  # over which the fleet comes up; not measured
JOB_NODES = 128  # of one job: 1,024 GPUs
GPU_GAUGES = tuple(f"gauge_{n}" for n in range(24))
GPU_COUNTERS = tuple(f"counter_{n}_total" for n in range(28))
PORT_COUNTERS = tuple(f"port_{n}_total" for n in range(40))
HOST_GAUGES = tuple(f"host_{n}" for n in range(40))
PROCESS_GAUGES = ("cpu_seconds", "resident_bytes", "threads")


@dataclass
class Tally:
    """What the fleet has seen of its service."""

    delays_seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    measuring_from: float = 0.0


class Node:
    """One node of eight GPUs."""

    def __init__(self, number: int) -> None:
        self.name, self.number = f"gpu-{number:05d}", number
        self.random = random.Random(number)
        self.batch = 0
        self.devices = tuple(f"GPU-{number:05d}-{gpu}" for gpu in range(GPUS))
        self.ports = tuple(f"mlx5_{port}/1" for port in range(GPUS))
        self.ranks = [number % JOB_NODES * GPUS + gpu for gpu in range(GPUS)]

    def records(self, at: float) -> list[Record]:
        """Return what an agent sends of these ten seconds; once a minute also who runs, their stacks and its account."""
        self.batch += 1
        records: list[Record] = [
            self._samples(at, "gpu", self.devices, GPU_GAUGES),
            self._samples(at, "gpu", self.devices, GPU_COUNTERS),
            self._samples(at, "infiniband", self.ports, PORT_COUNTERS),
            self._samples(at, "host", ("",), HOST_GAUGES),
            self._samples(at, "process", tuple(map(str, self.ranks)), PROCESS_GAUGES),
        ]
        if self.batch % 6 == 1:
            records += [self._placement(at), self._account(at)]
        return records + [self._stack(at, rank) for rank in self.ranks[self.batch % 6 :: 6]]

    def _samples(self, at: float, scope: str, devices: tuple[str, ...], metrics: tuple[str, ...]) -> Samples:
        count, counter = len(devices) * len(metrics), metrics[0].endswith("_total")
        # Readings as readings are: most counters stand still, gauges wander by a little and have few digits.
        values = (
            array("q", [1000 + n + self.batch * (n % 5 == 0) for n in range(count)])
            if counter
            else array("f", [round(300 + self.random.gauss(0, 4), 1) for _ in range(count)])
        )
        return Samples(
            node=self.name, source=scope, at=at, scope=scope, type="<i8" if counter else "<f4", devices=devices,
            metrics=metrics, ticks=array("d", [at]).tobytes(), monotonic_ticks=array("d", [at - 1e9]).tobytes(),
            values=values.tobytes(),
        )  # fmt: skip

    def _placement(self, at: float) -> Placement:
        return Placement(
            node=self.name, source="placement", at=at, job=f"job-{self.number // JOB_NODES}", attempt=1,
            ranks=Members.of(self.ranks), nodes=(self.name,) * GPUS, pids=tuple(range(4000, 4000 + GPUS)),
            world_size=JOB_NODES * GPUS, local_ranks=tuple(range(GPUS)), launcher="torchrun",
        )  # fmt: skip

    def _account(self, at: float) -> Coverage:
        names = (
            "dcgm",
            "fabric",
            "gpu",
            "host",
            "inspector",
            "kernel",
            "placement",
            "process",
            "ras",
            "recorder",
            "stacks",
        )
        reports = tuple(
            CollectorReport(name=name, every_seconds=10.0, runs=6, records=6, seconds=0.02) for name in names
        )
        return Coverage(node=self.name, at=at, agent_version="0.1.0", started_at=at - 3600, collectors=reports)

    def _stack(self, at: float, rank: int) -> StackDump:
        frames = tuple(Frame(f"function_{n}", f"/srv/train/module_{n % 7}.py", 100 + n) for n in range(30))
        threads = (Thread(frames=frames, main=True), *(Thread(frames=frames[:6]) for _ in range(4)))
        return StackDump(
            node=self.name, source="stacks", at=at, rank=rank, job=f"job-{self.number // JOB_NODES}", attempt=1,
            tool="py-spy", pid=4000 + rank % GPUS, threads=threads,
        )  # fmt: skip


def as_rows(records: list[Record]) -> bytes:
    """Return samples as people would send them first: a JSON object a value."""
    rows = []
    for record in records:
        if isinstance(record, Samples):
            flat = array("f" if record.type == "<f4" else "q", record.values)
            names = [(device, metric) for device in record.devices for metric in record.metrics]
            rows += [
                {
                    "node": record.node,
                    "at": record.at,
                    "device": device,
                    "metric": f"{record.scope}.{metric}",
                    "value": value,
                }
                for (device, metric), value in zip(names, flat, strict=True)
            ]
    return json.dumps(rows).encode()


class Connection:
    """One kept connection; reads nothing of an answer but its status and length.

    It comes from its node's own address, as in a real fleet: the service bounds the connections of one address.
    """

    def __init__(self, host: str, port: int, node: int) -> None:
        self.host, self.port = host, port
        self.from_address = (f"127.1.{node >> 8}.{node & 255}", 0) if host == "127.0.0.1" else None
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, head: str, body: bytes = b"") -> int:
        """Send a request and return the answer's status."""
        if self.streams is None:
            self.streams = await asyncio.open_connection(self.host, self.port, local_addr=self.from_address)
        reader, writer = self.streams
        try:
            writer.write(f"{head}\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = next(
                int(line[15:]) for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:")
            )
            await reader.readexactly(length)
            return int(answer[9:12])
        except BaseException:
            writer.close()
            self.streams = None
            raise


async def ship(node: Node, connection: Connection, tally: Tally, until: float, rows: bool) -> None:
    """Ship every ten seconds, at this node's own moment of them."""
    due = time.monotonic() + node.random.uniform(0, START_SECONDS)
    while due < until:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        at = time.time()
        records = node.records(at)
        body = as_rows(records) if rows else block.encode(records, pack=True)
        kind = "application/json" if rows else "application/vnd.faulthound.block"
        head = (
            f"POST {'/rows' if rows else '/v1/records'} HTTP/1.1\r\nContent-Type: {kind}\r\nFaulthound-Node: {node.name}\r\n"
            f"Faulthound-Batch: {node.batch:012d}-{node.number:08x}\r\nFaulthound-Sent-At: {at:.6f}"
        )
        started = time.monotonic()
        try:
            status = await connection.call(head, body)
        except (OSError, EOFError, StopIteration, ValueError) as error:
            tally.failures[type(error).__name__] += 1
        else:
            if started >= tally.measuring_from:
                tally.delays_seconds.append(time.monotonic() - started)
                tally.statuses[status] += 1
                tally.bytes += len(body)
        due += SHIP_SECONDS


async def poll(node: Node, connection: Connection, tally: Tally, until: float) -> None:
    """Wait for commands, as agents do all the time."""
    await asyncio.sleep(node.random.uniform(0, START_SECONDS))
    while time.monotonic() < until:
        head = f"POST /v1/nodes/{node.name}/commands/take?wait_seconds={POLL_SECONDS} HTTP/1.1"
        try:
            await connection.call(head)
        except (OSError, EOFError, StopIteration, ValueError) as error:
            tally.failures[f"poll {type(error).__name__}"] += 1
            await asyncio.sleep(1.0)


async def run(url: str, nodes: int, seconds: float, rows: bool) -> Tally:
    """Let a fleet report for so long after it has come up."""
    address, tally = urlsplit(url), Tally()
    host, port = address.hostname or "127.0.0.1", address.port or 80
    tally.measuring_from = time.monotonic() + START_SECONDS
    until = tally.measuring_from + seconds
    fleet = [Node(number) for number in range(nodes)]

    def connection(node: Node) -> Connection:
        return Connection(host, port, node.number)

    tasks = [asyncio.create_task(ship(node, connection(node), tally, until, rows)) for node in fleet]
    polls = [] if rows else [asyncio.create_task(poll(node, connection(node), tally, until)) for node in fleet]
    await asyncio.gather(*tasks)
    for task in polls:
        task.cancel()
    return tally


def main() -> None:
    """Load a service and print what it was like."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--nodes", type=int, default=2048)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rows", action="store_true")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    tally = asyncio.run(run(options.url, options.nodes, options.seconds, options.rows))
    delays = sorted(tally.delays_seconds) or [float("nan")]
    print(json.dumps({
        "nodes": options.nodes,
        "acknowledged": tally.statuses[202],
        "other_answers": {str(status): count for status, count in tally.statuses.items() if status != 202},
        "failures": dict(tally.failures),
        "bytes_per_shipment": round(tally.bytes / max(1, len(tally.delays_seconds))),
        "p50_ms": round(statistics.median(delays) * 1e3, 1),
        "p99_ms": round(delays[int(len(delays) * 0.99)] * 1e3, 1),
        "longest_ms": round(delays[-1] * 1e3, 1),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
