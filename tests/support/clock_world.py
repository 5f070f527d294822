"""A store, its service's parts and a fleet, whose clocks a random sequence of events sets, and what must hold whatever happens.

``truth`` is the time that no clock need show. The machine has a wall clock and a boot time; nodes have clocks of their own. A
step is ten seconds: nodes report, the follower, the engine and the watch have their turns, and every minute there is a sweep.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from sqlalchemy import func, select

from analyzers.knowledge import Knowledge
from analyzers.remediation.messages import AddHold, Approve, Proposed, RemediationRefused, RemediationTick, Take
from analyzers.remediation.types import Hold, Limits, Policy
from collectors.records import Coverage, Members, Placement, block
from service.clock import PROCESS
from service.engine.driver import ClockWentBack, Driver
from service.engine.numbers import Numbers
from service.remediation.repository import RemediationRepository
from service.store import clock_watch
from service.store.clock_watch import ClockWatch
from service.store.database import Database
from service.store.follower import Follower
from service.store.future_dates import shift_back_future
from service.store.leases import Lease, LeaseLost
from service.store.log import Incoming, Log
from service.store.models import Batch, Incident, Job, Node
from service.store.models import Hold as HoldRow
from service.store.models import Placement as PlacementRow
from service.store.node_clocks import DISPUTED_SECONDS
from service.store.placements import is_newest
from service.store.retention import DAY_SECONDS, IncidentRetention, Retention
from service.store.window.assembly import Feed
from service.store.window.compaction import Compaction
from service.store.window.tail import Tail
from tests.support.incident_rows import AT
from tests.support.remediation_fleet import ID, INCIDENT, hung, plan

STEP_SECONDS = 10.0
RETENTION_DAYS = 0.25
HOUR_SECONDS = 3_600.0
JOB, DECLARED = "llama-70b", {"world_size": 3, "minimum_nodes": 3}
MOVER = "mover"  # a job whose ranks change places
NODES = ("gpu-0101", "gpu-0102", "gpu-0103")
KNOWLEDGE = Knowledge()
LIMITS = Limits(proposal_seconds=1e9, approval_seconds=1e9)
FRESH_SECONDS = 60.0  # after the clocks are right, all of it is known again
DOUBTED_SECONDS = 720.0  # after which a right clock is believed: ten minutes of agreement, and two reports
JUMPS = (7_200.0, -7_200.0, DAY_SECONDS, -DAY_SECONDS, 20 * DAY_SECONDS, -20 * DAY_SECONDS)


class NoJudges:
    """Judges that are never asked: the job is healthy."""

    count, seconds_total, pipes = 0, 0.0, ()

    def ask(self, judge: Any) -> None:
        """Take nothing."""

    def forget(self, incident: str) -> None:
        """Forget nothing."""

    def turn(self) -> Iterator[Any]:
        """Judge nothing."""
        yield from ()


@dataclass
class Bounds:
    """What is kept."""

    retention_days: float = RETENTION_DAYS
    retention_bytes: int = 1 << 40


@dataclass
class ClockWorld:
    """The world. ``wrong`` collects what must not be, one sentence each."""

    database: Database
    dice: random.Random
    naive: bool = False  # the control: a service that believes its wall clock
    truth: float = AT + 20.0
    booted: float = AT - 90_000.0  # truth at the boot, paused time left out
    boots: int = 1
    wall_error: float = 0.0
    drift: float = 0.0  # of the wall clock, seconds a second
    node_error: dict[str, float] = field(default_factory=dict)
    moved: bool = False  # ranks 0 and 1 have changed places
    right_since: float = 0.0  # truth: the clocks are right, and what is known is of the time that is held
    true_since: float = 0.0  # truth: the clocks are right
    changed_at: float = float("-inf")  # boot time at which a node's clock was set, seen from the service
    disputed_until: float = float("-inf")  # of boot time
    paused: bool = False  # boot time has lost time: labels may be behind until the nodes' clocks were believed
    wrong: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    batches: dict[int, float] = field(default_factory=dict)  # sequence → truth at its receipt
    starts: int = 0
    up: bool = False
    standing_since: float = 0.0  # truth, without an engine

    # --- the machine's clocks

    def wall(self) -> float:
        """Return what the wall clock shows."""
        return self.truth + self.wall_error

    def boot(self) -> float:
        """Return the seconds since the boot."""
        return self.truth - self.booted

    @contextmanager
    def clocks(self) -> Iterator[ClockWorld]:
        """Put these clocks in the places of the machine's."""
        with ExitStack() as stack:
            stack.enter_context(patch.object(PROCESS, "wall", self.wall))
            stack.enter_context(patch.object(PROCESS, "boot", self.boot))
            stack.enter_context(patch.object(clock_watch, "boot_id", lambda: f"boot-{self.boots}"))
            stack.callback(PROCESS.release)
            if self.naive:
                stack.enter_context(patch.object(type(PROCESS), "hold", lambda *_args, **_more: None))
            yield self

    # --- the service

    def start(self) -> None:
        """Start the service and its engine as processes that remember nothing."""
        PROCESS.release()
        self.starts += 1
        self.watch = ClockWatch(self.database)
        self.watch.open()
        self.log = Log(self.database)
        self.tail = Tail(600.0)
        self.follower = Follower(self.database, self.log, [Feed(self.tail, Compaction(self.database))])
        self.follower._resume()
        self.sweeps: list[Callable[[], object]] = [
            Retention(self.database, Bounds()).sweep, IncidentRetention(self.database, RETENTION_DAYS).sweep,
            lambda: shift_back_future(self.database),
        ]  # fmt: skip
        self.remedies = RemediationRepository(self.database, lambda: Policy(limits=LIMITS))
        self.lease = Lease(self.database, "engine", f"p{self.starts}", self.boot)
        self.driver: Driver | None = None
        self.up, self.standing_since = True, self.truth
        self._sweep()

    def populate(self) -> None:
        """Declare the job, propose an eviction that a person approves, and hold its node."""
        with self.database.transaction() as session:
            seen = {"first_seen_at": self.truth, "last_seen_at": self.truth}
            session.add(Job(name=JOB, **seen, declared=DECLARED, declared_at=self.truth))
        hung(self.database)
        self._hold()
        self.remedies.handle(Proposed(incident=INCIDENT, plan=plan()), PROCESS.now())
        self.remedies.handle(Approve(id=ID, by="ann", reason=""), PROCESS.now())

    def _hold(self) -> None:
        """Hold the node until an instant by the right time, which the caller's own clock shows."""
        seconds, at = 30 * HOUR_SECONDS, PROCESS.now()
        self.held_until, name = self.truth + seconds, f"hold-{self.truth:.0f}"
        hold = Hold(id=name, by="ann", reason="bench", made_at=at, until=self.held_until, node="gpu-0002")
        self.remedies.handle(AddHold(hold=hold), at)

    def kill(self) -> None:
        """End the service and its engine at once."""
        self.up = False

    # --- time

    def run(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(max(1, round(seconds / STEP_SECONDS))):
            self.truth += STEP_SECONDS
            self.wall_error += self.drift * STEP_SECONDS
            if not self._is_right():
                self.right_since = self.true_since = self.truth
            if self.up:
                self._step()

    def _is_right(self) -> bool:
        return abs(self.wall_error) < 5.0 and not any(self.node_error.values()) and self.up

    def _step(self) -> None:
        self._report()
        while self.follower.turn():
            pass
        before = PROCESS.now()
        self.watch.look()
        if abs(PROCESS.now() - before) > FRESH_SECONDS:
            self.right_since = self.truth  # only now: the rows of nodes are of the time before until they report again
        self._engine()
        if round(self.truth) % 60 < STEP_SECONDS:
            self._sweep()
        if round(self.truth) % 30 < STEP_SECONDS:
            self._act()
        self._check()

    def _report(self) -> None:
        batches = []
        for number, node in enumerate(NODES):
            at = self.truth + self.node_error.get(node, 0.0)
            rank = {0: 1, 1: 0}.get(number, number) if self.moved else number
            records = [
                Placement(at=at, job=JOB, attempt=1, ranks=Members.of([number]), nodes=(node,), world_size=3),
                Placement(at=at, job=MOVER, attempt=1, ranks=Members.of([rank]), nodes=(node,), world_size=3),
                Coverage(at=at, boot_id=f"boot-{node}"),
            ]
            data = block.encode(records, pack=True)
            batches.append(Incoming(node, f"b{self.truth:.0f}", at, PROCESS.now(), len(records), data))
        for place in self.log.append(batches):
            self.batches[place.sequence] = self.truth

    def _engine(self) -> None:
        judges: Any = NoJudges()
        try:
            if self.driver is None and self.lease.take():
                self.driver = Driver(self.database, self.lease, KNOWLEDGE, judges, Numbers())
            if self.driver is not None:
                self.driver.turn()
                self.standing_since = self.truth
        except (LeaseLost, ClockWentBack):
            self.driver = None

    def _sweep(self) -> None:
        for sweep in self.sweeps:
            sweep()
        with self.database.session() as session:
            left = set(session.scalars(select(Batch.sequence)))
        gone = [at for sequence, at in self.batches.items() if sequence not in left]
        young = [at for at in gone if self.truth - at < RETENTION_DAYS * DAY_SECONDS - 130.0]
        if young:
            ages = ", ".join(f"{(self.truth - at) / HOUR_SECONDS:.1f}" for at in young[:4])
            self._complain(f"{len(young)} batches that are {ages} h old were deleted")
        self.batches = {sequence: at for sequence, at in self.batches.items() if sequence in left}

    def _act(self) -> None:
        """Let a tick pass and a scheduler ask for the held node."""
        at = PROCESS.now()
        with self.database.transaction() as session:
            self.remedies.all_within(session, [RemediationTick()], at)
        if self.truth > self.held_until - 130.0:
            if self.truth > self.held_until + 130.0:
                self._hold()
            return
        with self.database.session() as session:
            held = session.scalar(select(func.count()).select_from(HoldRow)) or 0
        if not held:
            self._complain("a hold was released before its time")
            self._hold()
        try:
            self.remedies.handle(Take(id=ID, by="slurm", seconds=60.0), at)
        except RemediationRefused as refused:
            if "is expired" in str(refused):
                self._complain("an approval expired before its time")
        else:
            self._complain("a held node was claimed")

    def change_clocks(self) -> None:
        """Note that clocks of nodes are set: those that change twice in ten minutes confirm nothing until these are over."""
        self.disputed_until = max(self.disputed_until, self.changed_at + DISPUTED_SECONDS)
        self.changed_at = self.boot()
        self.true_since = self.truth + max(0.0, self.disputed_until - self.boot())

    # --- what must hold

    def _check(self) -> None:
        with self.database.session() as session:
            job = session.get(Job, JOB)
            seen = {row.name: row.last_seen_at for row in session.scalars(select(Node).where(Node.name.in_(NODES)))}
            placed = select(PlacementRow.rank, PlacementRow.node).where(PlacementRow.job == MOVER, is_newest())
            ranks = {row[0]: row[1] for row in session.execute(placed)}
            opened = session.scalars(
                select(Incident).where(Incident.id != INCIDENT, Incident.job.is_distinct_from(MOVER))
            ).all()
        if job is None or job.declared != DECLARED:
            self._complain("the declaration is lost")
        if opened:
            self._complain(f"an incident was opened: {opened[0].kind} {opened[0].state.get('symptoms')}")
        if self.truth - self.standing_since > 30.0:
            self._complain("no engine works for half a minute")
        if self.truth - self.right_since <= FRESH_SECONDS:
            return
        if self.watch.state and self.truth - self.true_since > DOUBTED_SECONDS:
            self._complain(f"the clocks are right, and still it says that {self.watch.state}")
        # While it says that its clock is off, what it shows is by the time that it holds.
        now = PROCESS.now() if self.paused or self.watch.state else self.truth
        late = [node for node in NODES if abs(seen.get(node, 0.0) - now) > 130.0]
        if late:
            self._complain(f"{late} was last seen {seen.get(late[0], 0.0) - now:+,.0f} s from now")
        first = 1 if self.moved else 0
        if self.watch.state:  # placements are dated ahead of the time that it holds then, and count as old
            return
        if (ranks.get(first), ranks.get(1 - first)) != NODES[:2]:
            self._complain("the ranks are where they were before")

    def _complain(self, what: str) -> None:
        if not self.wrong or not self.wrong[-1].startswith(what):
            self.wrong.append(f"{what} (after {', '.join(self.done[-3:])})")


def drawn(dice: random.Random, events: int) -> list[str]:
    """Return a random sequence of events."""
    return [dice.choice(sorted(EVENTS)) for _ in range(events)]


def play(world: ClockWorld, events: Sequence[str]) -> list[str]:
    """Play the events; return what went wrong."""
    with world.clocks():
        world.start()
        world.populate()
        world.run(120.0)
        for kind in events:
            world.done.append(kind)
            EVENTS[kind](world)
            if not world.up:
                world.start()
            world.moved = not world.moved
            world.run(world.dice.choice([200.0, 300.0]))
        world.kill()
    return world.wrong


# --- events


def _jump(world: ClockWorld) -> None:
    world.wall_error = world.dice.choice(JUMPS)
    world.done[-1] += f" {world.wall_error:+.0f} s"
    world.run(world.dice.choice([10.0, 80.0, 400.0, 900.0]))
    world.wall_error = 0.0


def _drift(world: ClockWorld) -> None:
    world.drift = world.dice.choice([0.01, -0.01])
    world.run(900.0)
    world.drift = 0.0
    world.run(300.0)
    world.wall_error = 0.0


def _suspend(world: ClockWorld) -> None:
    world.truth += world.dice.choice([600.0, 5 * HOUR_SECONDS])
    world.right_since = world.true_since = world.standing_since = world.truth


def _pause(world: ClockWorld) -> None:
    """A virtual machine is paused: neither its boot time nor its wall clock goes on, and then the wall clock is set."""
    seconds = world.dice.choice([300.0, 3 * HOUR_SECONDS])
    world.truth += seconds
    world.booted += seconds
    world.right_since = world.true_since = world.standing_since = world.truth
    world.paused = True
    world.change_clocks()


def _kill(world: ClockWorld) -> None:
    """The service is killed and started again, both in a jump as likely as not."""
    if world.dice.random() < 0.7:
        world.wall_error = world.dice.choice(JUMPS)
        world.run(world.dice.choice([10.0, 60.0]))
    world.kill()
    world.run(world.dice.choice([10.0, 60.0]))
    world.start()
    world.run(world.dice.choice([10.0, 200.0]))
    world.wall_error = 0.0


def _power_cut(world: ClockWorld) -> None:
    """The machine boots after some time, with a wall clock that is right only later as likely as not."""
    world.done[-1] += " in a jump" if (jumped := world.dice.random() < 0.5) else ""
    if jumped:
        world.wall_error = world.dice.choice(JUMPS)
        world.run(20.0)
    world.kill()
    world.run(world.dice.choice([10.0, 60.0]))
    world.truth += world.dice.choice([0.0, 2 * HOUR_SECONDS, 20 * DAY_SECONDS])
    world.right_since = world.true_since = world.truth  # nobody looked while it was off
    world.booted, world.boots, world.paused = world.truth - 30.0, world.boots + 1, False
    world.wall_error = world.dice.choice(JUMPS) if world.dice.random() < 0.5 else 0.0
    world.start()
    world.run(world.dice.choice([10.0, 80.0, 400.0]))
    world.wall_error = 0.0


def _agent(world: ClockWorld) -> None:
    world.node_error = {world.dice.choice(NODES): world.dice.choice(JUMPS)}
    world.change_clocks()
    world.run(world.dice.choice([20.0, 60.0]))
    world.node_error = {}
    world.change_clocks()


EVENTS: dict[str, Callable[[ClockWorld], None]] = {
    "jump": _jump, "drift": _drift, "suspend": _suspend, "pause": _pause, "kill": _kill, "power cut": _power_cut, "agent": _agent,
}  # fmt: skip
