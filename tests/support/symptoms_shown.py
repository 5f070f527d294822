"""What a job shows, by name."""

from __future__ import annotations

from analyzers.incidents.job_views import JobView
from analyzers.incidents.messages import Received
from analyzers.model.incident import Symptom
from collectors.records import Record
from service.packaged_knowledge import load
from tests.support.watched_jobs import (
    START,
)


def names(found: list[Symptom]) -> list[tuple[str, str]]:
    """Kind and detector of each symptom."""
    return [(one.kind, one.detector) for one in found]


def alone(*records: tuple[float, Record], node: str = "n0") -> JobView:
    """A view that was given each record in a batch of its own, some seconds after the start."""
    view = JobView("run", 0, load())
    for number, (at, record) in enumerate(records, 1):
        batch = Received(sequence=number, received_at=START + at, node=node, records=(record,), sent_at=START + at)
        view.take(batch, batch.records)
    return view
