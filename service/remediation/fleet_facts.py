"""The facts that a step of remediation needs: where jobs run, what their owners declared, and other jobs on their nodes."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from math import inf
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from analyzers.remediation.guards import is_unseen
from analyzers.remediation.types import CLAIMED, UNDER_WAY, UNDOABLE, WAITING, FleetFacts, JobFacts, Remediation
from service.clock import PROCESS
from service.remediation import node_records, role_facts, rows
from service.store.models import Attempt, Execution, Incident, Job, Node, Placement, Token
from service.store.models import Remediation as Row
from service.store.observations import PLACED_SECONDS
from service.store.placements import is_newest

FLEET_SECONDS = 86_400.0  # a node without a report for this long has left the fleet
RUNNING_SECONDS = 120.0  # an agent reports running jobs once a minute
BELIEVED_SECONDS = 1_800.0  # for which a silent or queued job keeps its attempt against an attempt on fewer nodes
DEFAULT_GPUS = 8
MOST_ASKED = 8  # nodes of a job: they are alike
PLACED_AFTER_SECONDS = 120.0  # a placement that begins this soon after a drain was started before it
Run = tuple[
    int, Collection[str]
]  # an attempt, and nodes that are known to have run it beside those that it was placed on
OUT = UNDER_WAY | UNDOABLE  # with what has begun so, and was not undone, nodes are out


def load_facts(session: Session, now: float, remediations: Collection[Remediation]) -> FleetFacts:
    """Return the facts of the remediations that may act: the others need none."""
    acting = [one for one in remediations if one.status in WAITING | CLAIMED]
    names, incidents = {one.job for one in acting}, {one.incident for one in acting}
    nodes = {node for one in acting for node in one.nodes}
    back = {node for one in remediations if one.status in UNDOABLE for node in one.out}
    seen = session.execute(
        select(Incident.id, Incident.verdict_version, Incident.merged_into, Incident.onset_at, Incident.nodes)
        .where(Incident.id.in_(incidents))
    ).all()  # fmt: skip
    on = {row.id: row.nodes for row in seen}
    runs = {
        name: min((one.attempt or 0, tuple(on.get(one.incident, ()))) for one in acting if one.job == name)
        for name in names
    }
    return FleetFacts(
        fleet_nodes=count_fleet(session, now),
        jobs={
            name: facts for name in sorted(names) if (facts := load_job_facts(session, name, runs[name])) is not None
        },
        tenants=load_tenants(session, now, nodes),
        newest_verdicts={row.id: row.verdict_version for row in seen},
        merged={row.id: row.merged_into for row in seen if row.merged_into is not None},
        onsets={row.id: row.onset_at for row in seen},
        taken=load_taken(session, back),
        clock_doubt=PROCESS.doubt,
    )


def count_fleet(session: Session, now: float) -> int:
    """Return how many nodes the breaker's share is of: those that have reported within a day and are no sender's invention.

    A token that is bound to no node may report under any name. Where nodes have tokens of their own, only those count;
    elsewhere those that first reported a day ago, and on the first day all.
    """
    reporting = select(Node.name, Node.first_seen_at).where(Node.last_seen_at >= now - FLEET_SECONDS)
    first_seen = {name.lower(): at for name, at in session.execute(reporting)}
    valid = Token.revoked_at.is_(None) & (Token.expires_at.is_(None) | (Token.expires_at > now))
    bound = {node.lower() for node in session.scalars(select(Token.node).where(Token.node.is_not(None), valid)) if node}
    if own := len(bound & first_seen.keys()):
        return own
    return sum(at <= now - FLEET_SECONDS for at in first_seen.values()) or len(first_seen)


def load_job_facts(session: Session, name: str, run: Run | None = None) -> JobFacts | None:
    """Return what is known of a job; None where it was neither seen nor declared, and no role of it is registered.

    ``run``: what is asked about; the facts are of the newest attempt that goes on from it.
    """
    row, epochs = session.get(Job, name), role_facts.read_epochs(session, name)
    if row is None:
        return JobFacts(epochs=epochs) if epochs else None
    newest = newest_attempt(session, name, run)
    attempt = None if newest is None else session.get(Attempt, (name, newest))
    ranks = {} if attempt is None else _ranks_by_node(session, attempt)
    declared, number = row.declared, None if attempt is None else attempt.number
    return JobFacts(
        nodes=tuple(sorted(ranks)),
        attempt=number,
        gpus_per_node=max(ranks.values(), default=DEFAULT_GPUS),
        minimum_nodes=declared.get("minimum_nodes"),
        spares=_spares(session, row, number, ranks.keys()),
        saving_since=row.saving_since,
        save_seconds=row.save_seconds,
        holders=_holders(declared),
        last_checkpoint_at=row.last_checkpoint_at,
        epochs=epochs,
    )


def newest_attempt(session: Session, job: str, run: Run | None = None) -> int | None:
    """Return the number of a job's newest attempt, of those that go on from ``run``; None: it was not seen to run.

    One agent alone does not begin an attempt: an attempt counts once it runs on half as many nodes as any other that was reported
    within ``BELIEVED_SECONDS``. Nor does one agent end an attempt while the others are silent: of those that count, one that is
    reported now comes first. So a job that was restarted on few nodes has its new attempt after that time at the latest.
    """
    related = None if run is None else going_on(session, job, run)
    counted = Attempt.job == job if related is None else (Attempt.job == job) & Attempt.number.in_(related)
    seen_at = session.scalar(select(func.max(Attempt.last_seen_at)).where(counted))
    if seen_at is None:
        return None
    believed = _count_nodes(session, counted, seen_at - BELIEVED_SECONDS)
    most = max(believed.values(), default=0)
    for nodes in (_count_nodes(session, counted, seen_at - PLACED_SECONDS - RUNNING_SECONDS), believed):
        if known := [number for number, count in nodes.items() if 2 * count >= most]:
            return max(known)
    return session.scalar(select(func.max(Attempt.number)).where(counted))


def later_attempt(session: Session, job: str, run: Run) -> int | None:
    """Return the newest attempt that goes on from a run; None: there is none."""
    newest = newest_attempt(session, job, run)
    return newest if newest is not None and newest > run[0] else None


def going_on(session: Session, job: str, run: Run) -> set[int] | None:
    """Return the attempts that go on from a run, its own included; None where nothing is known of where that was.

    Strangers may report an attempt of a job that is dead. One goes on from another where a node of that takes part in it, or of
    one between them, or a node that the job's declaration names.
    """
    number, on = run[0], _nodes_by_attempt(session, job, run)
    if not (known := on.get(number, set())):
        return None
    known |= _declared(session, job)
    found = {number}
    for attempt in sorted(on, key=lambda one: (one < number, one)):
        if not known.isdisjoint(on[attempt]):
            found.add(attempt)
            known |= on[attempt] if attempt > number else set()
    return found


def has_strangers(session: Session, job: str, run: Run) -> bool:
    """Whether later attempts of a job are reported that do not go on from a run: they may be inventions."""
    related = going_on(session, job, run)
    return related is not None and any(one > run[0] for one in _nodes_by_attempt(session, job, run).keys() - related)


def is_strange(session: Session, job: str, run: Run) -> bool:
    """Whether a run goes on from none that was seen before it, and was not declared."""
    on = _nodes_by_attempt(session, job, run)
    seen = select(Attempt.number, Attempt.first_seen_at).where(Attempt.job == job)
    began_at = {row[0]: row[1] for row in session.execute(seen)}
    earlier = [number for number in on if number != run[0] and began_at.get(number, inf) < began_at.get(run[0], inf)]
    before = set[str]().union(*(on[number] for number in earlier))
    return bool(before) and on.get(run[0], set()).isdisjoint(before | _declared(session, job))


def _nodes_by_attempt(session: Session, job: str, run: Run) -> dict[int, set[str]]:
    number, nodes = run
    found = {number: {node.lower() for node in nodes}} if nodes else dict[int, set[str]]()
    placed = select(Placement.attempt, Placement.node).where(Placement.job == job).distinct()
    for attempt, node in session.execute(placed):
        found.setdefault(attempt, set()).add(node.lower())
    return found


def _declared(session: Session, job: str) -> set[str]:
    row = session.get(Job, job)
    return {node.lower() for node in row.declared.get("nodes", ())} if row is not None else set()


def _count_nodes(session: Session, counted: ColumnElement[bool], since: float) -> dict[int, int]:
    """Return on how many nodes each of these attempts was reported since then."""
    same = (Attempt.job == Placement.job) & (Attempt.number == Placement.attempt)
    placed = select(Placement.attempt, func.count(Placement.node.distinct())).join(Attempt, same)
    placed = placed.where(counted, Attempt.last_seen_at >= since, Placement.last_seen_at >= since)
    return {row[0]: row[1] for row in session.execute(placed.group_by(Placement.attempt))}


def has_gpus(session: Session, nodes: Sequence[str]) -> bool:
    """Return False where the agents of a job's first nodes find no GPU."""
    rows = session.execute(select(Node.devices, Node.coverage).where(Node.name.in_(nodes[:MOST_ASKED]))).all()
    looked = [one for _, coverage in rows for one in coverage.get("collectors", ()) if one["name"] == "gpu"]
    found = any(device["type"] == "gpu" for devices, _ in rows for device in devices.values())
    return found or not looked or any(one["nothing"] < one["runs"] for one in looked)


