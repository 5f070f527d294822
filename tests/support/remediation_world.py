"""A small world in which remediation can go wrong: two schedulers, one person, an engine, a lossy network, and time.

What happens in it is in ``remediation_actions.py``. Nothing here knows the rules; ``remediation_invariants.py`` does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from analyzers.remediation import messages
from analyzers.remediation import types as words
from analyzers.remediation.messages import RemediationEvent, RemediationInstruction
from analyzers.remediation.step import step
from analyzers.remediation.types import (
    FleetFacts,
    JobFacts,
    Limits,
    Policy,
    Remediation,
    RemediationState,
    Rule,
    Tally,
)
from tests.support.remediation_invariants import Invariants, frozen_image

Step = Callable[[RemediationState, RemediationEvent, float], tuple[RemediationState, list[RemediationInstruction]]]
AT = 1_795_230_000.0
NODES = tuple(f"gpu-{number:04d}" for number in range(12))
SHARED = NODES[5]  # by both jobs, as nobody has reported
INCIDENTS = tuple(f"inc-{number:012x}" for number in range(6))
WAITS = (0.5, 4.0, 20.0, 61.0, 400.0, 601.0, 1_801.0, 3_601.0, 14_401.0)
CLASSES = ("never_entered", "completion_lost", "xid_79")  # by the policy: automatic, in shadow, proposed
LIMITS = (
    Limits(evictions_an_hour=2, breaker_least_nodes=6),  # the budget is the narrower one
    Limits(evictions_an_hour=9, breaker_least_nodes=3),  # the breaker is
    Limits(evictions_an_hour=3, breaker_least_nodes=4, breaker_seconds=9_000.0),  # the one, and later the other
)
POLICIES = tuple(
    Policy(
        rules=(
            Rule(name="hangs", mode="automatic", fault_class="never_entered", least_probability=0.9, most_nodes=2),
            Rule(name="lost", mode="automatic", fault_class="completion_lost"),
        ),
        limits=limits,
    )
    for limits in LIMITS
)
TALLIES = {"hangs": Tally(seen=200, right=200), "lost": Tally(seen=19, right=19)}


@dataclass
class Job:
    """A job as it is; the service knows what was last reported of it."""

    nodes: tuple[str, ...]
    minimum: int
    spares: int = 1
    attempt: int = 1
    saving_since: float | None = None
    holders: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def facts(self) -> JobFacts:
        """Return what a report says of it."""
        return JobFacts(
            nodes=self.nodes, attempt=self.attempt, minimum_nodes=self.minimum, spares=self.spares,
            saving_since=self.saving_since, holders=self.holders,
        )  # fmt: skip


@dataclass
class Scheduler:
    """A client of the contract: what it believes that it holds. A crash forgets it all."""

    name: str
    claims: dict[str, words.Claim] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)


@dataclass
class World:
    """Everything that is, and the book that the service keeps of it. ``step`` can be a broken one."""

    limits: int = 0
    step: Step = step
    probe: Step | None = None  # by which is asked what would be accepted; where it is not the step itself
    now: float = AT
    invariants: Invariants = field(default_factory=Invariants)
    refused: int = 0
    accepted: int = 0

    def __post_init__(self) -> None:
        """Begin with two jobs that share one node, and nothing proposed."""
        ring: dict[str, tuple[str, ...]] = {node: (NODES[(number + 1) % 6],) for number, node in enumerate(NODES[:6])}
        self.jobs = {"llama": Job(NODES[:6], minimum=4, holders=ring), "qwen": Job(NODES[5:12], minimum=6, spares=0)}
        self.tenants: dict[str, tuple[str, ...]] = {NODES[6]: ("qwen", "other")}
        self.versions: dict[str, int] = {}
        self.merged: dict[str, str] = {}
        self.clock_doubt = ""
        self.plans: dict[str, tuple[int, int]] = {}  # incident → the numbers of its newest plan
        self.schedulers = [Scheduler("slurm-a"), Scheduler("slurm-b")]
        self.sent: list[RemediationEvent] = []
        self.book = RemediationState(policy=POLICIES[self.limits % len(POLICIES)], tallies=TALLIES)
        self.reported: dict[str, JobFacts] = {}
        for name in self.jobs:
            self.report(name)

    # --- the service

    def send(self, event: RemediationEvent, *, keep: bool = True) -> list[RemediationInstruction] | None:
        """Let the service take one event; None: it refused it. Facts are loaded fresh, as it does."""
        if keep:
            self.sent.append(event)
        before = replace_facts(self.book, self.facts())
        image = frozen_image(before)
        try:
            after, said = self.step(before, event, self.now)
        except messages.RemediationRefused as refused:
            self.refused += 1
            self.invariants.saw_refusal(image, before, refused.code)
            return None
        assert frozen_image(before) == image, "the given book was changed"
        self.accepted += 1
        self.book = after
        self.invariants.saw(before, event, after, said, self.now)
        self.one_token_acts(getattr(event, "id", ""))
        return said

    def facts(self) -> FleetFacts:
        """Return what is known now."""
        return FleetFacts(
            fleet_nodes=len(NODES), jobs=dict(self.reported), tenants=self.tenants, newest_verdicts=dict(self.versions),
            merged=dict(self.merged), taken=self.invariants.taken(self.book), clock_doubt=self.clock_doubt,
        )  # fmt: skip

    def one_token_acts(self, id: str) -> None:
        """Of all the tokens that were ever given for a remediation at most one is good for anything, in its time."""
        given = self.invariants.tokens.get(id)
        if not given:
            return
        book = replace_facts(self.book, self.facts())
        book.freeze = None
        names = [one.name for one in self.schedulers]
        good = [
            (name, token) for token in given for name in names
            if self.obeyed(book, messages.Heartbeat(id=id, by=name, token=token))
        ]  # fmt: skip
        assert len(good) <= 1, f"{id} is held twice: {good}"
        claim = self.book.remediations[id].claim if id in self.book.remediations else None
        assert not good or (claim is not None and claim.until >= self.now), f"{id} is held after the lease's end"

    def obeyed(self, book: RemediationState, event: RemediationEvent) -> bool:
        """Tell whether an event would be accepted; nothing comes of it."""
        try:
            (self.probe or self.step)(book, event, self.now)
        except messages.RemediationRefused:
            return False
        return True

    # --- what happens

    def any(self, a: int, *statuses: str) -> str | None:
        """Return the id of a remediation in one of these states, or of any where there is none."""
        rows = self.book.remediations
        ids = sorted(id for id, row in rows.items() if row.status in statuses) or sorted(rows)
        return ids[a % len(ids)] if ids else None

    def report(self, name: str) -> None:
        """Let the job's newest placements come in."""
        self.reported[name] = self.jobs[name].facts()
        self.invariants.reported_at[name] = self.now

    def plan(self, a: int, b: int) -> Remediation:
        """Return a plan for an incident: its job by the incident's number, nodes and class by the other."""
        incident = INCIDENTS[a % len(INCIDENTS)]
        job = "qwen" if a % len(INCIDENTS) >= 4 else "llama"
        nodes = self.jobs[job].nodes if b % 9 < 8 else NODES  # a plan may be of what the job has left
        count = (1, 1, 1, 2, 3)[b % 5]
        chosen = tuple(sorted({nodes[(a + b + 2 * number) % len(nodes)] for number in range(count)}))
        if b % 4 == 1 and SHARED in nodes:
            chosen = (SHARED,)  # what is bad is bad for both of its jobs
        kind: words.RemediationKind = "restart_job" if b % 7 == 6 else "evict"
        return Remediation(
            id=f"rem-{msgspec_hash((incident, kind, chosen))}", incident=incident, job=job, kind=kind,
            verdict_version=self.versions.get(incident, 0), attempt=self.jobs[job].attempt if b % 4 else None,
            nodes=chosen if kind == "evict" else (), fault_class=CLASSES[b % 3], symptom="hang", probability=0.97 - 0.1 * (b % 2),
            why="it never entered", proposed_at=self.now, priced_tenants=("other",) * (b % 8 == 7),
        )  # fmt: skip

    # --- at the end

    def everything_can_be_undone(self) -> None:
        """Whatever took a node out is taken back by a person and a scheduler, from wherever it has come to."""
        for id in sorted(self.invariants.did):
            row = self.book.remediations[id]
            if row.kind != "evict" or row.status == "undone":
                continue
            try:
                end = self.taken_back(id)
            except messages.RemediationRefused as refused:
                raise AssertionError(f"{id} cannot be taken back: {refused}") from None
            assert end == "undone", f"{id} was taken back and is {end}"

    def taken_back(self, id: str) -> str:
        """Return what becomes of a remediation that a person and a scheduler take back, in a world set apart."""
        step = self.probe or self.step
        book, now = replace_facts(self.book, self.facts()), self.now + 20_000.0  # also while the clock is in doubt
        book.freeze = None
        book, _ = step(book, messages.RemediationTick(), now)
        if book.remediations[id].undo is None:
            book, _ = step(book, messages.AskUndo(id=id, by="ann", reason="it was not the node"), now)
        book, _ = step(book, messages.Take(id=id, by="slurm-a"), now)
        claim = book.remediations[id].claim
        assert claim is not None
        assert claim.task == "undo", f"{id} is to be undone, and {claim.task} was claimed"
        for event in (messages.Begin, messages.Complete):
            book, _ = step(book, event(id=id, by="slurm-a", token=claim.token), now)
        self.invariants.gave_back(id, book)
        return book.remediations[id].status


def replace_facts(book: RemediationState, facts: FleetFacts) -> RemediationState:
    """Return the book with what is known now."""
    return msgspec.structs.replace(book, facts=facts)


def msgspec_hash(value: object) -> str:
    """Return twelve hexadecimal digits that name a value."""
    import hashlib

    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()[:12]
