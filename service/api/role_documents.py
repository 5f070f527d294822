"""A role directory as the API shows it, and the wait for its next change."""

from __future__ import annotations

from typing import Annotated

import msgspec

from analyzers.knowledge.role_rules import RoleRules
from analyzers.model.doc import doc
from service.api.problems import Problem
from service.api.state import Service
from service.clock import now
from service.roles.directory import Directory, RoleDocument, Slot, lease_left
from service.roles.watching import TooManyWatchers

RETRY_SECONDS = 5.0


class RoleLease(msgspec.Struct, frozen=True, kw_only=True):
    """What a process holds."""

    role: Annotated[RoleDocument, doc("Its entry.")]
    seconds: Annotated[float, doc("The lease from now on: it renews within a third of it.")]


class DirectoryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The directory of a job's roles."""

    job: Annotated[str, doc("The job.")]
    version: Annotated[int, doc("Hand it back as `after`.")]
    epoch: Annotated[int, doc("The newest epoch that was given.")]
    items: Annotated[tuple[RoleDocument, ...], doc("Its instances that changed after `after`, by role and instance.")]
    unknown_roles: Annotated[
        tuple[str, ...],
        doc("Of these, the roles whose names `role_rules.toml` does not know: only their ends are judged."),
    ] = ()
    unheard: Annotated[
        tuple[str, ...],
        doc(
            "Of these, the instances (`rollout 1`) whose `state` is serving and that were not heard within their lease."
        ),
    ] = ()


async def wait(service: Service, job: str, version: int, seconds: float) -> None:
    """Wait until a directory is past a version, or the time is over; raise the problem of a wait too many."""
    try:
        await service.role_watch.wait(job, version, seconds)
    except TooManyWatchers as error:
        raise Problem("too-many-requests", f"{error}: end some first", retry_after_seconds=RETRY_SECONDS) from None


def directory_document(job: str, found: Directory, rules: RoleRules) -> DirectoryDocument:
    """Return a directory as the API shows it."""
    items = tuple(role_document(slot) for slot in found.slots.values())
    serving = {one.role for one in items if one.state == "serving"} - {"queue"}
    unknown = sorted(role for role in serving if not rules.kind(role))
    at = now()
    unheard = [one for one in found.slots.values() if one.state == "serving" and lease_left(one, at, 0.0) < 0]
    return DirectoryDocument(
        job=job, version=found.version, epoch=found.epoch, items=items, unknown_roles=tuple(unknown),
        unheard=tuple(f"{one.role} {one.instance}" for one in unheard),
    )  # fmt: skip


def role_document(slot: Slot) -> RoleDocument:
    """Return an instance as the API shows it, without the processes that it remembers."""
    return RoleDocument(**{name: getattr(slot, name) for name in RoleDocument.__struct_fields__})
