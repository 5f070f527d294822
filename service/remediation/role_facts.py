"""What a restart of a role rests on: the job's directory of roles, its declaration, and the restarts before."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal

import msgspec
from sqlalchemy import select
from sqlalchemy.orm import Session

from analyzers.knowledge.role_rules import RoleRules
from analyzers.model.verdict import Action, Culprit, Verdict
from analyzers.remediation.plan import Plan
from analyzers.remediation.proposal import remediation_id
from analyzers.remediation.role_restart import PastRestart, RoleFacts, RoleInstance, role_options
from analyzers.remediation.types import Remediation
from service.remediation import rows
from service.roles.directory import Slot, lease_left
from service.roles.readings import running
from service.store.models import Job, RoleSlot
from service.store.models import Remediation as Row

MOST_PAST = 256


class NotRestarted(Exception):
    """The role cannot be restarted alone. ``unknown``: it is not registered."""

    def __init__(self, why: str, *, unknown: bool = False) -> None:
        super().__init__(why)
        self.unknown = unknown


def read_role_facts(session: Session, job: str, rules: RoleRules) -> RoleFacts:
    """Return what is known of a job's roles, by what their names mean; without a directory only the declaration and the past."""
    row = session.get(Job, job)
    declared = {} if row is None else row.declared
    slots = _slots(session, job)
    heard_at = max((slot.renewed_at for slot in slots), default=0.0)
    instances = tuple(_instance(slot, heard_at) for slot in slots)
    return RoleFacts(
        instances=instances,
        past=tuple(_past(session, job, instances, heard_at, {(slot.role, slot.instance): slot for slot in slots})),
        standbys=tuple(declared.get("standby_nodes", ())),
        kinds=dict(declared.get("node_kinds", {})),
        reserve=max((declared.get("parallel") or {}).values(), default=0),
        rules=rules,
    )


def read_epochs(session: Session, job: str) -> dict[str, dict[str, int]]:
    """Return the present epochs of a job's instances by role."""
    found: dict[str, dict[str, int]] = {}
    for slot in _slots(session, job):
        found.setdefault(slot.role, {})[slot.instance] = slot.epoch
    return found


def build_request(
    session: Session, job: str, role: str, instance: str | None, by: str, why: str, now: float, rules: RoleRules
) -> Remediation:
    """Return the proposal that a person asks for; raise ``NotRestarted``. No verdict stands behind it, and no incident."""
    facts = read_role_facts(session, job, rules)
    named = role if instance is None else f"{role} {instance}"
    verdict = Verdict(
        symptom="unknown", cause="unknown", abstained=False, culprits=(Culprit(root="r1", kind="role", id=named),),
        action=Action(kind="restart_role", role=role, instance=instance),
    )  # fmt: skip
    option = next(iter(role_options(verdict, facts)), None)
    if option is None or not option.restart.epochs:
        raise NotRestarted(f"{named} of {job} is not registered: GET /v1/jobs/{job}/roles lists what is", unknown=True)
    if option.bar:
        raise NotRestarted(f"{named} of {job} is not restarted alone: {option.bar}; restart the whole job")
    attempt = max(slot.attempt for slot in _slots(session, job))
    incident = f"inc-{hashlib.sha256(f'{job} {named} {option.restart.epochs}'.encode()).hexdigest()[:12]}"
    return Remediation(
        id=remediation_id(incident, Plan(kind="restart_role", role=role, restart=option.restart)), incident=incident,
        verdict_version=0, job=job, attempt=attempt, kind="restart_role", nodes=(), fault_class="", symptom="unknown",
        probability=0.0, why=why, proposed_at=now, role=role, role_restart=option.restart, proposed_by=by,
    )  # fmt: skip


def _slots(session: Session, job: str) -> list[Slot]:
    """Return the slots of the attempt that runs."""
    query = select(RoleSlot).where(RoleSlot.job == job).order_by(RoleSlot.role, RoleSlot.instance)
    return running(msgspec.convert(row.document, Slot) for row in session.scalars(query))


def _instance(slot: Slot, heard_at: float) -> RoleInstance:
    """Return an instance. Its lease is over only where a peer was heard after its end: else the service was away."""
    over = slot.state == "serving" and lease_left(slot, heard_at, 0.0) <= 0
    return RoleInstance(
        role=slot.role, instance=slot.instance, epoch=slot.epoch, node=slot.node, weights=slot.weights,
        first_weights=slot.first_weights, registered_at=slot.registered_at, worked=slot.worked,
        state="lost" if over else slot.state,
    )  # fmt: skip


def _past(
    session: Session,
    job: str,
    instances: tuple[RoleInstance, ...],
    heard_at: float,
    slots: Mapping[tuple[str, str], Slot],
) -> list[PastRestart]:
    """Return the restarts since the job last began as a whole: since every instance that serves registered.

    What a restart itself has registered began no job: where it is all that serves, only a later attempt has.
    """
    serving = [one for one in instances if one.serving]
    newest = max((slot.attempt for slot in slots.values()), default=0)

    def is_past(one: Remediation, began_at: float) -> bool:
        own = one.role_restart.epochs if one.role_restart is not None else {}
        others = [other for other in serving if other.role != one.role or other.instance not in own]
        same = one.attempt is None or one.attempt >= newest
        return any(other.registered_at <= began_at for other in serving) or (not others and same)

    query = select(Row).where(Row.job == job, Row.kind == "restart_role").order_by(Row.proposed_at.desc())
    found = [one for row in session.scalars(query.limit(MOST_PAST)) if (one := rows.parse_row(row)) is not None]
    begun = [(one.began_at, one) for one in found if one.began_at is not None and is_past(one, one.began_at)]
    return [
        PastRestart(
            role=one.role or "",
            step=one.role_restart.step if one.role_restart else None,
            outcome=_outcome(one, slots),
            instances=tuple(one.role_restart.epochs) if one.role_restart else (),
            seconds_ago=max(0.0, heard_at - at),
        )
        for at, one in sorted(begun, key=lambda pair: pair[0])
    ]


def _outcome(one: Remediation, slots: Mapping[tuple[str, str], Slot]) -> Literal["cured", "failed", "pending"]:
    """Return what became of a restart. One whose report was lost, or that another program forestalled, did not fail."""
    if one.outcome == "not_cured" or (one.status == "failed" and not _is_back(one, slots)):
        return "failed"
    return "cured" if one.outcome == "cured" else "pending"


def _is_back(one: Remediation, slots: Mapping[tuple[str, str], Slot]) -> bool:
    """Whether each of its instances has registered anew."""
    epochs = one.role_restart.epochs if one.role_restart is not None else {}
    present = {name: slots.get((one.role or "", name)) for name in epochs}
    return bool(epochs) and all(slot is not None and slot.epoch > epochs[name] for name, slot in present.items())
