"""The directory of a job's roles: processes register under an epoch and watch who replaces whom (docs/roles.md)."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Query, Request
from pydantic import AfterValidator, Field

from service.api import auth, fields
from service.api.auth import Caller
from service.api.problems import Problem, documented, not_found
from service.api.role_documents import DirectoryDocument, RoleLease, directory_document, role_document, wait
from service.api.routing import Router
from service.api.state import service_of
from service.clock import now
from service.roles.directory import Activity, Event, Fence, Leave, Register, RegistrationRefused, Renew
from service.roles.repository import DirectoryFull

LONGEST_POLL_SECONDS = 30.0
LEASE_SECONDS = 30.0

router = Router("roles")
Key = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]*$")]
MOST_ENDPOINT_BYTES = 4_096  # of one instance: a directory of thousands is read whole by each of them


def _of_size(endpoints: dict[str, str]) -> dict[str, str]:
    size = sum(len(name.encode()) + len(where.encode()) for name, where in endpoints.items())
    if size > MOST_ENDPOINT_BYTES:
        raise ValueError(
            f"endpoints of {size:,} bytes: {MOST_ENDPOINT_BYTES:,} are the most of one instance, give fewer"
        )
    return endpoints


Endpoints = Annotated[
    dict[Key, Annotated[str, Field(max_length=512, pattern=fields.TEXT_PATTERN)]],
    Field(max_length=32),
    AfterValidator(_of_size),
]


class _Instance(fields.Body):
    role: Key = Field(description="The role: trainer, rollout, reward …")
    instance: Key = Field(description="Which one of its role.")


Age = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Total = Annotated[int, Field(ge=0, lt=1 << 62)]


class ActivityRequest(fields.Body):
    """What a process does. It says how long ago something was, so that its clock is not needed."""

    phase_seconds: Age | None = Field(None, description="How long ago its phase began.")
    waiting_for: Annotated[str, Field(max_length=128, pattern=fields.TEXT_PATTERN)] = Field(
        "", description="A role, an instance (`reward 0`), `queue:NAME` or `host:port`; empty: it waits for nothing."
    )
    waiting_seconds: Age | None = Field(None, description="For how long it has waited.")
    tokens_total: Total | None = Field(None, description="Tokens that it has generated.")
    token_seconds: Age | None = Field(None, description="How long ago it generated the newest.")
    steps_total: Total | None = Field(None, description="Steps, calls or samples that it has finished.")
    step_seconds: Age | None = Field(None, description="How long ago it finished the newest.")
    worked_seconds: Age | None = Field(None, description="Seconds in which it waited for nothing, since it started.")
    requests_running: Total | None = Field(None, description="Requests that it works on.")
    requests_waiting: Total | None = Field(None, description="Requests that wait for it.")
    queue_depth: Total | None = Field(None, description="What is in the queue that it holds.")

    def at(self, now: float) -> Activity:
        """Return it with instants."""

        def instant(age: float | None) -> float | None:
            return None if age is None else max(0.0, now - age)

        return Activity(
            phase_since=instant(self.phase_seconds), waiting_for=self.waiting_for,
            waiting_since=instant(self.waiting_seconds or 0.0) if self.waiting_for else None,
            tokens_total=self.tokens_total, last_token_at=instant(self.token_seconds), steps_total=self.steps_total,
            last_step_at=instant(self.step_seconds), worked_seconds=self.worked_seconds,
            requests_running=self.requests_running, requests_waiting=self.requests_waiting, queue_depth=self.queue_depth,
        )  # fmt: skip


class RoleRequest(_Instance):
    """A process registers, or renews what it has registered."""

    process: Annotated[str, Field(min_length=1, max_length=128, pattern=fields.TEXT_PATTERN)] = Field(
        description="The process: the same in each of its requests, and never that of another."
    )
    epoch: int | None = Field(None, ge=1, lt=1 << 62, description="The epoch that it was given; null: it registers.")
    attempt: int = Field(
        0, ge=0, lt=1 << 31, description="The attempt of the job; a later one takes the place at once."
    )
    endpoints: Endpoints | None = Field(None, description="Where it is reached, by name; null: as before.")
    weights: int | None = Field(
        None, ge=0, lt=1 << 62, description="The version of the weights that it has; null: as before."
    )
    phase: Annotated[str, Field(max_length=64, pattern=fields.TEXT_PATTERN)] | None = Field(
        None, description="What it does now; null: as before."
    )
    node: fields.NodeName | None = Field(None, description="The node that it runs on.")
    pid: int | None = Field(None, ge=1, lt=1 << 31, description="Its process id.")
    activity: ActivityRequest | None = Field(None, description="What it does; null: as before.")
    lease_seconds: float = Field(
        LEASE_SECONDS, ge=1, le=600, description="After so long without a renewal another may replace it."
    )


class LeaveRequest(_Instance):
    """The holder of an instance ends."""

    epoch: int = Field(ge=1, lt=1 << 62, description="The epoch that it was given.")


class FenceRequest(_Instance):
    """The holder of an instance must not act any more."""

    epoch: int | None = Field(None, ge=1, lt=1 << 62, description="Only if it has this epoch; null: its present one.")
    reason: fields.Text = Field(description="Why.")


@router.get("/v1/jobs/{job:path}/roles", responses=documented("not-found", "too-many-requests"))
async def get_roles(
    request: Request,
    job: fields.JobPath,
    caller: Annotated[Caller, auth.ROLES_READ],
    after: fields.AfterVersion = 0,
    wait_seconds: Annotated[
        float, Query(ge=0, le=LONGEST_POLL_SECONDS, allow_inf_nan=False, description="Wait so long for a change.")
    ] = 0.0,
) -> DirectoryDocument:
    """Get the instances of a job's roles, or those that changed after a version."""
    auth.check_job(request, caller, job)
    service = service_of(request)
    counted = await asyncio.to_thread(service.roles.versions, frozenset({job})) if wait_seconds else {}
    if wait_seconds and counted.get(job, after) >= after:  # else it is further than this database: all of it is news
        await wait(service, job, after, wait_seconds)
    found = await asyncio.to_thread(service.roles.read, job, after)
    if found is None:
        raise not_found("the directory of roles of", job, f"its processes register with PUT /v1/jobs/{job}/roles")
    return directory_document(job, found, await asyncio.to_thread(service.role_rules))


