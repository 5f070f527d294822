"""A small world in which remediation can go wrong: two schedulers, one person, an engine, a lossy network, and time.

What happens is a list of (word, number, number): hypothesis draws and shrinks it, a seeded generator makes thousands of
them. Nothing here knows the rules; ``remediation_witness.py`` does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from service.remediation import words
from service.remediation.step import step
from service.remediation.words import (
    Book,
    Event,
    Facts,
    Instruction,
    JobFacts,
    Limits,
    Policy,
    Remediation,
    Rule,
    Tally,
)
from tests.remediation_witness import Witness, frozen_image

Action = tuple[str, int, int]
Step = Callable[[Book, Event, float], tuple[Book, list[Instruction]]]
AT = 1_795_230_000.0
NODES = tuple(f"gpu-{number:04d}" for number in range(12))
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
    witness: Witness = field(default_factory=Witness)
    refused: int = 0
    accepted: int = 0

    def __post_init__(self) -> None:
        """Begin with two jobs that share no node but one, and nothing proposed."""
        ring: dict[str, tuple[str, ...]] = {node: (NODES[(number + 1) % 6],) for number, node in enumerate(NODES[:6])}
        self.jobs = {"llama": Job(NODES[:6], minimum=4, holders=ring), "qwen": Job(NODES[6:12], minimum=3, spares=0)}
        self.tenants: dict[str, tuple[str, ...]] = {NODES[6]: ("qwen", "other")}
        self.versions: dict[str, int] = {}
        self.merged: dict[str, str] = {}
        self.plans: dict[str, tuple[int, int]] = {}  # incident → the numbers of its newest plan
        self.schedulers = [Scheduler("slurm-a"), Scheduler("slurm-b")]
        self.sent: list[Event] = []
        self.book = Book(policy=POLICIES[self.limits % len(POLICIES)], tallies=TALLIES)
        self.reported: dict[str, JobFacts] = {}
        for name in self.jobs:
            self.report(name)

    # --- the service

    def send(self, event: Event, *, keep: bool = True) -> list[Instruction] | None:
        """Let the service take one event; None: it refused it. Facts are loaded fresh, as it does."""
        if keep:
            self.sent.append(event)
        before = replace_facts(self.book, self.facts())
        image = frozen_image(before)
        try:
            after, said = self.step(before, event, self.now)
        except words.Refused as refused:
            self.refused += 1
            self.witness.saw_refusal(image, before, refused.code)
            return None
        assert frozen_image(before) == image, "the given book was changed"
        self.accepted += 1
        self.book = after
        self.witness.saw(before, event, after, said, self.now)
        self.one_token_acts(getattr(event, "id", ""))
        return said

    def facts(self) -> Facts:
        """Return what is known now."""
        return Facts(
            fleet_nodes=len(NODES), jobs=dict(self.reported), tenants=self.tenants, newest_verdicts=dict(self.versions),
            merged=dict(self.merged),
        )  # fmt: skip

    def one_token_acts(self, id: str) -> None:
        """Of all the tokens that were ever given for a remediation at most one is good for anything, in its time."""
        given = self.witness.tokens.get(id)
        if not given:
            return
        book = replace_facts(self.book, self.facts())
        book.freeze = None
        names = [one.name for one in self.schedulers]
        good = [
            (name, token) for token in given for name in names
            if self.obeyed(book, words.Heartbeat(id=id, by=name, token=token))
        ]  # fmt: skip
        assert len(good) <= 1, f"{id} is held twice: {good}"
        claim = self.book.remediations[id].claim if id in self.book.remediations else None
        assert not good or (claim is not None and claim.until >= self.now), f"{id} is held after the lease's end"

    def obeyed(self, book: Book, event: Event) -> bool:
        """Tell whether an event would be accepted; nothing comes of it."""
        try:
            (self.probe or self.step)(book, event, self.now)
        except words.Refused:
            return False
        return True

    # --- what happens

    def do(self, action: Action) -> None:
        """Let one thing happen. The numbers choose among what there is."""
        word, a, b = action
        ACTIONS[word](self, a, b)

    def play(self, actions: Iterable[Action]) -> World:
        """Let all of it happen, and at the end take everything back that was done."""
        for action in actions:
            self.do(action)
        self.everything_can_be_undone()
        return self

    def any(self, a: int, *statuses: str) -> str | None:
        """Return the id of a remediation in one of these states, or of any where there is none."""
        rows = self.book.remediations
        ids = sorted(id for id, row in rows.items() if row.status in statuses) or sorted(rows)
        return ids[a % len(ids)] if ids else None

    def report(self, name: str) -> None:
        """Let the job's newest placements come in."""
        self.reported[name] = self.jobs[name].facts()
        self.witness.reported_at[name] = self.now

    def plan(self, a: int, b: int) -> Remediation:
        """Return a plan for an incident: its job by the incident's number, nodes and class by the other."""
        incident = INCIDENTS[a % len(INCIDENTS)]
        job = "qwen" if a % len(INCIDENTS) >= 4 else "llama"
        nodes = self.jobs[job].nodes if b % 9 < 8 else NODES  # a plan may be of what the job has left
        count = (1, 1, 1, 2, 3)[b % 5]
        chosen = tuple(sorted({nodes[(a + b + 2 * number) % len(nodes)] for number in range(count)}))
        kind: words.Kind = "restart_job" if b % 7 == 6 else "evict"
        return Remediation(
            id=f"rem-{msgspec_hash((incident, kind, chosen))}", incident=incident, job=job, kind=kind,
            verdict_version=self.versions.get(incident, 0), attempt=self.jobs[job].attempt if b % 4 else None,
            nodes=chosen if kind == "evict" else (), fault_class=CLASSES[b % 3], symptom="hang", probability=0.97 - 0.1 * (b % 2),
            why="it never entered", proposed_at=self.now, prices_tenants=b % 8 == 7,
        )  # fmt: skip

    # --- at the end

    def everything_can_be_undone(self) -> None:
        """Whatever took a node out is taken back by a person and a scheduler, from wherever it has come to."""
        for id in sorted(self.witness.did):
            row = self.book.remediations[id]
            if row.kind != "evict" or row.status == "undone":
                continue
            try:
                end = self.taken_back(id)
            except words.Refused as refused:
                raise AssertionError(f"{id} cannot be taken back: {refused}") from None
            assert end == "undone", f"{id} was taken back and is {end}"

    def taken_back(self, id: str) -> str:
        """Return what becomes of a remediation that a person and a scheduler take back, in a world set apart."""
        step = self.probe or self.step
        book, now = replace_facts(self.book, self.facts()), self.now + 20_000.0
        book.freeze = None
        book, _ = step(book, words.Tick(), now)
        if book.remediations[id].undo is None:
            book, _ = step(book, words.AskUndo(id=id, by="ann", reason="it was not the node"), now)
        book, _ = step(book, words.Take(id=id, by="slurm-a"), now)
        claim = book.remediations[id].claim
        assert claim is not None
        assert claim.task == "undo", f"{id} is to be undone, and {claim.task} was claimed"
        for event in (words.Begin, words.Complete):
            book, _ = step(book, event(id=id, by="slurm-a", token=claim.token), now)
        return book.remediations[id].status


