"""A small real training job over gloo: data parallel on all ranks, or a pipeline of four stages in two replicas.

Started once per rank (``train.py --rank 3``) or by torchrun. Every step: read a batch, compute, exchange gradients,
reduce the metrics over the world. The worker server of torch listens on a UNIX socket for flight-recorder dumps.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import sys
import threading
import time
from datetime import timedelta
from itertools import count
from pathlib import Path

import faults
import torch
import torch.distributed as dist
from torch import Tensor, nn

WIDTH = 32
STAGES = 4
MICROBATCHES = 2
SPIKE_STEPS = 120
TOO_LARGE = 2.0**22  # a loss scale with which the norm overflows for about six steps
SHARD_SECONDS = float(os.environ.get("TRAIN_SHARD_SECONDS", "0.01"))


class Loader:
    """An endless source of batches; a shard's read takes a few milliseconds, or as long as the driver says."""

    def __init__(self, plan: faults.Faults) -> None:
        self.plan = plan
        self.random = torch.Generator().manual_seed(plan.rank)

    def __next__(self) -> Tensor:
        self.read_shard()
        return torch.randn(8, WIDTH, generator=self.random)

    def read_shard(self) -> None:
        if self.plan.due("data_loader"):
            time.sleep(faults.NEVER_SECONDS)
        time.sleep(SHARD_SECONDS)


def clean_text(plan: faults.Faults) -> None:
    """Tokenise: a C call that keeps the interpreter's lock, either asleep or burning a core."""
    fault = plan.due("gil")
    if fault and fault["variant"] % 2:
        faults.BACKTRACKING.match(faults.LONG_LINE)
    elif fault:
        faults.HOLD_LOCK(faults.NEVER_SECONDS)


def check_loss_scale(plan: faults.Faults, loss: float) -> float:
    """Halve the loss until it fits; with a fault it never does."""
    scale, never_fits = 1.0, plan.due("spin") is not None
    while never_fits or loss * scale > 1e9:
        scale = max(scale / 2, 1.0)
    return scale


def collate(plan: faults.Faults, batch: Tensor) -> Tensor:
    """Look tokens up; the planned mistake is one of three ordinary ones."""
    fault = plan.due("exception")
    if fault and fault["variant"] % 3 == 0:
        return nn.functional.embedding(torch.tensor([WIDTH + 1]), batch)
    if fault and fault["variant"] % 3 == 1:
        return {"input_ids": batch}["attention_mask"]
    if fault:
        raise ValueError(f"sample 4711 has {WIDTH + 1} tokens, more than the position table's {WIDTH}")
    return batch


def reduce_metrics(plan: faults.Faults, loss: float) -> float:
    """Average the loss over the world; here a rank may call the wrong collective or bring the wrong size."""
    metrics = torch.tensor([loss, 1.0, 0.0, 0.0])
    if plan.due("wrong_collective"):
        parts = [torch.empty(4) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, metrics)
        return loss
    if plan.due("wrong_size"):
        metrics = torch.cat([metrics, metrics])
    dist.all_reduce(metrics)
    return float(metrics[0] / metrics[1])


def clip_gradients(plan: faults.Faults, norm: dist.ProcessGroup, overflow: dist.ProcessGroup) -> None:
    """Agree on the gradient norm, then on overflow: each over its own group, which all must enter in one order."""
    order = (overflow, norm) if plan.due("opposite") else (norm, overflow)
    for group in order:
        dist.all_reduce(torch.zeros(1), group=group)


def train_replicas(plan: faults.Faults, groups: tuple[dist.ProcessGroup, dist.ProcessGroup]) -> None:
    """Data parallel: every rank holds the model."""
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)), bucket_cap_mb=0.003
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = Loader(plan)
    for step in count(1):
        plan.enter(step)
        batch = collate(plan, next(loader))
        clean_text(plan)
        loss = model(batch).square().mean()
        check_loss_scale(plan, loss.item())
        loss.backward()
        clip_gradients(plan, *groups)
        optimizer.step()
        optimizer.zero_grad()
        report(step, reduce_metrics(plan, loss.item()))


