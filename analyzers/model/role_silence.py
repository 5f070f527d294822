"""Instances that are not heard any more: which they are, and whether it is they who fell silent or who listens that is deaf."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from analyzers.knowledge.role_rules import RoleBounds, RoleRules
from analyzers.model.role_instances import Instance, Seat

LEASES = 1.5  # without a heartbeat: one that renews each minute is heard more seldom
LEAST_DEAF_NODES = 4
BETWEEN_SECONDS = (
    600.0  # from the last word under an old name to the first under a new one: weights are loaded meanwhile
)
ENDED = frozenset({"X", "Z"})
STOPPED = frozenset({"T", "t"})
ASKED = frozenset({2, 15})  # SIGINT and SIGTERM: a person or a scheduler has ended it


@dataclass(frozen=True, slots=True)
class Seen:
    """What an agent saw of an instance's process. ``still_seconds``: it used no processor and no tensor core for so long."""

    state: str = ""  # ps's letter of the newest row; "gone": its node's newest table has no such process
    at: float | None = None
    for_seconds: float = 0.0  # it was read in this state for so long
    still_seconds: float | None = None
    source: str = ""
    leaked_by: Seat | None = None  # it was killed for memory, and this one had grown most
    killed_for_memory: bool = False
    ended_well: bool = False  # with exit code 0: its job is ending, or had no more work for it
    asked_to_end: bool = False  # by one of ``ASKED``
    own_code: str = ""  # where its main thread ran, in every round of stacks, in the program's own code
    elsewhere: bool = False  # its newest stacks do not stand in one place of that

    def is_before(self, heard_at: float | None) -> bool:
        """Whether it is the end of a process before an instance was heard; None: that was never heard."""
        return self.state in ENDED and self.at is not None and heard_at is not None and self.at < heard_at


NOT_SEEN = Seen()


@dataclass
class Silence:
    """The heartbeats of a job's serving instances. ``seconds``: of those that are missing, for how long."""

    every: Sequence[Instance]
    waiting: Sequence[Instance]
    bounds: RoleBounds
    seen: Mapping[Seat, Seen] = field(default_factory=dict)
    seconds: dict[Seat, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Find those that are silent, and when the others began."""
        ended = {seat for seat, seen in self.seen.items() if seen.state in ENDED}
        living = any(seen.state and seen.state not in ENDED | {"gone"} for seen in self.seen.values())
        self.every = [one for one in self.every if one.renewed_at is not None]
        self.seconds = {one.seat: seconds for one in self.every if (seconds := self.of(one)) is not None}
        heard = [one for one in self.every if one.seat not in self.seconds and one.seat not in ended]
        self._began_at = min((one.began_at for one in heard), default=0.0)
        self._roles = {one.role for one in heard}
        self.all_ended = bool(ended) and not heard and not living

    def of(self, one: Instance) -> float | None:
        """Return for how long an instance has not been heard; None: it is heard, or has no heartbeat."""
        if one.renewed_at is None:
            return None
        silent = one.renewed_read_at - one.renewed_at
        return silent if silent >= max(self.bounds.heartbeat_seconds, LEASES * (one.lease_seconds or 0.0)) else None

    def is_deaf(self) -> bool:
        """Whether so many are silent at once, or on so many machines, that who listens is at fault."""
        share, nodes = self.bounds.lost_share, set(_nodes(self.every))
        silent = [one for one in self.every if one.seat in self.seconds]
        quiet = set(_nodes(silent))
        if len(quiet) >= LEAST_DEAF_NODES and len(quiet) > share * len(nodes):
            return True
        if all(one.node for one in silent) and len(quiet) < LEAST_DEAF_NODES and len(quiet) <= share * len(nodes):
            return False  # it is these machines, and the others are heard
        return len(self.seconds) > 1 and len(self.seconds) > share * len(self.every)

    def is_former(self, one: Instance) -> bool:
        """Whether it was heard last before all that are heard began, and none of those asks for it: it is of a run before."""
        if one.renewed_at is None or self._began_at <= one.renewed_at:
            return False
        asked = ((other.waiting_for or "").partition(" ")[0] for other in self.waiting)
        return one.role in self._roles or one.role not in asked


def _nodes(every: Sequence[Instance]) -> Iterator[str]:
    return (one.node for one in every if one.node is not None)


def renamed(
    quiet: Iterable[Instance], every: Sequence[Instance], rules: RoleRules, seen: Mapping[Seat, Seen]
) -> frozenset[Seat]:
    """Return which of those that are not heard go on under another role's name.

    A framework may call its rollouts generators from some step on, or start a role anew under another name beside roles that run
    on. The role of the new name has to be younger; each of its instances replaces one, on its node.

    Whose process is the new one's is renamed, whatever the names. Another process takes the place of one that has ended, or that
    no agent has seen, where both roles are for the same; of a name that is not known, where the whole role is gone and the new
    one has as many instances on each of its nodes, which are several.
    """
    olds = sorted(quiet, key=lambda one: one.seat)
    ended = {one.seat for one in every if seen.get(one.seat, NOT_SEEN).state in ENDED | {"gone"}}
    roles, nodes = defaultdict[str, list[Instance]](list), defaultdict[str, list[Instance]](list)
    for one in every:
        roles[one.role].append(one)
        nodes[one.node or ""].append(one)
    began = {role: min(one.began_at for one in of) for role, of in roles.items()}
    where = {role: Counter(one.node for one in of) for role, of in roles.items()}
    silent = Counter(one.role for one in olds)
    taken, found = set[Seat](), set[Seat]()

    def follows(new: Instance, old: Instance) -> bool:
        last = old.renewed_at or old.seen_at
        if began[new.role] <= began[old.role] or not last <= new.began_at <= last + BETWEEN_SECONDS:
            return False
        if new.pid is not None and new.pid == old.pid:
            return True
        if new.seat in ended or (old.seat in seen and old.seat not in ended):
            return False
        whole = silent[old.role] == len(roles[old.role]) and len(where[old.role]) > 1
        alike = not rules.kind(new.role) and whole and where[new.role] == where[old.role]
        return alike or rules.kind(new.role) == rules.kind(old.role)

    for old in olds if any(began[role] > min(began.values()) for role in began) else ():
        later = [new for new in nodes[old.node] if new.seat not in taken and follows(new, old)] if old.node else []
        if later:
            found.add(old.seat)
            taken.add(min(later, key=lambda new: (new.pid != old.pid, new.instance != old.instance, new.seat)).seat)
    return frozenset(found)
