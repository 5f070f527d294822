"""Nodes under burn-in: the time in which jobs ran well on them is counted, and trouble makes it begin anew.

A node that was taken out is back once a job runs on it: whoever has returned it, and told nobody, is asked for nothing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from analyzers.incidents.state import EngineState
from analyzers.knowledge.convictions import Weights
from analyzers.remediation.burn_in import add_good_seconds, counted_from, restart_hours
from analyzers.remediation.node_history import NodeEvent, NodeRecord, update_record
from service.remediation import node_records
from service.remediation.fleet_facts import PLACED_AFTER_SECONDS
from service.store import events
from service.store.database import Database
from service.store.leases import Lease
from service.store.models import Incident, Placement, UnfitNode

LOOK_SECONDS = 60.0  # between two looks
SHOWN_SECONDS = 86_400.0  # an incident that was opened longer ago, and has closed, was seen at an earlier look
MOST_APART_SECONDS = 600.0  # two steps that lie farther apart prove nothing of the time between them
ENGINE = "engine"


class _Trouble(NamedTuple):
    """That an incident shows a node at fault."""

    at: float
    note: str
    is_open: bool


def watch_nodes(database: Database, lease: Lease, state: EngineState, weights: Weights, now: float) -> None:
    """Take down what jobs did since the last look on the nodes under burn-in."""
    with database.session() as session:
        back = _back(session)
        if not back and not node_records.read_burning_in(session):
            return
    with database.transaction() as session:
        lease.prove(session)
        for node, (at, job) in back.items():
            _take_back(session, node, NodeEvent(kind="returned", note=f"{job} runs on it"), at, weights, now)
        found = node_records.read_burning_in(session)
        troubles = _troubles(session, {node: record.since or 0.0 for node, record in found.items()}, now)
        for node in found:
            record = node_records.read_record(session, node, to_change=True)
            if record.burn_in == "burning_in":
                _look_at(session, state, record, troubles.get(node, []), weights, now)


def ran_well(state: EngineState, record: NodeRecord, now: float) -> tuple[float, float]:
    """Return how long jobs ran well on a node since its steps were last counted, and up to when that is known."""
    after = counted_from(record)
    instants = sorted(
        {
            row.at
            for view in state.jobs.values()
            if record.node in view.nodes and record.node in view.ranks.values()
            for row in view.rhythm.rows
            if after < row.at <= now and not row.nan
        }
    )
    if not instants:
        return 0.0, after
    # Of the first steps after the return nobody knows when they began.
    marks = [after, *instants] if record.stood_seconds else instants
    apart = (later - earlier for earlier, later in pairwise(marks))
    return math.fsum(seconds for seconds in apart if seconds <= MOST_APART_SECONDS), instants[-1]


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


def _take_back(session: Session, node: str, happened: NodeEvent, at: float, weights: Weights, now: float) -> None:
    record = node_records.read_record(session, node, to_change=True)
    if record.is_out():  # as before, nobody has said so meanwhile
        node_records.write_record(session, update_record(record, happened, at, weights), now)
        events.record(session, now, "node_returned", ENGINE, node, {"reason": happened.note})


def _look_at(
    session: Session, state: EngineState, record: NodeRecord, troubles: list[_Trouble], weights: Weights, now: float
) -> None:
    newest = max((one for one in troubles if one.at > (record.since or 0.0)), default=None)
    if newest is not None:
        node_records.write_record(session, restart_hours(record, newest.at, newest.note), now)
        events.record(session, now, "node_troubled", ENGINE, record.node, {"why": newest.note})
        return
    seconds, until = ran_well(state, record, now)
    if any(one.is_open for one in troubles):
        seconds, until = 0.0, max(until, now)
    after = add_good_seconds(record, seconds, until, weights)
    if after != record:
        is_over = after.burn_in != record.burn_in
        node_records.write_record(session, after, now, decided=is_over)
        if is_over:
            events.record(
                session,
                now,
                "node_fit",
                ENGINE,
                record.node,
                {"why": f"jobs ran well on it for {after.history[-1].note}"},
            )


def _troubles(session: Session, hours_since: Mapping[str, float], now: float) -> dict[str, list[_Trouble]]:
    """Return what has shown these nodes at fault since their hours began: a verdict that would take them out, their hardware."""
    columns = (Incident.id, Incident.opened_at, Incident.closed_at, Incident.state["symptoms"].label("symptoms"))
    since = Incident.opened_at >= min(hours_since.values(), default=0.0)
    lately = (Incident.opened_at >= now - SHOWN_SECONDS) | Incident.closed_at.is_(None)
    rows = session.execute(select(*columns).where(since, lately)).all()
    would_go = defaultdict[str, set[str]](set)
    of_these = UnfitNode.node.in_(hours_since), UnfitNode.incident.in_([row.id for row in rows])
    for node, incident in session.execute(select(UnfitNode.node, UnfitNode.incident).where(*of_these)):
        would_go[incident].add(node)
    found = defaultdict[str, list[_Trouble]](list)
    for row in rows:
        shown = {node for one in row.symptoms or () if one["kind"] == "hardware" for node in one["nodes"]}
        for node in (shown | would_go[row.id]) & hours_since.keys():
            if row.opened_at >= hours_since[node]:
                why = "its verdict names it" if node in would_go[row.id] else "an event of its hardware"
                found[node].append(_Trouble(row.opened_at, f"{row.id}: {why}", row.closed_at is None))
    return found
