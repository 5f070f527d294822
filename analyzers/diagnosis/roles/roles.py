"""Which role of a reinforcement-learning job holds up the others, and which of its instances: from what they report.

Trainers, rollouts, rewards and environments wait for one another most of the time by design. What each may do in which phase
is data (``knowledge/role_rules.toml``); who waits for whom, and where a chain of waits ends, is ``model/role_waits.py``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from analyzers.diagnosis.roles.processes import seen_processes
from analyzers.knowledge import Knowledge
from analyzers.knowledge.role_rules import RoleRules, role_rules
from analyzers.model.fault_classes import fault_class
from analyzers.model.finding import Cause, Evidence, Finding, Kind, Suspect, Symptom
from analyzers.model.frames import FrameRules
from analyzers.model.role_hardware import NodeGpus
from analyzers.model.role_instances import Instance, Seat, fold, newest_at, serving
from analyzers.model.role_look import Look, Stall
from analyzers.model.role_loops import saying_nothing
from analyzers.model.role_stalls import stalled
from analyzers.model.role_waits import RoleWaits
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import Device, RoleState

MOST_STALLS = 16


def analyze(window: Window, topology: Topology, knowledge: Knowledge) -> Iterator[Finding]:
    """Claim what holds up the job's roles, and say of which ranks another role is what they wait for."""
    rules = role_rules(knowledge)
    instances = fold(window.records_of(RoleState))
    NodeGpus(window.records_of(Device)).tell(instances)
    now = newest_at(instances)
    frames = window.once(FrameRules.of, knowledge)
    seen = seen_processes(window, instances, topology.seats, rules.bounds.grown_share, frames)
    # A window seldom holds enough of the past to show what is usual: without that, what is missing is all that is said.
    stalls = stalled(instances, now, rules, seen) or [*saying_nothing(Look(instances, now, rules, seen), known=False)]
    for stall in stalls[:MOST_STALLS]:
        yield _finding(stall, instances, rules, topology)
    waiting: dict[str, set[int]] = defaultdict(set)
    for one in RoleWaits(instances, rules, now).waiting:
        if (rank := rank_of(one, topology)) is not None:
            waiting[one.role].add(rank)
    for role, ranks in sorted(waiting.items()):
        yield Finding(
            analyzer="roles", family="roles", symptom="unknown", cause="none", fault_class="role_waits",
            scope=frozenset(ranks), role=role,
        )  # fmt: skip


def rank_of(one: Instance, topology: Topology) -> int | None:
    """Return an instance's rank: its own word, else that of the process that it is."""
    return one.rank if one.rank is not None else topology.seats.get(one.seat)


def _finding(stall: Stall, instances: Mapping[Seat, Instance], rules: RoleRules, topology: Topology) -> Finding:
    row = fault_class(stall.fault_class)
    waits = f"{stall.behind}, directly or not" if stall.blocked else ""
    name = f"{stall.role} {stall.instance}".strip()
    shown = Evidence(text=f"{name}: {stall.why}{waits}", source=stall.source, at=stall.at)
    cause: Cause = row.causes[0] if stall.instance else row.causes[-1]
    suspect = _suspect(stall, instances, rules, topology, shown, cause)
    if stall.missing:
        return Finding(
            analyzer="roles", family="roles", symptom="unknown", cause="unknown", fault_class=stall.fault_class,
            scope=frozenset(suspect.ranks), onset=stall.since, first_symptom=shown, evidence=(shown,), role=stall.role,
            missing=(stall.missing,),
        )  # fmt: skip
    symptom: Symptom = "slow" if stall.fault_class == "role_slow" else "hang"
    return Finding(
        analyzer="roles", family="roles", symptom=symptom, cause=cause, fault_class=stall.fault_class,
        suspects=(suspect,), together=True, scope=frozenset(suspect.ranks), onset=stall.since, first_symptom=shown,
        evidence=(shown,), role=stall.role,
    )  # fmt: skip


def _suspect(
    stall: Stall,
    instances: Mapping[Seat, Instance],
    rules: RoleRules,
    topology: Topology,
    shown: Evidence,
    cause: Cause,
) -> Suspect:
    one = instances.get((stall.role, stall.instance))
    restarts = "job" if rules.of_role(stall.role).restart == "job" else ""
    if one is None or not stall.instance:
        ranks = (rank_of(instances[seat], topology) for seat in stall.seats if seat in instances)
        return Suspect(
            kind="role", strength=stall.strength, why=stall.why, name=stall.role, role=stall.role, restarts=restarts,
            ranks=tuple(sorted(rank for rank in ranks if rank is not None)), evidence=(shown,),
        )  # fmt: skip
    rank = rank_of(one, topology)
    nodes = topology.parts.get(stall.role, topology).nodes
    node = one.node or (nodes.get(rank) if rank is not None else None)
    kind: Kind = "rank" if rank is not None else "node" if node and cause == "machine" else "role"
    return Suspect(
        kind=kind, strength=stall.strength, why=stall.why,
        ranks=() if rank is None else (rank,), node=node, name=f"{stall.role} {stall.instance}", role=stall.role,
        instances=(stall.instance,), restarts=restarts or _trainer_beside(one, instances, rules), evidence=(shown,),
    )  # fmt: skip


def _trainer_beside(one: Instance, instances: Mapping[Seat, Instance], rules: RoleRules) -> str:
    """Return the role of the trainer on a rollout's node: a hybrid machine is a trainer's (RobustRL, section 4).

    Not where each states a process of its own: then one starts again without the other (docs/decisions/0054).
    """
    if rules.kind(one.role) != "rollout" or one.node is None:
        return ""
    beside = [other for other in serving(instances) if rules.kind(other.role) == "trainer" and other.node == one.node]
    apart = one.pid is not None and all(other.pid not in {None, one.pid} for other in beside)
    return beside[0].role if beside and not apart else ""
