"""The tables. Instants are UTC seconds as float, sizes bytes; a change of a table is a migration in migrations/versions."""

from __future__ import annotations

from service.store.models.access_tables import Answer, AuditEvent, Lease, PageSession, Token
from service.store.models.fleet_tables import Attempt, Command, Job, Node, Placement, Progress, RoleDirectory, RoleSlot
from service.store.models.incident_tables import Alarm, Downtime, Feedback, Incident, TimelineEntry, UnfitNode, Verdict
from service.store.models.log_tables import Batch, Block, Cursor, Pin, RemovedBatches, ServiceClock
from service.store.models.remediation_tables import Execution, Hold, NodeRecord, Remediation, ShadowCase, Switch
from service.store.schema import Base, Sequence

__all__ = [
    "Alarm",
    "Answer",
    "Attempt",
    "AuditEvent",
    "Base",
    "Batch",
    "Block",
    "Command",
    "Cursor",
    "Downtime",
    "Execution",
    "Feedback",
    "Hold",
    "Incident",
    "Job",
    "Lease",
    "Node",
    "NodeRecord",
    "PageSession",
    "Pin",
    "Placement",
    "Progress",
    "Remediation",
    "RemovedBatches",
    "RoleDirectory",
    "RoleSlot",
    "Sequence",
    "ServiceClock",
    "ShadowCase",
    "Switch",
    "TimelineEntry",
    "Token",
    "UnfitNode",
    "Verdict",
]
