"""Jobs: what their owners declare, and what agents have seen of them. A job is registered when an agent sees it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from fastapi import Query, Request, Response
from sqlalchemy import func, select, tuple_, update
from sqlalchemy.orm import Session

from analyzers.model.doc import doc
from collectors.records.identity import name_rank
from service.api import auth, etags, fields, paging
from service.api.auth import Caller
from service.api.declaration import Declaration
from service.api.job_rows import JobRow, JobSummary, current_attempts, job_rows, newest_steps, seen_at
from service.api.problems import Problem, documented, not_found
from service.api.routing import Router
from service.api.state import Service, service_of
from service.clock import now
from service.store import audit_log
from service.store.models import Attempt, Job, Placement
from service.store.placements import is_newest
from service.store.window.steps import JobSteps

MOST_ATTEMPTS = 100

router = Router("jobs")


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a job between restarts."""

    number: Annotated[int, doc("The number of the attempt.")]
    first_seen_at: Annotated[float, doc("When an agent first saw it.")]
    last_seen_at: Annotated[float, doc("When an agent last saw it.")]
    world_size: Annotated[int | None, doc("Ranks of the attempt; null: unknown.")]
    code_version: Annotated[str | None, doc("As declared for this run, or for one before it.")]


class AttemptDocument(Run, frozen=True, kw_only=True):
    """One run of a job between restarts, and how much of it was seen."""

    ranks: Annotated[int, doc("Ranks that agents have seen.")]
    nodes: Annotated[int, doc("Nodes that they ran on.")]


class StepsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A job's newest steps, as its logs or the probe report them."""

    attempt: Annotated[int, doc("The attempt that they are of.")]
    step: Annotated[int, doc("The newest step.")]
    unit: Annotated[
        Literal["step", "line"], doc("line: its log gives no step numbers; lines are counted, and times are of a line.")
    ]
    at: Annotated[float, doc("When it was reported, UTC seconds.")]
    median_seconds: Annotated[float | None, doc("How long a step takes; null: too few were reported.")]
    longest_seconds: Annotated[float | None, doc("The longest of the recent ones, pauses left out.")]
    longest_pause_seconds: Annotated[float | None, doc("The longest recent pause between two; null: there was none.")]
    recent_seconds: Annotated[
        tuple[float, ...], doc("How long a step took, from one report to the next, the newest last.")
    ]


class JobDocument(JobSummary, frozen=True, kw_only=True):
    """A job, its declaration and its newest attempts."""

    declared: Annotated[Declaration | None, doc("What its owner declared; null: nothing.")]
    attempts: Annotated[tuple[AttemptDocument, ...], doc(f"The newest first, {MOST_ATTEMPTS} at most.")]
    steps: Annotated[StepsDocument | None, doc("Its newest steps; null: none was reported lately.")] = None


class RankDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a rank of an attempt, as it was seen last."""

    rank: Annotated[int, doc("The number of the rank within its role; from 2^20 on it comes from its place.")]
    node: Annotated[str, doc("The node that it runs on.")]
    pid: Annotated[int | None, doc("Its process id on the node; null: unknown.")]
    local_rank: Annotated[int | None, doc("Its rank on the node; null: unknown.")]
    role: Annotated[str | None, doc("Its role; null: unknown.")]
    device: Annotated[str | None, doc("Its device; null: unknown.")]
    first_seen_at: Annotated[float, doc("When it was first seen there, UTC seconds.")]
    last_seen_at: Annotated[float, doc("When it was last seen there, UTC seconds.")]
    name: Annotated[
        str, doc("What it is called: `rank 3`, `rollout rank 3`; `rollout rank #2`: the third on its node.")
    ] = ""


@router.get("/v1/jobs", dependencies=[auth.READ])
def list_jobs(
    request: Request, limit: paging.Limit = 100, after: paging.After = None, since: fields.Since = None
) -> paging.Page[JobRow]:
    """List jobs by name, with their state; `since`: those that were seen after it."""
    query = select(Job).order_by(Job.name).limit(limit + 1)
    if (last := paging.from_cursor(after, str)) is not None:
        query = query.where(Job.name > last)
    if since is not None:
        query = query.where(Job.last_seen_at >= since)
    with service_of(request).database.session() as session:
        rows, following = paging.cut(session.scalars(query).all(), limit, lambda job: job.name)
        return paging.Page(items=job_rows(service_of(request), session, rows), next=following)


@router.get(
    "/v1/jobs/{job:path}/ranks", dependencies=[auth.READ],
    responses=documented("not-found"),
)  # fmt: skip
def list_ranks(
    request: Request,
    job: fields.JobPath,
    attempt: Annotated[int | None, Query(ge=0, lt=1 << 31, description="The newest, if left out.")] = None,
    limit: paging.Limit = 1_000,
    after: paging.After = None,
) -> paging.Page[RankDocument]:
    """List where the ranks of an attempt run, by role and number."""
    with service_of(request).database.session() as session:
        found(session, job)
        number = newest_attempt(session, job) if attempt is None else attempt
        query = select(Placement).where(Placement.job == job, Placement.attempt == number, is_newest())
        if (last := paging.from_cursor(after, tuple[str, int])) is not None:
            query = query.where(tuple_(Placement.role, Placement.rank) > tuple_(*last))
        rows = session.scalars(query.order_by(Placement.role, Placement.rank).limit(limit + 1)).all()
        return paging.page(rows, limit, lambda one: (one.role, one.rank), rank_document)


@router.get("/v1/jobs/{job:path}", dependencies=[auth.READ], responses=documented("not-found"))
def get_job(request: Request, response: Response, job: fields.JobPath) -> JobDocument:
    """Get one job: its declaration, whose ETag a change needs, and its attempts."""
    with service_of(request).database.session() as session:
        document = shown(service_of(request), session, job)
    response.headers["ETag"] = etags.etag(document.version)
    return document


@router.put(
    "/v1/jobs/{job:path}",
    responses=documented("precondition-failed", "precondition-required"),
)  # fmt: skip
def declare_job(
    request: Request,
    response: Response,
    job: fields.JobPath,
    declaration: Declaration,
    caller: Annotated[Caller, auth.REMEDIATE],
    if_match: etags.IfMatch = None,
) -> JobDocument:
    """Declare a job: rank map, roles, parallel sizes, checkpoint holders, code version.

    The first declaration needs nothing; a change needs If-Match with the ETag of the one that it replaces.
    """
    declaration.check(job)
    at = now()
    with service_of(request).database.transaction() as session:
        row = session.get(Job, job, with_for_update=True)
        if row is None:
            row = Job(name=job, first_seen_at=at, last_seen_at=at, version=0)
            session.add(row)
        _check_match(row, if_match)
        row.declared, row.declared_at = declaration.model_dump(exclude_defaults=True), at
        row.version += 1
        details = {"version": row.version, "world_size": declaration.world_size}
        audit_log.record(session, at, "job_declared", caller.actor, job, details)
        session.flush()
        session.execute(
            update(Attempt)
            .where(Attempt.job == job, Attempt.number >= declaration.attempt)
            .values(code_version=declaration.code_version)
        )
        document = _document(session, row)
    response.headers["ETag"] = etags.etag(document.version)
    return document


def rank_document(row: Placement) -> RankDocument:
    """Return the place of a rank, with what it is called."""
    name = name_rank(row.rank, row.role)
    return msgspec.structs.replace(paging.from_row(row, RankDocument), role=row.role or None, name=name)


def found(session: Session, job: str) -> Job:
    """Return a job, or raise the problem that it is unknown."""
    row = session.get(Job, job)
    if row is None:
        raise not_found("job", job, "/v1/jobs lists those that were seen or declared")
    return row


def shown(service: Service, session: Session, job: str) -> JobDocument:
    """Return a job as the API and its page show it, or raise the problem that it is unknown."""
    row, steps = found(session, job), newest_steps(service, session, job)
    document = msgspec.structs.replace(_document(session, row), last_seen_at=seen_at(row, steps, now()))
    return document if steps is None else msgspec.structs.replace(document, steps=_steps_document(steps))


def _steps_document(steps: JobSteps) -> StepsDocument:
    recent, (longest, pause) = steps.recent_seconds, steps.longest()
    return StepsDocument(
        attempt=steps.attempt, step=steps.step, unit=steps.unit, at=steps.at, median_seconds=steps.median_seconds,
        longest_seconds=longest, longest_pause_seconds=pause, recent_seconds=tuple(round(one, 4) for one in recent),
    )  # fmt: skip


def newest_attempt(session: Session, job: str) -> int | None:
    """Return the number of a job's newest attempt, None where none was seen."""
    current = current_attempts(session, (job,)).get(job)
    return None if current is None else current.number


def newest_ranks(service: Service, job: str) -> Sequence[tuple[int, str, str]]:
    """Return (rank, role, node) of a job's newest attempt."""
    with service.database.session() as session:
        found(session, job)
        placed = select(Placement.rank, Placement.role, Placement.node).where(Placement.job == job)
        query = placed.where(Placement.attempt == newest_attempt(session, job), is_newest()).order_by(Placement.rank)
        return [(rank, role or "", node) for rank, role, node in session.execute(query)]


def _check_match(row: Job, if_match: str | None) -> None:
    if row.declared_at is not None:
        etags.check(if_match, row.version, f"the declaration of job {row.name}", f"/v1/jobs/{row.name}")
    elif if_match not in (None, etags.etag(row.version)):
        raise Problem("precondition-failed", f"job {row.name} is not declared yet: leave If-Match out")


def _document(session: Session, row: Job) -> JobDocument:
    seen = (
        select(Placement.attempt, func.count(Placement.rank.distinct()))
        .where(Placement.job == row.name)
        .group_by(Placement.attempt, Placement.role)
    )
    ranks_seen = Counter[int]()
    for attempt, ranks in session.execute(seen):
        ranks_seen[attempt] += ranks
    on = select(Placement.attempt, func.count(Placement.node.distinct())).where(Placement.job == row.name)
    nodes_seen = {attempt: nodes for attempt, nodes in session.execute(on.group_by(Placement.attempt))}  # noqa: C416 rows

    def shown(attempt: Attempt) -> AttemptDocument:
        run = msgspec.structs.asdict(paging.from_row(attempt, Run))
        return AttemptDocument(**run, ranks=ranks_seen[attempt.number], nodes=nodes_seen.get(attempt.number, 0))

    query = select(Attempt).where(Attempt.job == row.name).order_by(Attempt.number.desc()).limit(MOST_ATTEMPTS)
    declared = Declaration(**row.declared) if row.declared_at is not None else None
    summary = msgspec.structs.asdict(paging.from_row(row, JobSummary))
    return JobDocument(**summary, declared=declared, attempts=tuple(map(shown, session.scalars(query))))
