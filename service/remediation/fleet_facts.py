"""The facts that a step of remediation needs: where jobs run, what their owners declared, and other jobs on their nodes."""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from typing import Any

from sqlalchemy import func, select
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
OUT = UNDER_WAY | UNDOABLE  # with what has begun so, and was not undone, nodes are out


def load_facts(session: Session, now: float, remediations: Collection[Remediation]) -> FleetFacts:
    """Return the facts of the remediations that may act: the others need none."""
    acting = [one for one in remediations if one.status in WAITING | CLAIMED]
    names, incidents = {one.job for one in acting}, {one.incident for one in acting}
    nodes = {node for one in acting for node in one.nodes}
    back = {node for one in remediations if one.status in UNDOABLE for node in one.out}
    seen = session.execute(
        select(Incident.id, Incident.verdict_version, Incident.merged_into, Incident.onset_at)
        .where(Incident.id.in_(incidents))
    ).all()  # fmt: skip
    return FleetFacts(
        fleet_nodes=count_fleet(session, now),
        jobs={name: facts for name in sorted(names) if (facts := load_job_facts(session, name)) is not None},
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


def load_job_facts(session: Session, name: str) -> JobFacts | None:
    """Return what is known of a job; None where it was neither seen nor declared, and no role of it is registered."""
    row, epochs = session.get(Job, name), role_facts.read_epochs(session, name)
    if row is None:
        return JobFacts(epochs=epochs) if epochs else None
    newest = newest_attempt(session, name)
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


def newest_attempt(session: Session, job: str) -> int | None:
    """Return the number of a job's newest attempt; None: it was not seen to run.

    One agent alone does not begin an attempt: an attempt counts once it runs on half as many nodes as any other that was reported
    within ``BELIEVED_SECONDS``. Nor does one agent end an attempt while the others are silent: of those that count, one that is
    reported now comes first. So a job that was restarted on few nodes has its new attempt after that time at the latest.
    """
    of_job = Attempt.job == job
    seen_at = session.scalar(select(func.max(Attempt.last_seen_at)).where(of_job))
    if seen_at is None:
        return None
    believed = _count_nodes(session, job, seen_at - BELIEVED_SECONDS)
    most = max(believed.values(), default=0)
    for nodes in (_count_nodes(session, job, seen_at - PLACED_SECONDS - RUNNING_SECONDS), believed):
        if known := [number for number, count in nodes.items() if 2 * count >= most]:
            return max(known)
    return session.scalar(select(func.max(Attempt.number)).where(of_job))


def later_attempt(session: Session, job: str, attempt: int) -> int | None:
    """Return the newest attempt where it goes on from an earlier one; None: it does not, or there is none.

    Strangers may report an attempt of a job that is dead. It counts where a node of the earlier one takes part in it, or the
    job's declaration names one of its nodes; and where nothing is known of where the earlier one ran.
    """
    newest = newest_attempt(session, job)
    if newest is None or newest <= attempt:
        return None
    before, after = (_nodes_of(session, job, number) for number in (attempt, newest))
    row = session.get(Job, job)
    declared = {node.lower() for node in row.declared.get("nodes", ())} if row is not None else set[str]()
    return newest if not before or not after or after & (before | declared) else None


def _nodes_of(session: Session, job: str, attempt: int) -> set[str]:
    placed = select(Placement.node).where(Placement.job == job, Placement.attempt == attempt).distinct()
    return {node.lower() for node in session.scalars(placed)}


def _count_nodes(session: Session, job: str, since: float) -> dict[int, int]:
    """Return on how many nodes each attempt of a job was reported since then."""
    reported = select(Attempt.number).where(Attempt.job == job, Attempt.last_seen_at >= since)
    placed = select(Placement.attempt, func.count(Placement.node.distinct())).where(
        Placement.job == job, Placement.attempt.in_(reported), Placement.last_seen_at >= since
    )
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
    """Return how many ranks of an attempt each node has. Ranks beyond the present world size are from a larger run."""
    where = [Placement.job == attempt.job, Placement.attempt == attempt.number, is_newest()]
    if attempt.world_size is not None:
        where.append(Placement.rank < attempt.world_size)
    counted = select(Placement.node, func.count()).where(*where).group_by(Placement.node)
    return {row[0]: row[1] for row in session.execute(counted)}


def _holders(declared: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    holders = declared.get("checkpoint_holders") or {}
    return {node: tuple(others) for node, others in holders.items()}
