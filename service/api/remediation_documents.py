"""What the API shows of remediations: all their fields, the claimable task, and the blockers at this moment."""

from __future__ import annotations

from typing import Annotated

import msgspec

from analyzers.model.doc import doc
from analyzers.remediation.approval import claimable_task
from analyzers.remediation.guards import expires_at, find_blockers
from analyzers.remediation.types import CLAIMED, UNDOABLE, WAITING, Blocker, Remediation, RemediationState, Task


class RemediationDocument(Remediation, frozen=True, kw_only=True):
    """A plan and its execution. Instants are UTC seconds."""

    task: Annotated[Task | None, doc("What a scheduler can claim of it; null: nothing.")]
    expires_at: Annotated[
        float | None,
        doc("Until when it waits for a decision, or for a scheduler that begins; null: it has begun, or ended."),
    ]
    hindrances: Annotated[tuple[Blocker, ...], doc("All that keeps it from acting now, or from being undone.")]


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """A claim: the sender of its token acts, until it ends."""

    token: Annotated[int, doc("The fencing token, to be sent with every request under this claim.")]
    until: Annotated[float, doc("The end of the lease, UTC seconds by the service's clock.")]
    seconds: Annotated[float, doc("How long it lasts, from the first such request: the policy bounds it.")]
    task: Annotated[Task, doc("What the holder is to do.")]
    remediation: Annotated[RemediationDocument, doc("The remediation that is claimed.")]


def document(one: Remediation, book: RemediationState, now: float) -> RemediationDocument:
    """Return a remediation as the API shows it."""
    values = msgspec.structs.asdict(one)
    if one.status in UNDOABLE and one.may_have_taken and one.claim is None:
        values["give_back"] = book.nodes_to_give_back(one)
    blockers = tuple(in_the_way(one, book, now))
    return RemediationDocument(
        **values, task=claimable(one, now), hindrances=blockers, expires_at=expires_at(book.limits, one)
    )


def claimable(one: Remediation, now: float) -> Task | None:
    """Return the task that a scheduler can claim; None while a claim holds it."""
    return None if one.claim is not None and one.claim.until > now else claimable_task(one)


def in_the_way(one: Remediation, book: RemediationState, now: float) -> list[Blocker]:
    """Return the blockers of acting, or of the undo; what has begun or has ended has none."""
    if claimable_task(one) == "undo":
        return [found for found in find_blockers(book, one, now) if found.code == "frozen"]
    begun = one.status in CLAIMED and one.began_at is not None
    return find_blockers(book, one, now) if one.status in WAITING | CLAIMED and not begun else []