@router.put("/v1/jobs/{job:path}/roles", responses=documented("not-found", "conflict", "fenced"))
def register_role(
    request: Request, job: fields.JobPath, asked: RoleRequest, caller: Annotated[Caller, auth.ROLES]
) -> RoleLease:
    """Register an instance, or renew it under the epoch that it was given.

    An instance that another process holds is refused until its lease is over; one that was replaced is refused for good.
    """
    if asked.epoch is not None:
        event: Event = Renew(
            role=asked.role, instance=asked.instance, epoch=asked.epoch, process=asked.process, endpoints=asked.endpoints,
            weights=asked.weights, phase=asked.phase, activity=asked.activity.at(now()) if asked.activity is not None else None,
        )  # fmt: skip
    else:
        event = Register(
            role=asked.role, instance=asked.instance, process=asked.process, attempt=asked.attempt, node=asked.node,
            pid=asked.pid, endpoints=asked.endpoints or {}, weights=asked.weights, phase=asked.phase or "",
            lease_seconds=asked.lease_seconds,
        )  # fmt: skip
    return _taken(request, caller, job, event)


@router.post("/v1/jobs/{job:path}/roles/leave", responses=documented("not-found", "fenced"))
def leave_role(
    request: Request, job: fields.JobPath, asked: LeaveRequest, caller: Annotated[Caller, auth.ROLES]
) -> RoleLease:
    """End an instance in order: another process may take its place at once."""
    return _taken(request, caller, job, Leave(role=asked.role, instance=asked.instance, epoch=asked.epoch))


@router.post("/v1/jobs/{job:path}/roles/fence", responses=documented("not-found", "fenced"))
def fence_role(
    request: Request, job: fields.JobPath, asked: FenceRequest, caller: Annotated[Caller, auth.EXECUTE]
) -> RoleLease:
    """End an instance whose process may still live: its peers refuse it, and another may take its place at once."""
    return _taken(request, caller, job, Fence(role=asked.role, instance=asked.instance, epoch=asked.epoch))


def _taken(request: Request, caller: Caller, job: str, event: Event) -> RoleLease:
    auth.check_job(request, caller, job)
    service = service_of(request)
    try:
        slot, seconds = service.roles.take(job, event, caller.actor)
    except DirectoryFull as full:
        raise Problem("conflict", f"{full}: register a process that replaces another as the same instance") from None
    except RegistrationRefused as refused:
        if refused.kind == "held":
            raise Problem("conflict", str(refused), retry_after_seconds=refused.seconds) from None
        raise Problem(refused.kind, str(refused)) from None
    service.role_watch.wake(job, slot.version)
    service.role_readings.note(job, slot)
    return RoleLease(role=role_document(slot), seconds=max(0.0, seconds))