def replace_facts(book: Book, facts: Facts) -> Book:
    """Return the book with what is known now."""
    return msgspec.structs.replace(book, facts=facts)


def msgspec_hash(value: object) -> str:
    """Return twelve hexadecimal digits that name a value."""
    import hashlib

    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()[:12]


# --- the engine


def _wait(world: World, a: int, b: int) -> None:
    world.now += WAITS[a % len(WAITS)]
    if b % 2:
        world.send(words.Tick(), keep=False)


def _propose(world: World, a: int, b: int) -> None:
    incident = INCIDENTS[a % len(INCIDENTS)]
    if b % 3 or incident not in world.versions:
        world.versions[incident] = world.versions.get(incident, 0) + 1
    if b % 4 or incident not in world.plans:  # else the newer verdict says the same again
        world.plans[incident] = (a, b)
    world.send(words.Proposed(incident=incident, plan=world.plan(*world.plans[incident])), keep=False)


def _publish(world: World, a: int, _b: int) -> None:
    """A newer verdict is there, and its plan not yet."""
    incident = INCIDENTS[a % len(INCIDENTS)]
    world.versions[incident] = world.versions.get(incident, 0) + 1


def _withdraw(world: World, a: int, b: int) -> None:
    world.send(words.Proposed(incident=INCIDENTS[a % len(INCIDENTS)], plan=None, why="it recovered"), keep=False)


