"""One process of a small RL job, a gloo group inside its role, files between roles: ``role_worker.py ROLE RANK SIZE FOLDER``.

A trainer's step takes what every rollout made for it; a rollout makes the next when the weights of the step before are there.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

ROLLOUTS, TRAINERS = 4, 2
STEP_SECONDS = 0.3
POLL_SECONDS = 0.02
NEVER = timedelta(hours=2)


def done(folder: Path, role: str, size: int) -> int:
    """Return the step that all processes of a role have done."""
    steps = [folder / f"{role}{rank}" for rank in range(size)]
    return min((int(path.read_text() or 0) if path.exists() else 0) for path in steps)


def tell(folder: Path, role: str, rank: int, step: int) -> None:
    """State that this process has done a step."""
    part = folder / f".{role}{rank}.part"
    part.write_text(str(step))
    part.replace(folder / f"{role}{rank}")


def wait_for(folder: Path, role: str, size: int, step: int) -> None:
    """Wait until a role has done a step."""
    while done(folder, role, size) < step:
        time.sleep(POLL_SECONDS)


def main() -> None:
    """Work until the folder's ``stop`` is there."""
    role, rank, size, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/store-{role}", rank=rank, world_size=size, timeout=NEVER)
    (folder / f"pid-{role}{rank}").write_text(str(os.getpid()))
    step, value = 0, torch.ones(8)
    while not (folder / "stop").exists():
        step += 1
        if role == "trainer":
            wait_for(folder, "rollout", ROLLOUTS, step)
        else:
            wait_for(folder, "trainer", TRAINERS, step - 1)
            time.sleep(STEP_SECONDS)
        dist.all_reduce(value)
        value /= size
        tell(folder, role, rank, step)
        if role == "trainer" and rank == 0:
            print(f"step {step} loss {1.0 + 1.0 / step:.4f}", flush=True)


main()
