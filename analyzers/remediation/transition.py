"""A step at work: its own copy of the state, and its instructions."""

from __future__ import annotations

from itertools import islice
from typing import Any

from msgspec.structs import replace

from analyzers.remediation.messages import AuditEntry, RemediationInstruction, RemediationRefused, Store
from analyzers.remediation.types import Remediation, RemediationState

MOST_INSTANCES = 16  # named in an entry


class Transition:
    """One step. The given state stays as it is."""

    def __init__(self, state: RemediationState, now: float) -> None:
        self.state = replace(state, remediations=dict(state.remediations), holds=dict(state.holds))
        self.now = now
        self.instructions: list[RemediationInstruction] = []

    def find(self, id: str) -> Remediation:
        """Return a remediation; refuse where there is none."""
        if (found := self.state.remediations.get(id)) is None:
            raise RemediationRefused(
                "not_found", f"there is no remediation {id}: `faulthound remediations list` names those there are"
            )
        return found

    def require(self, holds: bool, one: Remediation, wanted: str) -> None:  # noqa: FBT001 it is what must hold
        """Refuse an event that the status does not allow."""
        if not holds:
            because = f" ({one.because})" if one.because else ""
            raise RemediationRefused("conflict", f"{one.id} is {one.status}{because}: it cannot be {wanted} now")

    def change(
        self, one: Remediation, kind: str, by: str, details: dict[str, Any] | None = None, **fields: Any
    ) -> Remediation:
        """Store a changed remediation with an audit entry."""
        if fields.get("status", one.status) != one.status:
            fields["changed_at"] = self.now
        changed = replace(one, **fields, version=one.version + 1)
        self.store(changed)
        self.audit(f"remediation_{kind}", by, changed, details)
        return changed

    def store(self, one: Remediation) -> None:
        """Store a remediation."""
        self.state.remediations[one.id] = one
        self.instructions = [
            *(other for other in self.instructions if not isinstance(other, Store) or other.remediation.id != one.id),
            Store(remediation=one),
        ]

    def audit(self, kind: str, by: str, one: Remediation | None, details: dict[str, Any] | None = None) -> None:
        """Add an entry for audit log, timeline and stream."""
        about: dict[str, Any] = (
            {} if one is None else {"incident": one.incident, "kind": one.kind, "nodes": list(one.nodes)}
        )
        if one is not None and one.role_restart is not None:
            epochs = dict(islice(one.role_restart.epochs.items(), MOST_INSTANCES))
            about |= {"role": one.role, "role_restart": {"instance": one.role_restart.instance, "epochs": epochs}}
        id = None if one is None else one.id
        self.instructions.append(AuditEntry(kind=kind, by=by, remediation=id, details=about | (details or {})))
