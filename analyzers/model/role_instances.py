"""What is known now of each instance of a role: its readings, from whatever source, folded in the order of their instants.

A counter that was never seen to change proves nothing about the time before its first reading, and nothing after its last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from analyzers.model.role_paces import Pace, add_pace
from analyzers.model.role_stays import Stays, is_later
from collectors.records import DIRECTORY, RoleState
from collectors.records.role_states import RoleStanding

Seat = tuple[str, str]  # role and instance
MOST_MARKS, MARK_SECONDS = 24, 15.0
ORIGIN_SECONDS = 60.0  # after which another origin of a number takes the place of one that is silent
COARSE = 2  # readings a rest
MOST_SOURCES = 16
MOST_INSTANCES = 8_192  # of one job: twice what its directory keeps


@dataclass(slots=True)
class Count:
    """A counter. ``since``: when it was first read at this value; ``longest``: it was seen to rest so long, and to go on.

    One that counts what has ended rests while it works: the longer, the fewer work. ``held``: of its rests that were over and
    in which it had requests, the most requests times seconds; ``looks`` and ``rests``: how often it was read then, and how
    many such rests there were.
    """

    value: int
    since: float
    seen_at: float
    moved: bool = False
    longest: float = 0.0
    done: int = 0  # by how much it has grown
    held: float = 0.0
    looks: int = 0
    rests: int = 0
    _holds: float = 0.0  # in the present rest
    _looked: int = 0

    def take(self, value: int, at: float, running: int = 0) -> None:
        """Read it again; a lower value is that of a new process. ``running``: requests that it had since the reading before."""
        if value != self.value:
            self.longest = max(self.longest, at - self.since)
            self.held = max(self.held, self._holds)
            self.looks, self.rests = self.looks + self._looked + (running > 0), self.rests + (running > 0)
            self.done += max(0, value - self.value)
            self.value, self.since, self.moved = value, at, True
            self._holds, self._looked = 0.0, 0
        elif running:
            self._holds += running * (at - self.seen_at)
            self._looked += 1
        self.seen_at = at

    @property
    def is_coarse(self) -> bool:
        """Whether most readings of it at work show no progress: it counts what has ended."""
        return self.looks >= COARSE * max(1, self.rests)

    @property
    def still_seconds(self) -> float:
        """For how long it is known to have rested."""
        return self.seen_at - self.since


@dataclass(slots=True)
class Mark:
    """How much was done, how many requests ran, and how long it had waited for no other (None: not stated), at one instant."""

    at: float
    done: int
    running: int
    worked: float | None = None


@dataclass(slots=True)
class Instance:
    """One instance of a role. What is None or empty no source has stated. Instants are UTC seconds."""

    role: str
    instance: str
    node: str | None = None
    hardware: str | None = None
    rank: int | None = None
    pid: int | None = None
    epoch: int | None = None
    state: RoleStanding | None = None
    state_at: float | None = None  # when it was first read to be so
    phase: str | None = None
    phase_since: float | None = None
    weights: int | None = None
    given_at: tuple[float, ...] = ()  # when it was last read with other weights than before: the last two instants
    waiting_for: str | None = None
    waiting_since: float | None = None
    requests_running: int | None = None
    requests_waiting: int | None = None
    most_running: int = 0
    busy_since: float | None = None  # it has had requests at every reading since then
    held_then: int = 0  # requests that it had when it last finished one
    piled_since: float | None = None  # requests wait for it without a break since then
    queue_depth: int | None = None
    tokens: Count | None = None
    steps: Count | None = None
    last_token_at: float | None = None
    renewed_at: float | None = None
    lease_seconds: float | None = None
    renewed_read_at: float = 0.0  # when that was read: a heartbeat is missing only by a reading that lacks it
    unanswered_since: float | None = None  # its health endpoint has not answered since then
    answers: bool | None = None
    began_at: float = 0.0  # the first reading under its epoch
    seen_at: float = 0.0
    spoke_at: float = 0.0  # the newest reading that states a phase or a wait
    source: str = ""  # of the newest reading
    marks: list[Mark] = field(default_factory=list)
    paces: list[Pace] = field(default_factory=list)
    origins: dict[str, tuple[bool, float]] = field(default_factory=dict)  # number → whether it says it itself, and when
    newest: dict[str, float] = field(default_factory=dict)  # source → its newest reading
    stays: Stays = field(default_factory=Stays)

    @property
    def seat(self) -> Seat:
        """Return role and instance."""
        return self.role, self.instance

    @property
    def name(self) -> str:
        """Name it for people: ``rollout 3``."""
        return f"{self.role} {self.instance}".strip()

    @property
    def waits(self) -> bool:
        """Whether it says that it waits for another."""
        return bool(self.waiting_for)

    @property
    def idle(self) -> bool:
        """Whether a source states that it has no request."""
        return self.requests_running == 0 and not self.requests_waiting

    def take(self, record: RoleState) -> None:
        """Add a reading. One that is older than another of its source, or of an earlier epoch, says nothing of now."""
        if record.epoch is not None and self.epoch is not None and record.epoch < self.epoch:
            return
        if record.epoch is not None and self.epoch is not None and record.epoch > self.epoch:
            self.__init__(self.role, self.instance)  # type: ignore[misc]
        at = _at(record)
        newest = self.newest.pop(record.source, at)
        if len(self.newest) >= MOST_SOURCES:
            del self.newest[next(iter(self.newest))]
        self.newest[record.source] = max(newest, at)
        if at < newest:
            return
        self.began_at = self.began_at or at
        self.seen_at, self.source = max(self.seen_at, at), record.source
        if self.weights is not None and record.weights not in (None, self.weights):
            self.given_at = (*self.given_at[-1:], at)
        if record.state not in (None, self.state):
            self.state_at = at
        for name in ("rank", "pid", "epoch", "state", "weights", "queue_depth", "lease_seconds", "hardware"):
            if (value := getattr(record, name)) is not None:
                setattr(self, name, value)
        if record.node is not None and (self.node is None or record.pid is not None or record.state is not None):
            self.node = record.node
        self.stays.take(record, at)
        self._beats(record, at)
        self._speaks(record, at)
        self._works(record, at)

    def _beats(self, record: RoleState, at: float) -> None:
        if record.renewed_at is not None:
            self.renewed_at, self.renewed_read_at = max(record.renewed_at, self.renewed_at or 0.0), at
        if record.answers is not None:
            self.answers = record.answers
            self.unanswered_since = None if record.answers else (self.unanswered_since or at)

    def _speaks(self, record: RoleState, at: float) -> None:
        if record.phase is not None:
            same = record.phase == self.phase
            since = record.phase_since if record.phase_since is not None else self.phase_since if same else at
            if since is not None:
                self._leaves(since, same=same)
            self.phase, self.phase_since = record.phase, since
        if record.phase is not None or record.waiting_for is not None:
            same = record.waiting_for == self.waiting_for
            since = record.waiting_since if record.waiting_since is not None else self.waiting_since if same else at
            self.waiting_for, self.waiting_since = record.waiting_for, since if record.waiting_for else None
            self.spoke_at = at

    def _leaves(self, since: float, *, same: bool) -> None:
        """Note how long its phase was, where another has begun, or the same one anew."""
        if self.phase is None or self.phase_since is None:
            return
        if not same or is_later(self.phase_since, since, self.spoke_at):
            self.stays.leave(self.phase, since - self.phase_since)

    def _works(self, record: RoleState, at: float) -> None:
        had = min(self.requests_running or 0, record.requests_running or 0)
        if record.requests_running is not None and self._counts("requests_running", record, at):
            self.requests_running = record.requests_running
            self.busy_since = (self.busy_since or at) if record.requests_running else None
            self.most_running = max(self.most_running, record.requests_running)
        if record.requests_waiting is not None and self._counts("requests_waiting", record, at):
            self.requests_waiting = record.requests_waiting
            self.piled_since = (self.piled_since or at) if record.requests_waiting else None
        if record.tokens_total is not None and self._counts("tokens", record, at):
            self.tokens = _counted(self.tokens, record.tokens_total, at, had)
            self.last_token_at = record.last_token_at
        if record.steps_total is not None and self._counts("steps", record, at):
            self.steps = _counted(self.steps, record.steps_total, at, had)
        if record.worked_seconds is not None and record.steps_total is not None:
            add_pace(self.paces, Pace(at, record.steps_total, record.worked_seconds))
        done = self.tokens or self.steps
        if done is None or record.requests_running is None:
            return
        if done.since == at:
            self.held_then = record.requests_running + (record.requests_waiting or 0)
        if not self.marks or at - self.marks[-1].at >= MARK_SECONDS:
            # Without its own time all that is known is that what it had at this instant waited for another.
            running = 0 if self.waits and record.worked_seconds is None else record.requests_running
            self.marks.append(Mark(at, done.value, running, record.worked_seconds))
            del self.marks[:-MOST_MARKS]

    def _counts(self, name: str, record: RoleState, at: float) -> bool:
        """Whether a number is of the origin that stated it first, or that one is silent.

        An instance may say its own numbers in the directory while its engine's metrics are read: two counters that take turns
        seem to move for ever.
        """
        said = record.source == DIRECTORY
        known, last = self.origins.get(name, (said, at))
        if known != said and at - last < ORIGIN_SECONDS:
            return False
        if known != said and name in ("tokens", "steps"):
            setattr(self, name, None)
            self.marks.clear()
        self.origins[name] = said, at
        return True


def _counted(count: Count | None, value: int, at: float, had: int) -> Count:
    if count is None:
        return Count(value, at, at)
    count.take(value, at, had)
    return count


def _at(record: RoleState) -> float:
    return record.at if record.at is not None else record.received_at or 0.0


def fold(records: Iterable[RoleState], known: dict[Seat, Instance] | None = None) -> dict[Seat, Instance]:
    """Return the instances after these readings, by role and instance; ``known``: what was folded before, and is changed."""
    found = {} if known is None else known
    for record in sorted(records, key=_at):
        seat = (record.role or "", record.instance)
        if seat not in found:
            if not record.role or len(found) >= MOST_INSTANCES:
                continue
            found[seat] = Instance(*seat)
        found[seat].take(record)
    return found


def newest_at(instances: Mapping[Seat, Instance]) -> float:
    """Return the instant of the newest reading; 0 without any."""
    return max((one.seen_at for one in instances.values()), default=0.0)


def serving(instances: Mapping[Seat, Instance]) -> Iterator[Instance]:
    """Yield those that neither left nor were fenced, in order of role and instance."""
    yield from (one for _, one in sorted(instances.items()) if one.state in (None, "serving") and one.role != "queue")


LEAST_SPANS, LEAST_DONE = 3, 4  # of a speed: readings, and what was done


@dataclass(frozen=True, slots=True)
class Speed:
    """What was done a second, a request and second, and for which share of the time it was busy.

    ``work``: requests times the seconds in which it waited for no other; None: it does not state those. ``better``: what was done
    for such a request and second in the better spans, of which a quarter is better still.
    """

    a_second: float
    a_request: float
    busy: float
    done: int = 0
    work: float | None = None
    better: float = 0.0

    def is_less(self, other: Speed, factor: float, throughout: float) -> bool:
        """Whether ``factor`` times less was done a request than by another, and not because it waited for a third.

        ``throughout``: so many times are enough where its own work took ``factor`` times as long in nearly all spans.
        """
        if self.work is None or other.work is None:
            return self.a_request * factor < other.a_request
        slower = self.work * factor >= other.work and self.done * factor * other.work < other.done * self.work
        steady = self.better * factor * other.work < other.done
        return slower and self.a_request * (throughout if steady else factor) < other.a_request


def speed_of(one: Instance, since: float, until: float = 1e18, least: int = LEAST_DONE) -> Speed | None:
    """Return what an instance did between two instants; None where too little was read, or less than ``least`` done."""
    marks = [mark for mark in one.marks if since <= mark.at < until]
    spans = [(b.at - a.at, a.running, b.done - a.done) for a, b in pairwise(marks) if b.done >= a.done]
    seconds, done = sum(span[0] for span in spans), sum(span[2] for span in spans)
    work, busy = sum(span * running for span, running, _ in spans), sum(span for span, running, _ in spans if running)
    if len(spans) < LEAST_SPANS or done < least or not work:
        return None
    own, running = _worked(marks), work / busy
    if own is None:
        return Speed(done / seconds, done / work, busy / seconds)
    rates = sorted(did / max(each * running, 1e-9) for each, (_, _, did) in zip(own, spans, strict=False))
    better = rates[3 * len(rates) // 4]
    return Speed(done / seconds, done / work, busy / seconds, done, sum(own) * running, better)


def _worked(marks: Sequence[Mark]) -> list[float] | None:
    """Return for how many seconds it waited for no other between each two marks; None: not stated, or of two processes."""
    own = [b.worked - a.worked for a, b in pairwise(marks) if a.worked is not None and b.worked is not None]
    return own if len(own) == len(marks) - 1 and min(own) >= 0 else None


def alike(one: Instance, other: Instance) -> bool:
    """Whether two had about as many requests, each of which takes longer the more there are, on hardware of one kind."""
    if one.hardware != other.hardware:
        return False
    mine, theirs = (sum(mark.running for mark in who.marks[-8:]) / max(1, len(who.marks[-8:])) for who in (one, other))
    return min(mine, theirs) * 2 >= max(mine, theirs) > 0
