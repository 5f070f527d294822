"""The instances of a job's roles at one instant, and what is said of one that holds the others up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from analyzers.knowledge.role_rules import RoleBounds, RoleRules
from analyzers.model.role_instances import Instance, Seat, serving
from analyzers.model.role_silence import NOT_SEEN, Seen, Silence
from analyzers.model.role_waits import RoleWaits


@dataclass(frozen=True, slots=True)
class Stall:
    """One instance, or with ``instance`` empty a role, that makes no progress though it should. ``since``: UTC seconds."""

    fault_class: str
    role: str
    instance: str
    since: float
    strength: float
    why: str
    phase: str = ""
    source: str = ""
    at: float | None = None  # of the newest reading that shows it
    blocked: int = 0  # how many instances wait for it, directly or not
    seats: tuple[Seat, ...] = ()  # of a role: the instances it is about
    missing: str = ""  # what would show it: until then it opens an incident, and accuses none

    @property
    def behind(self) -> str:
        """Say how many instances wait for it; empty: none."""
        return f"; {self.blocked} instance{'s wait' if self.blocked > 1 else ' waits'} for it" if self.blocked else ""

    @property
    def whom(self) -> tuple[Seat, ...]:
        """Return the instances that it is about."""
        return self.seats or ((self.role, self.instance),)


@dataclass
class Look:
    """One look at the instances of a job: what is known of each, who waits for whom, and who is not heard."""

    instances: Mapping[Seat, Instance]
    now: float
    rules: RoleRules
    seen: Mapping[Seat, Seen]
    waits: RoleWaits = field(init=False)
    silence: Silence = field(init=False)
    _usual: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        # An end that an instance's heartbeats outlive is of another process: of a former one, or of another's number.
        late = self.bounds.heartbeat_seconds
        heard = {seat: one.renewed_at - late for seat, one in self.instances.items() if one.renewed_at is not None}
        self.seen = {seat: one for seat, one in self.seen.items() if not one.is_before(heard.get(seat))}
        self.waits = RoleWaits(self.instances, self.rules, self.now)
        self.silence = Silence(list(serving(self.instances)), self.waits.waiting, self.bounds, self.seen)

    @property
    def bounds(self) -> RoleBounds:
        """Return the bounds of every role."""
        return self.rules.bounds

    def moves(self, one: Instance) -> bool:
        """Whether it was seen to make progress within the last minute."""
        count = one.tokens or one.steps
        return count is not None and count.moved and self.fresh(count.seen_at) and self.now - count.since < 60.0

    def fresh(self, at: float) -> bool:
        """Whether a reading of that instant still says something of now."""
        return self.now - at <= self.bounds.stale_seconds

    def usual_stays(self, role: str, kind: str) -> tuple[float, float]:
        """Return how often an instance of a role came back to a phase, and the longest time in one of a kind that was over.

        A phase that is short is seldom met by a reading: that others came and went shows that it did too.
        """
        if (role, kind) not in self._usual:
            members = self.waits.of_role(role)
            ended, longest = Counter[str](), 0.0
            for name, stay in (each for other in members for each in other.stays.by_phase.items()):
                ended[name] += stay.ended
                longest = max(longest, stay.longest if self.rules.phase_kind(name) == kind else 0.0)
            self._usual[role, kind] = max(ended.values(), default=0) / max(1, len(members)), longest
        return self._usual[role, kind]

    def is_overdue(self, one: Instance) -> bool:
        """Whether it has been in its phase for longer than that may take."""
        return self.fresh(one.spoke_at) and self.was_overdue(one)

    def was_overdue(self, one: Instance) -> bool:
        """Whether it would be by now in the phase of its last word, however old that is."""
        longest = self.rules.of_phase(one.phase).longest_seconds
        return one.phase_since is not None and 0 < longest < self.now - one.phase_since

    def stall(
        self, fault_class: str, one: Instance, since: float, strength: float, why: str, seen: Seen = NOT_SEEN
    ) -> Stall:
        """Return what is said of one instance."""
        return Stall(
            fault_class, one.role, one.instance, since, strength, why, one.phase or "", seen.source or one.source,
            seen.at or one.seen_at,
        )  # fmt: skip