def _merge(world: World, a: int, b: int) -> None:
    incident = INCIDENTS[a % len(INCIDENTS)]
    if b % 4 == 0:
        world.merged[incident] = "inc-ffffffffffff"


def _report(world: World, a: int, _b: int) -> None:
    world.report(sorted(world.jobs)[a % 2])


def _save(world: World, a: int, b: int) -> None:
    """A checkpoint's save begins, or ends; the service is told at once, and of placements nothing."""
    name = sorted(world.jobs)[a % 2]
    since = world.now if world.jobs[name].saving_since is None and b % 3 == 0 else None
    world.jobs[name].saving_since = since
    world.reported[name] = msgspec.structs.replace(world.reported[name], saving_since=since)


def _verify(world: World, a: int, b: int) -> None:
    outcome: words.Outcome = ("cured", "not_cured", "unknown")[b % 3]
    if id := world.any(a, "verifying"):
        world.report(world.book.remediations[id].job)
        world.send(words.Verified(id=id, outcome=outcome, why="ten good steps"), keep=False)


# --- the person


def _approve(world: World, a: int, _b: int) -> None:
    if id := world.any(a, "proposed"):
        world.send(words.Approve(id=id, by="ann"))


def _reject(world: World, a: int, b: int) -> None:
    if id := world.any(a, "proposed", "approved"):
        say = words.Reject if b % 2 else words.Cancel
        world.send(say(id=id, by="ann", reason="not now"))


def _ask_undo(world: World, a: int, _b: int) -> None:
    if id := world.any(a, "verifying", "done", "failed"):
        world.send(words.AskUndo(id=id, by="ann", reason="it was not the node"))


def _hold(world: World, a: int, b: int) -> None:
    if b % 3 == 0 and world.book.holds:
        world.send(words.ExpireHold(id=sorted(world.book.holds)[a % len(world.book.holds)], by="ann"))
        return
    named = {"job": sorted(world.jobs)[a % 2]} if b % 5 == 4 else {"node": NODES[a % len(NODES)]}
    until = world.now + WAITS[b % len(WAITS)]
    hold = words.Hold(id=f"hold-{a}-{b}", by="ann", reason="I look at it", made_at=world.now, until=until, **named)
    world.send(words.AddHold(hold=hold))


def _freeze(world: World, _a: int, b: int) -> None:
    thaw = world.book.freeze is not None
    if not thaw and b % 3:
        return  # most of the time nothing is frozen
    freeze = None if thaw else words.Freeze(by="ann", reason="maintenance", at=world.now)
    world.send(words.SetFreeze(freeze=freeze, by="ann", reason="maintenance"))


def _close_breaker(world: World, _a: int, _b: int) -> None:
    world.send(words.CloseBreaker(by="ann", reason="I have looked"))


# --- the schedulers


def _take(world: World, a: int, b: int) -> None:
    waiting = [id for id, row in world.book.remediations.items() if row.undo is not None and row.status != "undone"]
    id = sorted(waiting)[a % len(waiting)] if waiting and b % 3 == 0 else world.any(a, "approved")
    if id is None:
        return
    scheduler = world.schedulers[b % 2]
    said = world.send(words.Take(id=id, by=scheduler.name, seconds=(60.0, 600.0)[b % 5 == 0]))
    if said is not None and b % 11:  # else the answer is lost: it holds a claim, and does not know
        claim = world.book.remediations[id].claim
        assert claim is not None
        scheduler.claims[id] = claim
        scheduler.begun.discard(id)


