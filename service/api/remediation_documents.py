"""What the API shows of remediations: every field of the words, and what stands in the way of each at this moment."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from pydantic import BaseModel, Field

from analyzers.remediation import giving_back
from analyzers.remediation.approval import claimable_task
from analyzers.remediation.guards import find_blockers
from analyzers.remediation.types import (
    CLAIMED,
    UNDOABLE,
    WAITING,
    Blocker,
    Mode,
    Outcome,
    Remediation,
    RemediationKind,
    RemediationState,
    Status,
    Task,
)
from service.api.problems import HindranceDocument


class ClaimDocument(BaseModel):
    """Who acts, until when."""

    by: str
    token: int
    until: float
    task: Task


class EndingDocument(BaseModel):
    """How a claim was ended by who held it."""

    by: str
    token: int
    word: Literal["complete", "fail"]


class UndoDocument(BaseModel):
    """That somebody wants it undone."""

    by: str
    reason: str
    at: float


class Alternative(BaseModel):
    """Another plan that was weighed, and what it would have cost."""

    kind: str
    nodes: list[str] = []
    role: str | None = None
    expected_loss_gpu_hours: float | None = None
    why: str = ""


class GroupDocument(BaseModel):
    """Nodes that one run of a replay takes."""

    name: str = Field(description="H and a number in the first phase, V and a number in the second.")
    nodes: list[str]


class ReplayDocument(BaseModel):
    """Two phases of groups: those of one phase run at the same time, each so often."""

    horizontal: list[GroupDocument]
    vertical: list[GroupDocument]
    group_nodes: int
    replicas: int = Field(description="Data-parallel replicas within a group.")
    repeats: int


class RemediationDocument(BaseModel):
    """A plan under execution. Instants are UTC seconds."""

    id: str
    incident: str
    verdict_version: int = Field(description="Of the incident's verdict: the one that it rests on.")
    job: str
    attempt: int | None
    kind: RemediationKind
    nodes: list[str] = Field(description="To be taken out, or to be looked at; empty where the kind is about none.")
    role: str | None
    code_version: str | None = Field(description="For a rollback: where to.")
    replay: ReplayDocument | None = Field(description="For a replay: the groups of nodes to run it on.")
    fault_class: str
    symptom: str
    probability: float = Field(description="Of what the verdict names: the least of them.")
    why: str
    expected_loss_gpu_hours: float | None
    priced_tenants: list[str] = Field(description="Other jobs on these nodes: what they lose is in the loss.")
    alternatives: list[Alternative] = Field([], description="What else was weighed, the least loss first.")
    proposed_at: float
    proposed_by: str
    mode: Mode = Field(description="By which the policy took it up.")
    rule: str = Field(description="Of the policy; empty: none fits.")
    status: Status
    because: str = Field(description="Of the status, one sentence.")
    changed_at: float = Field(description="When the status began.")
    approved_by: str
    approved_at: float | None
    claim: ClaimDocument | None
    claims: int = Field(description="The newest token: an older one is refused.")
    failed_claims: int = Field(description="Claims that failed before anything was begun.")
    again_at: float | None = Field(description="After such a failure: when it can be claimed again.")
    ending: EndingDocument | None = Field(
        description="With what the holder of the newest claim that was ended has ended it."
    )
    cancelled_by: str = Field(description="Who cancelled it: proposed again, only a person lets it act.")
    began_at: float | None
    completed_at: float | None
    did: dict[str, Any] = Field(description="What the scheduler says it did, by node.")
    out: list[str] = Field(description="Nodes that are out by it, or may be.")
    undo: UndoDocument | None
    give_back: list[str] = Field(
        description="What its undoing gives back, or has: the others of its nodes another remediation has taken out as well."
    )
    outcome: Outcome | None = Field(description="What the job did afterwards.")
    version: int = Field(description="Its ETag. A heartbeat leaves it as it is.")
    task: Task | None = Field(description="What a scheduler can claim of it; null: nothing.")
    hindrances: list[HindranceDocument] = Field(description="All that keeps it from acting now, or from being undone.")


class Claimed(BaseModel):
    """A claim: who sends its token acts, until then."""

    token: int
    until: float = Field(description="UTC seconds, by the service's clock.")
    seconds: float = Field(description="How long it lasts, from when this was first asked: the policy bounds it.")
    task: Literal["do", "undo"]
    remediation: RemediationDocument


def document(one: Remediation, book: RemediationState, now: float) -> RemediationDocument:
    """Return a remediation as the API shows it."""
    told = msgspec.to_builtins(one) | {"task": claimable(one, now), "hindrances": _shown(in_the_way(one, book, now))}
    if one.status in UNDOABLE and one.may_have_taken and one.claim is None:
        told["give_back"] = giving_back.nodes(book, one)
    return RemediationDocument.model_validate(told)


def claimable(one: Remediation, now: float) -> Task | None:
    """Return what a scheduler can claim of it; what somebody holds is not to be claimed."""
    return None if one.claim is not None and one.claim.until > now else claimable_task(one)


def in_the_way(one: Remediation, book: RemediationState, now: float) -> list[Blocker]:
    """Return what keeps it from acting, or from being undone; nothing stands in the way of what has begun or is over."""
    if claimable_task(one) == "undo":
        return [found for found in find_blockers(book, one, now) if found.code == "frozen"]
    begun = one.status in CLAIMED and one.began_at is not None
    return find_blockers(book, one, now) if one.status in WAITING | CLAIMED and not begun else []


def _shown(found: list[Blocker]) -> list[dict[str, str]]:
    return [{"code": one.code, "text": one.text} for one in found]
