"""Jobs as lists show them: each with its state, its newest attempt and step, and its open incidents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from analyzers.model.doc import doc
from service.api.state import Service
from service.clock import now
from service.store.models import Attempt, Incident, Job, Progress
from service.store.window.steps import JobSteps

NO_ATTEMPT = -1  # of a Progress row whose processes name none
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
    step_unit: Annotated[
        Literal["step", "line"] | None,
        doc("line: its log gives no step numbers; lines are counted, and times are of a line."),
    ]
    step_at: Annotated[float | None, doc("When that was reported, UTC seconds.")]
    step_seconds: Annotated[float | None, doc("The median time of its recent steps; null: too few were reported.")]


def job_rows(service: Service, session: Session, jobs: Iterable[Job]) -> tuple[JobRow, ...]:
    """Return jobs as lists show them, in the same order."""
    rows, at = list(jobs), now()
    names = [job.name for job in rows]
    newest = current_attempts(session, names)
    open_now = select(Incident.job, Incident.id).where(Incident.closed_at.is_(None), Incident.job.in_(names))
    incidents: dict[str | None, list[str]] = {}
    for job, id in session.execute(open_now.order_by(Incident.opened_at.desc(), Incident.id.desc())):
        incidents.setdefault(job, []).append(id)
    return tuple(_row(service, job, newest.get(job.name, Current()), incidents.get(job.name, ()), at) for job in rows)


@dataclass(frozen=True, slots=True)
class Current:
    """The attempt of a job that runs, or ran last. ``progress``: the engine's row of it; None: not written yet."""

    number: int | None = None
    world_size: int | None = None
    progress: Progress | None = None

    @property
    def began_at(self) -> float:
        """Return when its newest run began, as far as the engine saw a run before it; UTC seconds."""
        return 0.0 if self.progress is None else float(self.progress.document.get("run_began_at", 0.0))

    @property
    def over_at(self) -> float | None:
        """Return when the engine last saw that all its processes had ended; None: they have not."""
        over = self.progress is not None and self.progress.document.get("ended_at") is not None
        return self.progress.at if over and self.progress is not None else None


def current_attempts(session: Session, jobs: Sequence[str]) -> dict[str, Current]:
    """Return the current attempt of each of these jobs that was seen.

    It is the highest number, but for attempts that had ended before another was last alive: a job that is started again by hand
    counts from 0.
    """
    rows: dict[str, dict[int, Progress]] = {}
    for row in session.scalars(select(Progress).where(Progress.job.in_(jobs))):
        rows.setdefault(row.job, {})[row.attempt] = row
    seen: dict[str, dict[int, tuple[float, int | None]]] = {}
    runs = select(Attempt.job, Attempt.number, Attempt.last_seen_at, Attempt.world_size).where(Attempt.job.in_(jobs))
    for job, number, seen_at, size in session.execute(runs):
        seen.setdefault(job, {})[number] = seen_at, size
    return {job: _current(seen.get(job, {}), rows.get(job, {})) for job in seen.keys() | rows.keys()}


def _current(seen: dict[int, tuple[float, int | None]], rows: dict[int, Progress]) -> Current:
    """Return the current one of a job's attempts. ``seen``: number → when last, world size; ``rows``: number → progress."""
    ended: dict[int, float] = {
        number: row.document["ended_at"] for number, row in rows.items() if row.document.get("ended_at") is not None
    }
    if not seen:
        return Current(progress=rows[max(rows)])
    began = {number: float(row.document.get("run_began_at", 0.0)) for number, row in rows.items()}
    alive_at = {number: max(ended.get(number, at), began.get(number, 0.0)) for number, (at, _) in seen.items()}
    newest = max(alive_at.values())
    number = max(number for number in seen if ended.get(number, newest) >= newest)
    return Current(number, seen[number][1], rows.get(number) or rows.get(NO_ATTEMPT))


def newest_steps(service: Service, session: Session, job: str) -> JobSteps | None:
    """Return the newest steps of a job's current run; None where it reported none lately."""
    return service.steps.find(job, current_attempts(session, (job,)).get(job, Current()).began_at)


def newest_jobs(service: Service, session: Session, most: int, *where: ColumnElement[bool]) -> tuple[JobRow, ...]:
    """Return jobs by name; of more than ``most`` those that were seen last."""
    seen = select(Job).where(*where).order_by(Job.last_seen_at.desc(), Job.name).limit(most)
    return job_rows(service, session, sorted(session.scalars(seen), key=lambda job: job.name))


def seen_at(job: Job, steps: JobSteps | None, at: float) -> float:
    """Return when a job was last seen: by an agent, or by its newest step."""
    return job.last_seen_at if steps is None else max(job.last_seen_at, min(steps.at, at))


def _row(
    service: Service, job: Job, newest: Current, incidents: Sequence[str], at: float
) -> JobRow:  # fmt: skip
    steps = service.steps.find(job.name, newest.began_at)
    last, over_at = seen_at(job, steps, at), newest.over_at
    is_over = over_at is not None and (steps is None or steps.at <= over_at)
    runs = at - last <= RUNNING_SECONDS and not is_over
    state: Any = "in_trouble" if incidents else "running" if runs else "ended" if is_over else "not_seen"
    step, step_at, pace = (None, None, None) if steps is None else (steps.step, steps.at, steps.median_seconds)
    return JobRow(
        name=job.name, first_seen_at=job.first_seen_at, last_seen_at=last, declared_at=job.declared_at, version=job.version,
        state=state, runs=runs, attempt=newest.number,
        world_size=newest.world_size, incidents=tuple(incidents), step=step, step_at=step_at, step_seconds=pace,
        step_unit=None if steps is None else steps.unit,
    )  # fmt: skip