def _believed(world: World, a: int, b: int) -> tuple[Scheduler, str, words.Claim] | None:
    """Return a claim that a scheduler believes to hold; it may have run out long since."""
    scheduler = world.schedulers[b % 2] if world.schedulers[b % 2].claims else world.schedulers[(b + 1) % 2]
    if not scheduler.claims:
        return None
    id = sorted(scheduler.claims)[a % len(scheduler.claims)]
    return scheduler, id, scheduler.claims[id]


def _heartbeat(world: World, a: int, b: int) -> None:
    if held := _believed(world, a, b):
        scheduler, id, claim = held
        if world.send(words.Heartbeat(id=id, by=scheduler.name, token=claim.token)) is None and b % 3:
            del scheduler.claims[id]


def _begin(world: World, a: int, b: int) -> None:
    if held := _believed(world, a, b):
        scheduler, id, claim = held
        said = world.send(words.Begin(id=id, by=scheduler.name, token=claim.token))
        if said is not None and b % 5:  # else the answer is lost, and it asks again
            scheduler.begun.add(id)


def _complete(world: World, a: int, b: int) -> None:
    """Act, if it was let, and say so; what is done to the job is seen at its next report."""
    held = _believed(world, a, b)
    if held is None or held[1] not in held[0].begun:
        return
    scheduler, id, claim = held
    row = world.book.remediations[id]
    job = world.jobs[row.job]
    if claim.task == "do" and set(row.nodes) & set(job.nodes):
        taken = len(set(row.nodes) & set(job.nodes))
        job.nodes = tuple(node for node in job.nodes if node not in row.nodes)
        job.spares, job.attempt = max(0, job.spares - taken), job.attempt + 1
    did = dict.fromkeys(row.nodes, "drained")
    if b % 7 == 0:
        said = world.send(words.Fail(id=id, by=scheduler.name, token=claim.token, reason="scontrol timed out", did=did))
    else:
        said = world.send(words.Complete(id=id, by=scheduler.name, token=claim.token, did=did))
    if said is None or b % 4:
        del scheduler.claims[id]


def _crash(world: World, _a: int, b: int) -> None:
    world.schedulers[b % 2] = Scheduler(world.schedulers[b % 2].name)


def _replay(world: World, a: int, b: int) -> None:
    """What was once said comes again: a retry, a network that repeats, or somebody who has listened."""
    if world.sent:
        world.send(world.sent[(a * 13 + b) % len(world.sent)], keep=False)


def _forge(world: World, a: int, b: int) -> None:
    """Somebody guesses: another's name, a token that was not given."""
    if id := world.any(a, "claimed", "executing"):
        claimed = world.book.remediations[id].claims
        forged = (words.Begin, words.Complete, words.Heartbeat)[b % 3]
        world.send(forged(id=id, by=("slurm-b", "mallory")[a % 2], token=claimed + (b % 3) - 1), keep=False)


ACTIONS: dict[str, Callable[[World, int, int], None]] = {
    "wait": _wait, "propose": _propose, "publish": _publish, "withdraw": _withdraw, "merge": _merge, "report": _report,
    "save": _save, "verify": _verify, "approve": _approve, "reject": _reject, "ask undo": _ask_undo, "hold": _hold,
    "freeze": _freeze, "close breaker": _close_breaker, "take": _take, "heartbeat": _heartbeat, "begin": _begin,
    "complete": _complete, "crash": _crash, "replay": _replay, "forge": _forge,
}  # fmt: skip
# How often each comes, so that an interleaving gets somewhere: most proposals are approved, claimed and begun.
WEIGHTS = {
    "wait": 5, "propose": 5, "publish": 1, "withdraw": 1, "merge": 1, "report": 6, "save": 2, "verify": 2, "approve": 7,
    "reject": 1, "ask undo": 2, "hold": 1, "freeze": 2, "close breaker": 1, "take": 9, "heartbeat": 1, "begin": 9,
    "complete": 7, "crash": 1, "replay": 2, "forge": 1,
}  # fmt: skip


def drawn(seed: int, length: int = 60) -> list[Action]:
    """Return the interleaving of a seed."""
    lots = random.Random(seed)
    chosen: Sequence[str] = lots.choices(list(WEIGHTS), weights=list(WEIGHTS.values()), k=length)
    return [(word, lots.randrange(12), lots.randrange(60)) for word in chosen]