def load_tenants(session: Session, now: float, nodes: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the jobs that run on these nodes now. A placement's row is updated every few minutes, its attempt's more often."""
    runs = (
        Placement.node.in_(sorted(nodes)),
        Placement.last_seen_at >= now - PLACED_SECONDS - RUNNING_SECONDS,
        Attempt.last_seen_at >= now - RUNNING_SECONDS,
    )
    same = (Attempt.job == Placement.job) & (Attempt.number == Placement.attempt)
    found: dict[str, set[str]] = {}
    for node, name in session.execute(
        select(Placement.node, Placement.job).join(Attempt, same).where(*runs).distinct()
    ):
        found.setdefault(node, set()).add(name)
    return {node: tuple(sorted(names)) for node, names in sorted(found.items())}


def load_taken(session: Session, nodes: Set[str]) -> dict[str, tuple[str, ...]]:
    """Return which remediations have taken these nodes out and keep them out.

    A node is back in service once its return was recorded, or once a job was placed on it.
    """
    if not nodes:
        return {}
    newest = select(Placement.node, func.max(Placement.first_seen_at)).where(Placement.node.in_(sorted(nodes)))
    placed_at = {row[0]: row[1] for row in session.execute(newest.group_by(Placement.node))}
    records = node_records.read_records(session, nodes)
    executed = select(Execution).join(Row, Row.id == Execution.remediation).where(Row.status.in_(OUT))
    found: dict[str, set[str]] = {}
    for done in session.scalars(executed):
        if nodes.isdisjoint(done.nodes) or (one := rows.read_one(session, done.remediation)) is None:
            continue
        for node in nodes & set(one.out):
            is_back = node in records and records[node].is_back_since(done.at)
            if not is_back and placed_at.get(node, done.at) <= done.at + PLACED_AFTER_SECONDS:
                found.setdefault(node, set()).add(one.id)
    return {node: tuple(sorted(ids)) for node, ids in sorted(found.items())}


def _spares(session: Session, row: Job, attempt: int | None, running_on: Set[str]) -> int | None:
    """Return how many of the declared spares are left, once the job runs on those that it has used.

    Evictions without a later attempt are not counted: their nodes are still among the job's. A node that came back is a spare
    again once its burn-in is over; a node that the job runs on again uses no spare.
    """
    spares: int | None = row.declared.get("spares")
    if spares is None:
        return None
    since = row.declared_at or 0.0
    began = select(Row).where(Row.job == row.name, Row.status.in_(OUT | {"undone"}), Row.changed_at >= since)
    taken_out = [one for found in session.scalars(began) if (one := rows.parse_row(found)) is not None]
    used = [
        (node, one.began_at)
        for one in taken_out
        if one.began_at is not None and one.began_at >= since and not is_unseen(one, attempt)
        for node in {*one.out, *one.give_back} - running_on
    ]
    records = node_records.read_records(session, {node for node, _ in used})
    gone = {node for node, at in used if (record := records.get(node)) is None or not record.is_spare_since(at)}
    return max(0, spares - len(gone))


def _ranks_by_node(session: Session, attempt: Attempt) -> dict[str, int]:
    """Return how many ranks of an attempt each node has. Ranks beyond the present world size are from a larger run.

    In a job of several roles that size is one role's, as a rule the trainers': a further rollout is no leftover.
    """
    of_attempt = (Placement.job == attempt.job, Placement.attempt == attempt.number)
    where = [*of_attempt, is_newest()]
    roles = session.scalar(select(func.count(Placement.role.distinct())).where(*of_attempt)) or 0
    if attempt.world_size is not None and roles < 2:
        where.append(Placement.rank < attempt.world_size)
    counted = select(Placement.node, func.count()).where(*where).group_by(Placement.node)
    return {row[0]: row[1] for row in session.execute(counted)}


def _holders(declared: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    holders = declared.get("checkpoint_holders") or {}
    return {node: tuple(others) for node, others in holders.items()}
