"""Small real gloo jobs with the probe: ``python probed_jobs.py NAME RANK WORLD_SIZE FOLDER``, the probe being beside it."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist

NAME, RANK, WORLD, FOLDER = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
T = torch.ones(4)


def pairs() -> list[torch.Tensor]:
    """Return one tensor a rank."""
    return [torch.ones(4) for _ in range(WORLD)]


def everything() -> None:
    """Call every collective, transfers between them, a group of its own, and DDP; then write what the recorder has."""
    other = 1 - RANK
    captured = dist.all_reduce  # as "from torch.distributed import all_reduce" before the probe would
    group = dist.new_group([0, 1], group_desc="pair")
    captured(T)
    dist.all_gather(pairs(), T)
    dist.all_gather_into_tensor(torch.ones(8), T)
    dist.broadcast(T, 0)
    dist.reduce(T, 0)
    dist.reduce_scatter_tensor(torch.ones(2), T)
    dist.send(T, 1) if RANK == 0 else dist.recv(T, 0)
    dist.gather(T, pairs() if RANK == 0 else None)
    dist.scatter(T, pairs() if RANK == 0 else None)
    dist.all_to_all([torch.ones(1)] * 2, [torch.ones(1)] * 2)
    dist.all_to_all_single(torch.ones(4), T)
    dist.barrier()
    dist.all_gather_object([None, None], {"rank": RANK})
    both = [dist.P2POp(dist.isend, T, other), dist.P2POp(dist.irecv, torch.ones(4), other)]
    for work in dist.batch_isend_irecv(both):
        work.wait()
    dist.send(T, 1) if RANK == 0 else dist.recv(T)  # from anybody
    dist.all_reduce(T, group=group)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model(T).sum().backward()
        optimizer.step()
        dist.all_reduce(T)
    polled = dist.all_reduce(T, async_op=True)
    while not polled.is_completed():
        time.sleep(0.001)
    dropped = dist.all_reduce(T, async_op=True)
    dropped.get_future().wait()
    del dropped
    inside = dist.all_reduce(T, async_op=True)
    entries = json.loads(torch._C._distributed_c10d._dump_fr_trace_json())["entries"]
    recorded = [[e["process_group"][0], e["collective_seq_id"], e["profiling_name"]] for e in entries]
    (FOLDER / f"recorded{RANK}.json").write_text(json.dumps(recorded))
    (FOLDER / f"ring{RANK}").write_bytes(next(rings()).read_bytes())
    inside.wait()


def rings() -> Iterator[Path]:
    """Return this process's ring, if there is one."""
    return Path(os.environ["FAULTHOUND_PROBE_DIR"]).glob(f"*/{os.getpid()}.ring")


def train() -> None:
    """Train a DDP model for some steps and print its parameters to the last bit."""
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 1))
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    data = torch.Generator().manual_seed(RANK)
    for _ in range(20):
        loss = model(torch.randn(8, 16, generator=data)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(loss.detach())
    print(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest())


def replicas() -> None:
    """Train for 16 steps of 30 ms with hashed parameters and statistics of each rank's own; ``CASE`` names what befalls it."""
    case, culprit, odd_step = os.environ["CASE"], int(os.environ.get("CULPRIT", "2")), 9
    torch.manual_seed(RANK if case == "shards" else 1)
    layers = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 1))
    model = layers if case == "shards" else torch.nn.parallel.DistributedDataParallel(layers)
    optimizer = torch.optim.AdamW(layers.parameters(), lr=0.01)
    data = torch.Generator().manual_seed(RANK)
    for step in range(1, 17):
        time.sleep(0.03)
        model(torch.randn(8, 16, generator=data)).square().mean().backward()
        parameters = list(layers.parameters())
        if step == 5:
            older = [one.detach().clone() for one in parameters]
        with torch.no_grad():
            if case == "flip" and step == odd_step and culprit == RANK:
                parameters[0].view(torch.int32)[3, 5] ^= 1 << 20
            if case == "restores" and step == odd_step and culprit == RANK:
                for one, other in zip(parameters, older, strict=True):
                    one.copy_(other)
            if case == "restores" and step == odd_step + 4:  # and is given what the others have
                for one in parameters:
                    dist.broadcast(one, 0)
            if case == "anew" and step == odd_step:
                torch.manual_seed(step)
                for one in parameters:
                    one.copy_(torch.randn(one.shape))
            if case == "local" and step >= odd_step:  # each rank on its own from here on
                parameters[0] += 0.001 * RANK
        optimizer.step()
        optimizer.zero_grad()
    (FOLDER / f"rank{RANK}.ring").write_bytes(next(rings()).read_bytes())


