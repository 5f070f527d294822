"""What the loop over all jobs reads of the engine's memory: when nodes were heard of, and where jobs run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class Heard(Protocol):
    """When a node was heard of, by the receipt clock (``engine.state.NodeSeen``)."""

    @property
    def last_received_at(self) -> float:
        """Return when its newest batch came."""

    @property
    def offset(self) -> float:
        """Return by how many seconds its clock is ahead of ours."""

    @property
    def intervals(self) -> Sequence[float]:
        """Return the seconds between its newest batches."""


class JobSeen(Protocol):
    """Where one attempt of a job runs (``watch.JobView``)."""

    @property
    def job(self) -> str:
        """Return the job's name."""

    @property
    def attempt(self) -> int | None:
        """Return the attempt's number."""

    @property
    def ranks(self) -> Mapping[int, str]:
        """Return the node of each rank."""

    @property
    def world_size(self) -> int | None:
        """Return how many ranks there are, where it was told."""

    @property
    def first_at(self) -> float | None:
        """Return when it was first heard of."""

    @property
    def ended(self) -> Mapping[int, object]:
        """Return the ranks whose processes have ended."""
