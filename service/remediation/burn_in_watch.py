"""Nodes under burn-in: their good hours and troubles are read from the engine and the store, counted, and written.

A node that was taken out is back once a job runs on it, even where its return was not reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from analyzers.incidents.state import EngineState
from analyzers.knowledge.convictions import Weights
from analyzers.remediation.burn_in import NodeTrouble, observe
from analyzers.remediation.node_history import NodeEvent, update_record
from service.remediation import node_records
from service.remediation.fleet_facts import PLACED_AFTER_SECONDS
from service.store import audit_log
from service.store.database import Database
from service.store.leases import Lease
from service.store.models import Incident, Placement, UnfitNode

WATCH_SECONDS = 60.0  # between two observations
SHOWN_SECONDS = 86_400.0  # an incident that was opened longer ago, and has closed, was counted before
ENGINE = "engine"


def watch_nodes(database: Database, lease: Lease, state: EngineState, weights: Weights, now: float) -> None:
    """Record what jobs did on the nodes under burn-in since the last observation."""
    with database.session() as session:
        back = _back(session)
        if not back and not node_records.read_burning_in(session):
            return
    with database.transaction() as session:
        lease.prove(session)
        for node, (at, job) in back.items():
            _record_return(session, node, NodeEvent(kind="returned", note=f"{job} runs on it"), at, weights, now)
        found = node_records.read_burning_in(session)
        troubles = _troubles(session, {node: record.since or 0.0 for node, record in found.items()}, now)
        for node in found:
            record = node_records.read_record(session, node, to_change=True)
            if record.burn_in != "burning_in":
                continue
            seen = observe(record, troubles.get(node, []), _good_steps(state, node), now, weights)
            if seen.audit or seen.record != record:
                node_records.write_record(session, seen.record, now, decided=bool(seen.audit))
            if seen.audit:
                audit_log.record(session, now, seen.audit, ENGINE, node, {"why": seen.why})


def _good_steps(state: EngineState, node: str) -> list[float]:
    """Return when steps without a NaN ended, of the jobs that have a rank on the node."""
    views = [view for view in state.jobs.values() if node in view.nodes and node in view.ranks.values()]
    return [row.at for view in views for row in view.rhythm.rows if not row.nan]


def _back(session: Session) -> dict[str, tuple[float, str]]:
    """Return the nodes that are out by their records, and on which a job was placed since: when, and which."""
    out = {node: record.out_at for node, record in node_records.read_out(session).items() if record.out_at is not None}
    if not out:
        return {}
    since = (Placement.node.in_(sorted(out)), Placement.first_seen_at > min(out.values()))
    placed = select(Placement.node, Placement.job, Placement.first_seen_at).where(*since)
    found = {}
    for node, job, at in session.execute(placed.order_by(Placement.first_seen_at)):
        if at > out[node] + PLACED_AFTER_SECONDS:
            found[node] = at, job
    return found


def _record_return(session: Session, node: str, event: NodeEvent, at: float, weights: Weights, now: float) -> None:
    record = node_records.read_record(session, node, to_change=True)
    if record.is_out():  # its return was not reported in the meantime
        node_records.write_record(session, update_record(record, event, at, weights), now)
        audit_log.record(session, now, "node_returned", ENGINE, node, {"reason": event.note})


def _troubles(session: Session, hours_since: Mapping[str, float], now: float) -> dict[str, list[NodeTrouble]]:
    """Return what has shown these nodes at fault since their hours began: a verdict that would take them out, or hardware."""
    columns = (Incident.id, Incident.opened_at, Incident.closed_at, Incident.state["symptoms"].label("symptoms"))
    since = Incident.opened_at >= min(hours_since.values(), default=0.0)
    lately = (Incident.opened_at >= now - SHOWN_SECONDS) | Incident.closed_at.is_(None)
    rows = session.execute(select(*columns).where(since, lately)).all()
    would_go = defaultdict[str, set[str]](set)
    of_these = UnfitNode.node.in_(hours_since), UnfitNode.incident.in_([row.id for row in rows])
    for node, incident in session.execute(select(UnfitNode.node, UnfitNode.incident).where(*of_these)):
        would_go[incident].add(node)
    found = defaultdict[str, list[NodeTrouble]](list)
    for row in rows:
        shown = {node for one in row.symptoms or () if one["kind"] == "hardware" for node in one["nodes"]}
        for node in (shown | would_go[row.id]) & hours_since.keys():
            if row.opened_at >= hours_since[node]:
                why = "its verdict names it" if node in would_go[row.id] else "an event of its hardware"
                found[node].append(NodeTrouble(row.opened_at, f"{row.id}: {why}", row.closed_at is None))
    return found