class LossScale:
    """fp16's loss scale: a step whose scaled norm overflows is skipped and halves it."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def overflows(self, norm: Tensor) -> bool:
        if not bool(torch.isinf((norm * self.scale).half())):
            return False
        self.scale /= 2
        return True


def train_numbers(plan: faults.Faults, _groups: tuple[dist.ProcessGroup, dist.ProcessGroup]) -> None:
    """Data parallel in half precision; a sample may be NaN, targets may be four times too large, the scale may overflow."""
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = Loader(plan)
    kind = os.environ["TRAIN_FAULT"]
    scale = LossScale(TOO_LARGE if kind == "warm_up" else 1024.0)
    for step in count(1):
        plan.enter(step)
        batch = torch.cat([next(loader), torch.randn(56, WIDTH, generator=loader.random)])
        target = torch.randn(64, 1, generator=loader.random) * (4.0 if plan.lasts("spike", SPIKE_STEPS) else 1.0)
        if plan.due("nan"):
            batch[3, 5] = float("nan")
        if plan.due("overflow"):
            scale.scale = TOO_LARGE
        loss = (model(batch) - target).square().mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1e9)
        skipped = scale.overflows(norm)
        if not skipped:
            optimizer.step()
        optimizer.zero_grad()
        shown = float(loss)
        if kind == "nan_hidden":
            shown = reduce_metrics(plan, shown)
        if kind != "nan_hidden" or plan.rank == 0:
            report_numbers(step, shown, float("inf") if skipped else float(norm), skipped=skipped)


class Stage:
    """One stage of one replica: forward and backward of all microbatches, then the replicas' gradients are summed."""

    def __init__(self, plan: faults.Faults) -> None:
        from torch.distributed.device_mesh import init_device_mesh

        self.plan = plan
        mesh = init_device_mesh("cpu", (STAGES, dist.get_world_size() // STAGES), mesh_dim_names=("pp", "dp"))
        self.dp = mesh.get_group("dp")
        replicas = self.dp.size()
        self.previous = plan.rank - replicas if plan.rank >= replicas else None
        self.next = plan.rank + replicas if plan.rank + replicas < dist.get_world_size() else None
        self.layer = nn.Linear(WIDTH, WIDTH)
        self.loader = Loader(plan)

    def forward(self) -> tuple[Tensor, Tensor]:
        batch = collate(self.plan, next(self.loader))
        if self.previous is not None:
            dist.recv(batch, src=self.previous)
        batch.requires_grad_()
        clean_text(self.plan)
        output = self.layer(batch)
        check_loss_scale(self.plan, output.detach().square().mean().item())
        if self.next is not None:
            dist.send(output.detach(), dst=self.next)
        return batch, output

    def backward(self, batch: Tensor, output: Tensor) -> None:
        gradient = torch.ones_like(output) / output.numel()
        if self.next is not None:
            dist.recv(gradient, src=self.next)
        output.backward(gradient)  # type: ignore[no-untyped-call]
        if self.previous is not None and batch.grad is not None:
            dist.send(batch.grad, dst=self.previous)

    def reduce_gradients(self) -> None:
        for parameter in self.layer.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad, group=self.dp)
                parameter.grad = None


def train_pipeline(plan: faults.Faults, groups: tuple[dist.ProcessGroup, dist.ProcessGroup]) -> None:
    """Pipeline of four stages; rank = stage x replicas + replica."""
    stage = Stage(plan)
    for step in count(1):
        plan.enter(step)
        pending = [stage.forward() for _ in range(MICROBATCHES)]
        for batch, output in pending:
            stage.backward(batch, output)
        stage.reduce_gradients()
        clip_gradients(plan, *groups)
        report(step, reduce_metrics(plan, pending[-1][1].mean().item()))


def report(step: int, loss: float) -> None:
    """Print what training jobs print."""
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} INFO step {step} loss {loss:.4f}", flush=True)


def report_numbers(step: int, loss: float, norm: float, *, skipped: bool) -> None:
    """Print a step as Megatron-LM does, or as an object a line."""
    if int(os.environ["TRAIN_SEED"]) % 2:
        print(
            json.dumps({"step": step, "loss": loss, "grad_norm": norm, "skipped": skipped, "time": time.time()}),
            flush=True,
        )
        return
    nan = int(loss != loss)  # noqa: PLR0124 it is NaN
    stamp = time.strftime("[%Y-%m-%d %H:%M:%S]")
    print(
        f" {stamp} iteration {step:8d}/  100000 | consumed samples: {step * 256:12d} | lm loss: {loss:.6E} | "
        f"loss scale: 1.0 | grad norm: {norm:.3f} | number of skipped iterations: {int(skipped):3d} | "
        f"number of nan iterations: {nan:3d} |", flush=True,
    )  # fmt: skip


def dump_on_request(stem: str, rank: int) -> None:
    """Write a pickle dump for every line that arrives in a pipe, as NCCL builds do with their debug pipe."""
    os.mkfifo(f"{stem}{rank}.pipe")
    while True:
        Path(f"{stem}{rank}.pipe").read_bytes()
        unfinished = Path(f"{stem}{rank}.part")
        unfinished.write_bytes(torch._C._distributed_c10d._dump_fr_trace())  # type: ignore[attr-defined]
        unfinished.replace(f"{stem}{rank}")


def main() -> None:
    """Join the job and train until something stops it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, default=int(os.environ.get("RANK", "0")))
    parser.add_argument("--world-size", type=int, default=int(os.environ.get("WORLD_SIZE", "1")))
    parser.add_argument("--topology", choices=["ddp", "pipeline", "numbers"], default="ddp")
    parser.add_argument("--rendezvous", default="env://")
    options = parser.parse_args()
    faults.die_with_driver(limit_seconds=int(os.environ.get("TRAIN_LIMIT_SECONDS", "180")))
    faulthandler.enable()
    plan = faults.Faults(options.rank)
    server = None
    if os.environ.get("TRAIN_PROBE"):
        import faulthound_probe  # noqa: F401 - its import is its use, and it opens a worker server
    else:
        server = torch._C._distributed_c10d._WorkerServer(str(plan.private / f"{options.rank}.sock"))
    dist.init_process_group(
        "gloo", options.rendezvous, timedelta(minutes=30), rank=options.rank, world_size=options.world_size
    )
    torch.manual_seed(1)
    if stem := os.environ.get("TRAIN_DUMP_PIPE"):
        threading.Thread(target=dump_on_request, args=(stem, options.rank), daemon=True).start()
    groups = (dist.new_group(group_desc="grad_norm"), dist.new_group(group_desc="overflow"))
    train = {"ddp": train_replicas, "pipeline": train_pipeline, "numbers": train_numbers}
    train[options.topology](plan, groups)
    del server


if __name__ == "__main__":
    if os.environ.get("TRAIN_RECORD"):  # the decorator that puts the traceback into torchrun's summary
        from torch.distributed.elastic.multiprocessing.errors import record

        sys.exit(record(main)())
    main()
