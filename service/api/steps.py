"""One event of remediation from a request: checked, applied or rehearsed, and answered; or refused, and audited.

A refused step (under an ended claim, of an old version, against a hold) is in the audit log.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from sqlalchemy.orm import Session

from analyzers.remediation.messages import RemediationEvent, RemediationInstruction, RemediationRefused, Store
from analyzers.remediation.types import Blocker, Remediation, RemediationState
from service.api import etags
from service.api.auth import Caller
from service.api.problems import Problem
from service.api.remediation_documents import RemediationDocument, document, in_the_way
from service.api.state import Service
from service.clock import now
from service.remediation.repository import Check

KINDS = {
    "not_found": "not-found",
    "conflict": "conflict",
    "fenced": "fenced",
    "hindered": "hindered",
}
NOTED = {
    "conflict": "conflict_refused", "fenced": "fenced_refused", "hindered": "hindered_refused",
    "precondition-failed": "stale_refused",
}  # fmt: skip
DryRun = Annotated[bool, Query(description="Return what would happen, and change nothing.")]


def take(
    service: Service,
    caller: Caller,
    event: RemediationEvent,
    subject: str,
    check: Check | None = None,
    *,
    dry_run: bool = False,
) -> tuple[RemediationState, list[RemediationInstruction]]:
    """Apply an event; return the state before it, and the instructions. ``subject`` is what it is about."""
    at, met = now(), RemediationState()

    def meets(session: Session, state: RemediationState) -> None:
        nonlocal met
        met = state
        if check is not None:
            check(session, state)

    try:
        done = service.remedies.rehearse(event, at, meets)[1] if dry_run else service.remedies.handle(event, at, meets)
    except RemediationRefused as refused:
        problem = Problem(KINDS[refused.code], str(refused), hindrances=_blockers(refused, met, subject, at))
        _note(service, caller, event, subject, problem)
        raise problem from None
    except Problem as problem:  # of the check
        _note(service, caller, event, subject, problem)
        raise
    return met, done


def take_of_one(
    service: Service,
    caller: Caller,
    event: RemediationEvent,
    id: str,
    check: Check | None = None,
    *,
    dry_run: bool = False,
) -> tuple[Remediation, RemediationDocument]:
    """Apply an event of one remediation; return the remediation after it, and as the API shows it."""
    state, done = take(service, caller, event, id, check, dry_run=dry_run)
    changed = [made.remediation for made in done if isinstance(made, Store) and made.remediation.id == id]
    one = changed[-1] if changed else state.remediations[id]  # it was applied before
    return one, document(one, state, now())


def unchanged(if_match: str | None, id: str) -> Check:
    """Return the check that a remediation is still as it was when the client read it."""

    def check(_session: Session, state: RemediationState) -> None:
        if (one := state.remediations.get(id)) is not None:  # else the step refuses it
            etags.check(if_match, one.version, f"remediation {id}", f"/v1/remediations/{id}")

    return check


def _note(service: Service, caller: Caller, event: RemediationEvent, subject: str, problem: Problem) -> None:
    if (kind := NOTED.get(problem.kind)) is not None:
        service.audit.refused(kind, caller.actor, subject, f"{type(event).__name__}: {problem.detail}")


def _blockers(refused: RemediationRefused, state: RemediationState, id: str, now: float) -> list[Blocker]:
    if refused.code != "hindered":
        return []
    return in_the_way(state.remediations[id], state, now)
