"""A small training job as its owner would write it: data parallel over gloo, started by torchrun, no word of who watches.

It takes orders from a folder, so that what goes wrong happens inside the function where it would happen in a real job.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

WIDTH = 16


class Orders:
    """What this rank is to do at which step; notes its progress for the driver."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder, self.rank, self.step, self.next = folder, rank, 0, 0
        self.known: list[dict[str, Any]] = []
        self._note("pid", os.getpid())
        self._note("step", 0)

    def enter(self, step: int) -> None:
        """Note the step, and read new orders."""
        self.step = step
        self._note("step", step)
        while (path := self.folder / f"order_{self.next}").exists():
            order = json.loads(path.read_text()) | {"number": self.next}
            self.next += 1
            if self.rank in order["ranks"] and not self._reached(order).exists():
                self.known.append(order)

    def due(self, kind: str) -> dict[str, Any] | None:
        """Return the order of that kind for this step, after telling the driver that it is reached."""
        for order in self.known:
            if order["kind"] == kind and order["step"] <= self.step:
                self.known.remove(order)
                self._reached(order).touch()
                return order
        return None

    def _note(self, what: str, value: int) -> None:
        unfinished = self.folder / f"{what}_{self.rank}.part"
        unfinished.write_text(str(value))
        unfinished.replace(self.folder / f"{what}_{self.rank}")

    def _reached(self, order: dict[str, Any]) -> Path:
        return self.folder / f"reached_{order['number']}_{self.rank}"


def next_batch(orders: Orders, seconds: float) -> Tensor:
    """Read a batch, as slowly as a small job on a shared machine may."""
    time.sleep(seconds)
    if orders.due("deadlock"):
        lock = threading.Lock()
        with lock:
            lock.acquire()
    if order := orders.due("network"):
        fetch_features(order["url"])
    return torch.randn(8, WIDTH)


def fetch_features(url: str) -> bytes:
    """Ask another service, without a time limit."""
    with urllib.request.urlopen(url) as answer:
        content: bytes = answer.read()
        return content


def tokenize(orders: Orders, batch: Tensor) -> Tensor:
    """Check a batch; here the owner's code fails, leaves, or stops for its owner."""
    if orders.due("raise") or orders.due("raise_all"):
        raise ValueError("sample 812 has 17 tokens, more than the table's 16")
    if orders.due("exit"):
        sys.exit(3)
    if orders.due("debugger"):
        breakpoint()  # noqa: T100 - its owner looks at a batch
    return batch


def save_checkpoint(model: nn.Module, folder: Path, step: int, seconds: float, by: str) -> None:
    """Write the model slowly, on rank 0 while the others wait or on every rank; all go on together."""
    if by == "all" or dist.get_rank() == 0:
        unfinished = folder / f"checkpoint_{dist.get_rank()}.part"
        begun_at = time.monotonic()
        with unfinished.open("wb") as stream:
            torch.save({"step": step, "model": model.state_dict()}, stream)
            while time.monotonic() - begun_at < seconds:
                stream.write(b"\0" * 4096)
                stream.flush()
                os.fsync(stream.fileno())
                time.sleep(0.5)
        unfinished.replace(folder / f"checkpoint_{dist.get_rank()}.pt")
        (folder / f"saved_{dist.get_rank()}").write_text(str(step))
    dist.barrier()


def evaluate(model: nn.Module, seconds: float) -> None:
    """Run the model over held-out batches; no rank talks to another."""
    begun_at = time.monotonic()
    with torch.no_grad():
        while time.monotonic() - begun_at < seconds:
            model(torch.randn(8, WIDTH))
            time.sleep(0.2)


def pause(options: argparse.Namespace, model: nn.Module, step: int) -> None:
    """Save or evaluate where it is time to, and note when."""
    for kind, every in (("save", options.save_every), ("evaluate", options.evaluate_every)):
        if not every or step % every:
            continue
        begun_at = time.time()
        note(options.state, kind=kind, at=begun_at, until=None)
        if kind == "save":
            save_checkpoint(model, options.state, step, options.save_seconds, options.save_by)
        else:
            evaluate(model, options.evaluate_seconds)
        note(options.state, kind=kind, at=begun_at, until=time.time())


def note(folder: Path, **pause: Any) -> None:
    """Note a pause when it begins and when it is over, which an end may come before."""
    if dist.get_rank() == 0:
        with (folder / "pauses").open("a") as stream:
            stream.write(json.dumps(pause) + "\n")


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--step-seconds", type=float, default=0.5)
    parser.add_argument("--save-every", type=int, default=0)
    parser.add_argument("--save-seconds", type=float, default=0.0)
    parser.add_argument("--save-by", choices=["rank0", "all"], default="rank0")
    parser.add_argument("--evaluate-every", type=int, default=0)
    parser.add_argument("--evaluate-seconds", type=float, default=0.0)
    parser.add_argument("--limit-seconds", type=int, default=7200)
    parser.add_argument("--quiet", action="store_true")
    return parser.parse_args()


def main() -> None:
    """Train until the order to finish."""
    options = arguments()
    signal.alarm(options.limit_seconds)  # nothing outlives a driver that was killed
    dist.init_process_group("gloo")
    rank, orders = dist.get_rank(), Orders(options.state, dist.get_rank())
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    saved = options.state / "saved_0"
    step = int(saved.read_text()) if saved.exists() else 0
    while True:
        step += 1
        orders.enter(step)
        if orders.due("finish"):
            break
        loss = model(tokenize(orders, next_batch(orders, options.step_seconds))).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0 and not options.quiet:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        pause(options, model, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