def own_time() -> None:
    """Train for eight steps in which the last rank loads for 40 ms, and reduce the loss; ``CASE``: how gradients are summed.

    The others are kept waiting by DDP in backward, by an all-reduce of their own, or by one that the probe does not see.
    """
    case = os.environ["CASE"]
    layers = torch.nn.Linear(4, 4)
    model = layers if case == "by hand" else torch.nn.parallel.DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
    for _ in range(8):
        time.sleep(0.04 if RANK == WORLD - 1 else 0.0)
        loss = model(torch.ones(2, 4)).sum()
        if case == "unseen":
            dist._broadcast_coalesced(dist.group.WORLD, [torch.ones(4)], 1 << 20, 0)
        loss.backward()
        if case == "by hand":
            for one in layers.parameters():
                dist.all_reduce(one.grad)
        optimizer.step()
        dist.all_reduce(loss.detach())
    (FOLDER / f"ring{RANK}").write_bytes(next(rings()).read_bytes())


def ddp() -> None:
    """Train by DDP alone: every collective is C++'s."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(T).sum().backward()
        optimizer.step()
    (FOLDER / f"ring{RANK}").write_bytes(next(rings()).read_bytes())


def stuck() -> None:
    """Rank 1 waits for what rank 0 never sends, because it is killed."""
    dist.all_reduce(T)
    if RANK == 0:
        while not list(FOLDER.glob("waiting")):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.irecv(T, 0)
    (FOLDER / "waiting").touch()
    work.wait()


def forked() -> None:
    """A forked child drops what its parent is still inside of, and ends; the parent copies its ring and goes on."""
    works = [dist.all_reduce(T), dist.all_reduce(T, async_op=True)]
    child = os.fork()
    if child == 0:
        works.clear()
        gc.collect()
        os._exit(0)  # as multiprocessing does: an interpreter's end would wait for gloo's threads, probe or not
    os.waitpid(child, 0)
    (FOLDER / "ring0").write_bytes(next(rings()).read_bytes())
    works[1].wait()
    print("trained")


def sabotaged() -> None:
    """Everything that the probe asks of torch fails."""

    def refuse(*_: object) -> int:
        raise RuntimeError("no number")

    dist.all_reduce(T)
    torch._C._distributed_c10d.ProcessGroup._get_sequence_number_for_group = refuse
    for _ in range(120):
        dist.all_reduce(T)
    (FOLDER / "ring0").write_bytes(next(rings()).read_bytes())
    print("trained")


def plain() -> None:
    """One collective, and an end as it should be, or by an exception."""
    dist.all_reduce(T)
    print("rings:", len(list(rings())))
    if os.environ.get("RAISES"):
        raise ValueError("sample 4711 is damaged")


if __name__ == "__main__":
    if os.environ.get("WITH_PROBE", "1") == "1":
        import faulthound_probe  # noqa: F401
    dist.init_process_group("gloo", f"file://{FOLDER}/rendezvous", rank=RANK, world_size=WORLD)
    try:
        globals()[NAME]()
    finally:  # a group that is left to the interpreter's end now and then ends it by SIGABRT
        dist.destroy_process_group()
