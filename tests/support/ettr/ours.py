"""The product at work: verdict, plan or ladder, step, scheduler, verification, conviction, standbys: its own functions."""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TypeVar, cast

import simpy
from msgspec.structs import replace

from analyzers.knowledge import Knowledge
from analyzers.knowledge import convictions as weighing
from analyzers.remediation import burn_in, dual_phase, ladder, messages, node_history, standbys
from analyzers.remediation import types as words
from analyzers.remediation.ladder.job_history import RungKind as Rung
from analyzers.remediation.plan import Costs, Situation, choose_plan
from analyzers.remediation.step import step
from analyzers.remediation.types import (
    FleetFacts,
    JobFacts,
    Policy,
    Remediation,
    RemediationState,
    Rule,
)
from analyzers.remediation.types import Tally as Shadowed
from tests.support.ettr.looks import Look, look
from tests.support.ettr.node_faults import Fault
from tests.support.ettr.run import Run, count
from tests.support.ettr.simulated_nodes import Wait

Value = TypeVar("Value")
Reported = Generator[simpy.Event, object, Value]
"""Waits, and then has a value."""
JOB = "train"
RETRY_SECONDS = 30.0
HANG_TIMEOUT_SECONDS = 600.0  # of a collective, after which a job that nobody touched ends by itself
REMEMBERED = 64  # remediations in the book
AUTOMATIC = Policy(
    rules=(
        Rule(name="one node", mode="automatic", kind="evict", least_probability=0.9, most_nodes=1),
        Rule(name="again", mode="automatic", kind="reattempt"),
        Rule(name="back", mode="automatic", kind="rollback"),
        Rule(name="restart", mode="automatic", kind="restart_job"),
    )
)
SHADOWED = {rule.name: Shadowed(seen=400, right=400) for rule in AUTOMATIC.rules}  # shadow mode lies behind it


@dataclass
class Trouble:
    """One failure, on its way from verdict to restart."""

    fault: Fault
    seen: Look
    incident: str
    alerts: tuple[ladder.NetworkAlert, ...] = ()


