"""A plain training over gloo, data parallel or a pipeline of four stages in replicas: ``slowed_training.py FOLDER LAYOUT``.

It rests where a GPU job would wait for its device, so that ranks beside each other on few cores do not blur what is measured.
A file ``KIND-RANK`` or ``KIND-all`` in the folder makes its steps longer by a third or so, as long as it is there.
"""

from __future__ import annotations

import mmap
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

FOLDER, LAYOUT = Path(sys.argv[1]), sys.argv[2]
STAGES, MICROBATCHES, THREADS = 4, 4, 3
COMPUTE_SECONDS = {"ddp": 0.18, "pipeline": 0.04}  # of a step, or of one microbatch one way
BUSY_SECONDS = 0.003
BATCH_BYTES = 1 << 16
WIDTH = int(os.environ.get("WIDTH", "32"))


class Work:
    """The loader and the computing of one rank."""

    def __init__(self, rank: int) -> None:
        self.rank, self.pool, self.began_at = rank, ThreadPoolExecutor(THREADS), time.monotonic()
        self.page = mmap.mmap(-1, BATCH_BYTES)  # aligned, as reading past the cache asks for
        path = FOLDER / f"shard-{rank}"
        path.write_bytes(os.urandom(BATCH_BYTES))
        self.shard = os.open(path, os.O_RDONLY | os.O_DIRECT)

    def is_slow(self, kind: str) -> bool:
        """Whether this rank is slow in this way now."""
        return (FOLDER / f"{kind}-{self.rank}").exists() or (FOLDER / f"{kind}-all").exists()

    def load(self) -> None:
        """Read a batch, past the cache."""
        os.preadv(self.shard, [self.page], 0)
        time.sleep(0.005)
        if self.is_slow("loader"):
            time.sleep(0.07)

    def compute(self, seconds: float) -> None:
        """Compute for so long: items shared by threads, each of which rests for its own."""
        longer = 1.3 if self.is_slow("compute") else 1.0
        if os.environ.get("GROWS"):  # sequences grow
            longer *= 1.0 + (time.monotonic() - self.began_at) / 900.0
        until = time.thread_time() + BUSY_SECONDS * seconds / 0.18
        while time.thread_time() < until:
            pass
        threads = THREADS - 1 if self.is_slow("threads") else THREADS
        each = seconds * longer * THREADS / threads
        list(self.pool.map(time.sleep, [each] * threads))


def train_replicas(work: Work) -> None:
    """Data parallel: every rank holds the model."""
    model = nn.parallel.DistributedDataParallel(nn.Linear(WIDTH, WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    while True:
        work.load()
        work.compute(COMPUTE_SECONDS["ddp"])
        loss = model(torch.randn(8, WIDTH)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        report(step, loss.item())


def train_pipeline(work: Work) -> None:
    """Stages that hand on microbatches forward and back; rank = stage x replicas + replica."""
    world, rank = dist.get_world_size(), dist.get_rank()
    replicas = world // STAGES
    groups = [dist.new_group(list(range(stage * replicas, (stage + 1) * replicas))) for stage in range(STAGES)]
    stage = rank // replicas
    layer = nn.Linear(WIDTH, WIDTH)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    message, step = torch.ones(8, WIDTH), 0
    while True:
        if stage in {0, STAGES - 1}:  # which read the samples, and what they are compared with
            work.load()
        for _ in range(MICROBATCHES):
            if stage:
                dist.recv(message, rank - replicas)
            work.compute(COMPUTE_SECONDS["pipeline"])
            if stage < STAGES - 1:
                dist.send(message, rank + replicas)
        for _ in range(MICROBATCHES):
            if stage < STAGES - 1:
                dist.recv(message, rank + replicas)
            work.compute(COMPUTE_SECONDS["pipeline"])
            if stage:
                dist.send(message, rank - replicas)
        loss = layer(message).square().mean()
        loss.backward()
        for parameter in layer.parameters():
            dist.all_reduce(parameter.grad, group=groups[stage])
        dist.all_reduce(torch.ones(1))  # the norm of all gradients
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        report(step, loss.item())


def report(step: int, loss: float) -> None:
    """Print what training jobs print, from one rank, without a stamp; evaluate now and then where asked to."""
    if dist.get_rank() == dist.get_world_size() - 1:
        print(f"step {step} loss {loss:.4f}", flush=True)
    if os.environ.get("EVALUATES") and step % 250 == 0:
        time.sleep(12.0)
        dist.barrier()


if __name__ == "__main__":
    if os.environ.get("WITH_PROBE"):
        import faulthound_probe  # noqa: F401
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    {"ddp": train_replicas, "pipeline": train_pipeline}[LAYOUT](Work(dist.get_rank()))
