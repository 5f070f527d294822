"""Jobs as lists show them: each with its state, its newest attempt and step, and its open incidents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

import msgspec
from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from analyzers.model.doc import doc
from service.api.state import Service
from service.clock import now
from service.store.models import Attempt, Incident, Job, Progress
from service.store.window.steps import JobSteps

RUNNING_SECONDS = 180.0  # a job, or an attempt, is seen once a minute, and written within another


class JobSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A training job. Instants are UTC seconds."""

    name: Annotated[str, doc("Its name.")]
    first_seen_at: Annotated[float, doc("When an agent first saw it, or it was declared.")]
    last_seen_at: Annotated[float, doc("When an agent last saw it.")]
    declared_at: Annotated[float | None, doc("When its owner last declared it; null: it was only seen.")]
    version: Annotated[int, doc("The version of the declaration: its ETag.")]


class JobRow(JobSummary, frozen=True, kw_only=True):
    """A job with its state, newest attempt and step, and open incidents."""

    state: Annotated[
        Literal["in_trouble", "running", "ended", "not_seen"],
        doc(
            "in_trouble: it has open incidents; running: none, and it runs; ended: all processes that were seen of it have;"
            " not_seen: none of these."
        ),
    ]
    runs: Annotated[bool, doc(f"It was seen in the last {RUNNING_SECONDS:.0f} s, and has not ended.")]
    attempt: Annotated[int | None, doc("Its newest attempt; null: none was seen.")]
    world_size: Annotated[int | None, doc("Ranks of that attempt; null: unknown.")]
    incidents: Annotated[tuple[str, ...], doc("The ids of its open incidents, the newest first.")]
    step: Annotated[int | None, doc("Its newest step; null: none was reported lately.")]
    step_at: Annotated[float | None, doc("When that was reported, UTC seconds.")]
    step_seconds: Annotated[float | None, doc("The median time of its recent steps; null: too few were reported.")]


def job_rows(service: Service, session: Session, jobs: Iterable[Job]) -> tuple[JobRow, ...]:
    """Return jobs as lists show them, in the same order."""
    rows, at = list(jobs), now()
    names = [job.name for job in rows]
    runs = (
        select(Attempt.job, Attempt.number, Attempt.world_size).where(Attempt.job.in_(names)).order_by(Attempt.number)
    )
    newest = {job: (number, size) for job, number, size in session.execute(runs)}
    open_now = select(Incident.job, Incident.id).where(Incident.closed_at.is_(None), Incident.job.in_(names))
    incidents: dict[str | None, list[str]] = {}
    for job, id in session.execute(open_now.order_by(Incident.opened_at.desc(), Incident.id.desc())):
        incidents.setdefault(job, []).append(id)
    known = session.scalars(select(Progress).where(Progress.job.in_(names)).order_by(Progress.at))
    over_at = {row.job: row.at if row.document.get("ended_at") is not None else None for row in known}
    return tuple(
        _row(service, job, newest.get(job.name, (None, None)), incidents.get(job.name, ()), at, over_at.get(job.name))
        for job in rows
    )


def newest_jobs(service: Service, session: Session, most: int, *where: ColumnElement[bool]) -> tuple[JobRow, ...]:
    """Return jobs by name; of more than ``most`` those that were seen last."""
    seen = select(Job).where(*where).order_by(Job.last_seen_at.desc(), Job.name).limit(most)
    return job_rows(service, session, sorted(session.scalars(seen), key=lambda job: job.name))


def seen_at(job: Job, steps: JobSteps | None, at: float) -> float:
    """Return when a job was last seen: by an agent, or by its newest step."""
    return job.last_seen_at if steps is None else max(job.last_seen_at, min(steps.at, at))


def _row(
    service: Service, job: Job, newest: tuple[int | None, int | None], incidents: Sequence[str], at: float,
    over_at: float | None,
) -> JobRow:  # fmt: skip
    """Return one row. ``over_at``: when the engine last saw that all its processes had ended; None: they have not."""
    steps = service.steps.find(job.name)
    last = seen_at(job, steps, at)
    is_over = over_at is not None and (steps is None or steps.at <= over_at)
    runs = at - last <= RUNNING_SECONDS and not is_over
    state: Any = "in_trouble" if incidents else "running" if runs else "ended" if is_over else "not_seen"
    step, step_at, pace = (None, None, None) if steps is None else (steps.step, steps.at, steps.median_seconds)
    return JobRow(
        name=job.name, first_seen_at=job.first_seen_at, last_seen_at=last, declared_at=job.declared_at, version=job.version,
        state=state, runs=runs, attempt=newest[0],
        world_size=newest[1], incidents=tuple(incidents), step=step, step_at=step_at, step_seconds=pace,
    )  # fmt: skip