@dataclass
class Ours:
    """The product's answer. ``policy`` without rules: everything waits for a person."""

    knowledge: Knowledge
    policy: Policy = AUTOMATIC
    records: dict[str, node_history.NodeRecord] = field(default_factory=dict)
    attempts: list[ladder.JobAttempt] = field(default_factory=list)
    taken: list[ladder.TriedRung] = field(default_factory=list)
    known: set[int] = field(default_factory=set)  # faults that have struck before

    def __post_init__(self) -> None:
        """Read what is known, and open an empty book."""
        self.costs, self.weights = Costs.from_knowledge(self.knowledge), weighing.weights(self.knowledge)
        self.bounds, self.prior = self.weights.ladder, self.weights.rate
        self.book = RemediationState(policy=self.policy, tallies=SHADOWED)
        self.incidents, self.failures = 0, 0
        self.version, self.number = 1, 0  # of the code; of the newest attempt
        self.saving_since: float | None = None

    def recover(self, run: Run, fault: Fault, ran_seconds: float) -> Wait:
        """Answer a strike."""
        run.back = lambda node: self._burn_in(run, node)
        self._verified(run, fault)
        rate = standbys.estimate_rate(self.failures, run.env.now / 86_400.0 * run.mix.nodes, self.prior)
        run.fleet.wake(standbys.count_standbys(run.mix.nodes, min(1.0, rate.per_node_day)))
        seen = look(fault, run.fleet, run.parameters, run.lots)
        stands = seen.verdict.symptom == "hang"
        self.saving_since = run.env.now if run.saving and stands else None
        yield from run.wait(seen.seconds)
        self.incidents += 1
        trouble = Trouble(fault, seen, f"inc-{self.incidents:012x}", _alerts(fault, run.env.now))
        self._remember(run, fault, seen, ran_seconds, ended_at=None if stands else run.env.now)
        yield from self._answer(run, trouble)
        self.saving_since = None
        if self.book.remediations:
            run.env.process(self._verify(run, run.attempt))

    # --- what to do

    def _answer(self, run: Run, trouble: Trouble) -> Wait:
        """Do what the plan says; where it says nothing, or something was tried before, climb the ladder."""
        plan = choose_plan(trouble.seen.verdict, self._situation(run), self.costs)
        if plan.kind not in ("none", "reset_gpu", "reboot_node") and not self._tried(run):
            nodes = self.chosen(run, plan.nodes)
            if (yield from self._act(run, trouble, plan.kind, nodes, plan.probability)):
                return
        waited = False
        while True:
            rung = ladder.next_rung(self._history(run, trouble), self.bounds)
            count(run.tally.did, f"ladder {rung.kind}")
            if rung.kind in ("probe", "replay"):
                found = yield from self._looked(run, trouble.fault, rung)
                self.taken.append(ladder.TriedRung(kind=rung.kind, attempt=self.number, nodes=rung.nodes, found=found))
            elif rung.kind != "none":
                if (yield from self._act(run, trouble, rung.kind, self.chosen(run, rung.nodes), 0.97)):
                    return
            elif not waited and self.attempts[-1].ended_at is None:
                waited = True
                yield from run.wait(HANG_TIMEOUT_SECONDS)
                self.attempts[-1] = replace(self.attempts[-1], ended_at=run.env.now)
            else:
                yield from run.found_by_hand(trouble.fault)
                return

    def chosen(self, run: Run, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """Return the nodes that are taken out: those of the plan."""
        return nodes

    def _looked(self, run: Run, fault: Fault, rung: ladder.Rung) -> Reported[tuple[str, ...]]:
        """Check nodes, or replay the job on groups of them; the value is what was found."""
        if rung.replay is not None:
            yield from run.wait(run.parameters.replay_seconds * rung.replay.repeats)
            groups = (*rung.replay.horizontal, *rung.replay.vertical)
            bad = [group.name for group in groups if fault.node in group.nodes and fault.lasting]
            return dual_phase.intersect_groups(rung.replay, bad)
        yield from run.wait(run.parameters.probe_seconds)
        faulty = [one.node for one in run.latent if one.lasting and one.node in rung.nodes]
        return tuple(node for node in faulty if node is not None and run.lots.random() < run.parameters.probe_recall)

    def _situation(self, run: Run) -> Situation:
        return Situation(
            nodes=tuple(run.fleet.job), spares=run.fleet.spares, minimum_nodes=run.mix.nodes,
            holders=run.fleet.holders, seconds_since_checkpoint=run.checkpoint_age,
        )  # fmt: skip

    # --- what is remembered

    def _remember(self, run: Run, fault: Fault, seen: Look, ran: float, ended_at: float | None) -> None:
        """A fault of the code comes with a new version of it: the one before ran well."""
        self.number += 1
        if fault.kind.cause == "code" and fault.number not in self.known:
            self.attempts.append(
                ladder.JobAttempt(number=self.number, code_version=f"v{self.version}", good_seconds=ran)
            )
            self.version, self.number, ran = self.version + 1, self.number + 1, 0.0
        self.known.add(fault.number)
        failed = ladder.build_attempt(
            self.number, seen.verdict, code_version=f"v{self.version}", ended_at=ended_at, good_seconds=ran
        )
        self.attempts = [*self.attempts[-REMEMBERED:], failed]
        self.taken = self.taken[-REMEMBERED:]

    def _tried(self, run: Run) -> bool:
        """Whether something was tried since the job last ran well."""
        well = [one.number for one in self.attempts if one.good_seconds >= self.bounds.settled_seconds]
        return any(one.attempt >= max(well, default=0) for one in self.taken)

    def _history(self, run: Run, trouble: Trouble) -> ladder.JobHistory:
        group = run.mix.group_nodes
        return ladder.JobHistory(
            at=run.env.now, attempts=tuple(self.attempts), taken=tuple(self.taken), alerts=trouble.alerts,
            nodes=tuple(run.fleet.job),
            layout=ladder.JobLayout(pipeline_nodes=group, data_parallel=run.mix.nodes // group),
        )  # fmt: skip

    # --- remediation

    def _act(self, run: Run, trouble: Trouble, kind: str, nodes: tuple[str, ...], probability: float) -> Reported[bool]:
        """Propose, have it approved, let the scheduler do it; the value tells whether it was done."""
        plan = _remediation(trouble, kind, nodes, probability, run)
        self._say(run, messages.Proposed(incident=trouble.incident, plan=plan), trouble)
        if self.book.remediations[plan.id].status == "proposed":
            yield from run.wait(run.parameters.person_seconds)
            self._say(run, messages.Approve(id=plan.id, by="on call"), trouble)
        while not self._say(run, messages.Take(id=plan.id, by="slurm", seconds=600.0), trouble):
            yield from run.wait(RETRY_SECONDS)
            self._say(run, messages.RemediationTick(), trouble)
            if self.book.remediations[plan.id].status != "approved":
                self.taken.append(
                    ladder.TriedRung(kind=cast("Rung", kind), attempt=self.number, nodes=nodes, outcome="refused")
                )
                return False
        assert self._say(run, messages.Begin(id=plan.id, by="slurm", token=self._token(plan.id)), trouble)
        yield from run.wait(run.parameters.schedule_seconds)
        self._say(run, messages.Complete(id=plan.id, by="slurm", token=self._token(plan.id)), trouble)
        self.taken.append(ladder.TriedRung(kind=cast("Rung", kind), attempt=self.number, nodes=nodes))
        count(run.tally.did, kind)
        yield from run.restart(nodes, rolled_back=kind == "rollback")
        return True

    def _token(self, id: str) -> int:
        claim = self.book.remediations[id].claim
        assert claim is not None
        return claim.token

    def _say(self, run: Run, event: messages.RemediationEvent, trouble: Trouble | None = None) -> bool:
        """Let the step take an event; False where it is refused."""
        book = self._forget(run, trouble)
        try:
            self.book, said = step(book, event, run.env.now)
        except messages.RemediationRefused as refused:
            count(run.tally.refused, refused.code)
            return False
        for one in said:
            if isinstance(one, messages.Store) and one.remediation.status == "done":
                self._judged(one.remediation, run.env.now)
        return True

    def _forget(self, run: Run, trouble: Trouble | None) -> RemediationState:
        """Return the book with the facts of now, and without what ended long since."""
        kept = dict(list(self.book.remediations.items())[-REMEMBERED:])
        job = JobFacts(
            nodes=tuple(run.fleet.job), attempt=run.attempt, minimum_nodes=run.mix.nodes, spares=run.fleet.spares,
            saving_since=self.saving_since, holders=run.fleet.holders,
        )  # fmt: skip
        facts = FleetFacts(fleet_nodes=run.fleet.size, jobs={JOB: job})
        self.book.remediations, self.book.facts = kept, facts
        return self.book

    # --- afterwards

    def _verify(self, run: Run, attempt: int) -> Wait:
        yield from run.wait(run.parameters.verify_seconds)
        if run.attempt == attempt:
            self._end(run, "cured")

    def _verified(self, run: Run, fault: Fault) -> None:
        """It has failed again before it was seen to run well."""
        same = bool(self.attempts) and self.attempts[-1].fault_class in ("", fault.fault_class)
        self._end(run, "not_cured" if same else "unknown")

    def _end(self, run: Run, outcome: words.Outcome) -> None:
        for row in list(self.book.remediations.values()):
            if row.status == "verifying":
                self._say(run, messages.Verified(id=row.id, outcome=outcome, why=outcome))

    def _judged(self, row: Remediation, now: float) -> None:
        """Convict or acquit: what the fleet's own rate and a node's burn-in rest on."""
        self.failures += row.outcome == "cured" and bool(row.nodes)
        for node in row.nodes:
            record = self.records.get(node, node_history.NodeRecord(node=node))
            trial = node_history.Trial(
                probability=row.probability, began_at=row.began_at or now, ended_at=now,
                outcome=row.outcome or "unknown", cures=self.costs.cured_by_restart(row.fault_class),
                others=1.0 - 1.0 / len(row.nodes),
            )  # fmt: skip
            self.records[node] = node_history.record_trial(record, trial, self.weights)

    def _burn_in(self, run: Run, node: str) -> float:
        """Return how long a node that comes back waits until it counts as healthy."""
        record = self.records.get(node, node_history.NodeRecord(node=node))
        back = node_history.update_record(record, node_history.NodeEvent(kind="returned"), run.env.now, self.weights)
        self.records[node] = back
        return (
            0.0
            if burn_in.explain_unfit(back, run.env.now, self.weights) is None
            else self.weights.burn_in.hours * 3_600.0
        )


class WholeGroup(Ours):
    """The same, and with every node its whole parallel group is taken out."""

    def chosen(self, run: Run, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """Return the groups of these nodes."""
        return tuple(
            dict.fromkeys(other for node in nodes if node in run.fleet.job for other in run.fleet.group_of(node))
        )


def _remediation(trouble: Trouble, kind: str, nodes: tuple[str, ...], probability: float, run: Run) -> Remediation:
    name = hashlib.sha256(f"{trouble.incident} {kind} {nodes}".encode()).hexdigest()[:12]
    return Remediation(
        id=f"rem-{name}", incident=trouble.incident, verdict_version=1, job=JOB, attempt=run.attempt,
        kind=cast("words.Kind", kind), nodes=nodes, fault_class=trouble.fault.fault_class, symptom=trouble.seen.verdict.symptom,
        probability=probability, why="", proposed_at=run.env.now,
    )  # fmt: skip


def _alerts(fault: Fault, now: float) -> tuple[ladder.NetworkAlert, ...]:
    """A link that lasts in its fault is reported twice within five minutes."""
    if fault.kind.cause != "network" or fault.node is None:
        return ()
    return (ladder.NetworkAlert(node=fault.node, at=now - 60.0), ladder.NetworkAlert(node=fault.node, at=now))
