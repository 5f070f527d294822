"""Processes of a made-up tree, as the collectors see them."""

from __future__ import annotations

from collectors.live.sources.process_table import ProcessTable
from collectors.live.sources.ranks import TrainingProcess

SLURM = {"SLURM_JOB_ID": 4242, "SLURM_JOB_NAME": "llama", "SLURM_NTASKS": 8}


def torchrun(rank: int, **more: object) -> dict[str, object]:
    """What torchrun puts into a rank's environment."""
    return {
        "RANK": rank, "WORLD_SIZE": 8, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 8, "MASTER_ADDR": "gpu-0001",
        "MASTER_PORT": 29500, "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": 0, "ROLE_NAME": "default", **more,
    }  # fmt: skip


def pids(found: tuple[TrainingProcess, ...]) -> dict[int, int]:
    """Rank → process."""
    return {one.rank: one.pid for one in found}


def scanned(table: ProcessTable) -> tuple[TrainingProcess, ...]:
    """Scan the tree now."""
    return table.training(now=0.0, most_seconds=-1.0)
