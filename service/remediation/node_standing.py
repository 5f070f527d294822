"""The standing of each node: fit, suspected, out, under burn-in, or a repeat offender; and why."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace
from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from analyzers.knowledge.convictions import Weights
from analyzers.model.verdict import KEEPS_OUT
from analyzers.remediation import burn_in
from analyzers.remediation.node_history import DAY_SECONDS, NodeRecord, fault_probability, is_offender
from analyzers.remediation.types import UNBEGUN, UNDER_WAY, Remediation
from service.remediation import node_records, rows
from service.store.models import Incident, UnfitNode

State = Literal["fit", "suspected", "out", "burn_in", "offender"]


class NodeStanding(msgspec.Struct, frozen=True, kw_only=True):
    """One node. ``since`` and ``until`` are of the state; no ``until``: it is unknown."""

    record: NodeRecord
    probability: float  # that it is faulty, by all that is remembered
    state: State = "fit"
    why: str = "nothing stands against it"
    since: float | None = None
    until: float | None = None
    under_way: str = ""  # the remediation that takes it out, as long as that is not over


class _Against(NamedTuple):
    """Reasons against nodes beside their records."""

    out: dict[str, Remediation]  # they are taken out now, and it is not over
    suspected: dict[str, tuple[str, float, float | None]]  # node → why, since, until


def read_standings(
    session: Session, now: float, weights: Weights, nodes: Collection[str] | None = None
) -> dict[str, NodeStanding]:
    """Return the standing of nodes, by name; without ``nodes`` of all that are not fit."""
    against = _against(session, now)
    if nodes is None:
        records = node_records.read_unsettled(session)
        names = records.keys() | against.out.keys() | against.suspected.keys()
        records |= node_records.read_records(session, names - records.keys())
    else:
        names = set(nodes)
        records = node_records.read_records(session, names)
    return {
        name: _standing(records.get(name) or NodeRecord(node=name), against, now, weights) for name in sorted(names)
    }


def read_standing(session: Session, record: NodeRecord, now: float, weights: Weights) -> NodeStanding:
    """Return the standing of a node with this record."""
    return _standing(record, _against(session, now), now, weights)


def unfit_query(at: float) -> Select[str, str, str, float, float | None]:
    """Return the query of the nodes that an incident's newest verdict would take out: node, incident, why, at and until."""
    holds = UnfitNode.until.is_(None) | (UnfitNode.until > at)
    # An incident that an outage explains is no reason against a node.
    counts = Incident.merged_into.is_(None) | Incident.closed_at.is_not(None)
    columns = (UnfitNode.node, UnfitNode.incident, UnfitNode.why, UnfitNode.at, UnfitNode.until)
    found = select(*columns).join(Incident, Incident.id == UnfitNode.incident)
    return found.where(holds, counts).order_by(UnfitNode.at)


def _against(session: Session, now: float) -> _Against:
    against = _Against({}, {})
    for node, incident, why, at, until in session.execute(unfit_query(now)):
        against.suspected[node] = f"{incident}: {why}", at, until
    for one in rows.read_live(session).values():
        if one.status in UNDER_WAY and one.kind in KEEPS_OUT:
            against.out.update(dict.fromkeys(one.out, one))
        elif one.status in UNBEGUN:
            reason = f"{one.id} ({one.status}): {one.why}", one.proposed_at, None
            for node in one.nodes:
                against.suspected.setdefault(node, reason)
    return against


def _standing(record: NodeRecord, against: _Against, now: float, weights: Weights) -> NodeStanding:
    node, found = record.node, NodeStanding(record=record, probability=fault_probability(record, now, weights))
    because = burn_in.explain_unfit(record, now, weights)
    if (one := against.out.get(node)) is not None:
        why = f"{one.id} has taken it out of {one.job}, and what comes of that is not known yet"
        return replace(found, state="out", why=why, since=one.began_at, under_way=one.id)
    if record.burn_in == "out" or record.is_out():
        why = because or f"{node} was taken out and has not come back, and nothing stands against that"
        return replace(found, state="out", why=why, since=record.since)
    if (reason := against.suspected.get(node)) is not None:
        return replace(found, state="suspected", why=reason[0], since=reason[1], until=reason[2])
    if because is not None and is_offender(record, now, weights):
        until = record.evictions[-weights.offender.evictions] + weights.offender.days * DAY_SECONDS
        return replace(found, state="offender", why=because, since=record.since, until=until)
    if because is not None:
        until = now + burn_in.left_seconds(record, weights)
        return replace(found, state="burn_in", why=because, since=record.since, until=until)
    if record.history:
        last = record.history[-1]
        why = f"{found.why} any more: {last.kind.replace('_', ' ')} was the last that happened to it"
        return replace(found, why=why, since=record.since)
    return found
