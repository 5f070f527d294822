"""Which processes of a node train, and who they are: rank, job, attempt, role, from /proc/PID/environ.

Only an allow-list of variables is ever copied: an environment holds secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TrainingProcess:
    """One rank's process on this node."""

    pid: int
    rank: int
    job: str | None = None
    attempt: int | None = None
    world_size: int | None = None
    local_rank: int | None = None
    role: str | None = None
    device: str | None = None
    launcher: str = ""
    started_at: float | None = None  # UTC seconds
    labels: Mapping[str, str] = field(default_factory=dict)  # variables of the allow-list


def training_processes(proc: Path) -> tuple[TrainingProcess, ...]:
    """Return the training processes below a /proc, by rank."""
    raise NotImplementedError
