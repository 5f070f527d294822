"""One job as its records show it: kept small, and the same whatever way round the batches come."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.incident import Received
from analyzers.knowledge import Knowledge
from analyzers.watch.node import NodeView
from analyzers.watch.processes import End
from analyzers.watch.rhythm import Rhythm
from collectors.records import Record


class JobView:
    """What the detectors look at. Instants are by the service's clock; a new attempt begins with empty ranks."""

    def __init__(self, job: str, attempt: int | None = None, knowledge: Knowledge | None = None) -> None:
        """``knowledge`` holds the Xid table: without it no kernel event is a symptom."""
        self.job, self.attempt = job, attempt
        self.knowledge = knowledge or Knowledge()
        self.nodes: dict[str, NodeView] = {}
        self.ranks: dict[int, str] = {}  # rank → node
        self.world_size: int | None = None
        self.first_at: float | None = None  # of the job
        self.attempt_at: float | None = None  # of this attempt
        self.newest_step: int | None = None
        self.newest_step_at: float | None = None
        self.rhythm = Rhythm()
        self.ended: dict[int, End] = {}

    def take(self, received: Received, records: Sequence[Record]) -> None:
        """Take one batch's records of this job, and what is its node's: kernel events, device states, samples, coverage."""
        raise NotImplementedError
