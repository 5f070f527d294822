"""What nodes claim of a job's ranks, and which node hosts which of them in one attempt."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field

from collectors.records import Members, Placement, Record
from collectors.records.identity import PLACED, only, places

MOST_CLAIMED = 4_096  # ranks of one job on one node: the agent reads no more processes
LONGEST_ROLE, LONGEST_DEVICE = 64, 128  # as the tables have them
PLAIN_SECONDS = 45.0  # in which the agents of a job's nodes report it: its ranks are numbered, and start together
ROLES_SECONDS = 90.0  # the same where an agent may have been away
LONGEST_SECONDS = 900.0  # in which the roles of a job that does no steps yet may start one after another
STEPPING_SECONDS = 20.0  # of steps: what they need has started

Attempt = int | None
Seat = tuple[int, str]  # rank, role: a job whose roles count from 0 each has a trainer 0 and a rollout 0


@dataclass(slots=True)
class HostClaim:
    """What one node says it runs of a job now. Instants are of receipt."""

    attempt: Attempt
    since: float
    seen_at: float  # the newest sign of its processes
    renewed_at: float  # its processes became others
    seats: dict[Seat, None] = field(default_factory=dict)
    ranks: set[int] = field(default_factory=set)  # of the seats: each record of a node asks for its own
    placement: Placement | None = None  # the newest: of its processes alone
    sizes: dict[str, int | None] = field(default_factory=dict)  # role → the number of ranks that it states for it
    unnumbered: frozenset[Seat] = frozenset()  # what it says it runs of no attempt, beside one that has a number

    def hold(self, seats: Iterable[Seat]) -> None:
        """Claim these seats, and no others."""
        self.seats = dict.fromkeys(seats)
        self.ranks = {rank for rank, _ in self.seats}

    def add(self, seat: Seat) -> None:
        """Claim one more."""
        self.seats[seat] = None
        self.ranks.add(seat[0])

    def note_unnumbered(self, placement: Placement) -> None:
        """Keep what a placement without an attempt names."""
        self.unnumbered = frozenset((rank, role) for _, role, rank in places(placement))

    def beside(self, attempt: Attempt) -> Set[Seat]:
        """Return what it claims elsewhere and is read with an attempt: what is of no attempt is read with every one."""
        if self.attempt != attempt and None in (self.attempt, attempt):
            return self.unnumbered | self.seats.keys()
        return self.unnumbered


@dataclass(slots=True)
class Start:
    """The start of an attempt, in which any node may join it. Instants are of receipt."""

    began_at: float = 0.0
    steps_since: float | None = None  # its first reported step
    steps_until: float = 0.0
    has_roles: bool = False  # it has ranks with a role, or without a number: how many it will have is not known

    def note_step(self, at: float) -> None:
        """Note that the job reports steps."""
        self.steps_since = at if self.steps_since is None else self.steps_since
        self.steps_until = at

    def lasts(self, at: float, sizes: Mapping[str, int]) -> bool:
        """Whether the attempt is still starting. ``sizes``: role → its number of ranks, as its hosts state it."""
        if not self.has_roles and sizes:
            return at < self.began_at + PLAIN_SECONDS
        steps = self.steps_since is not None and self.steps_until >= self.steps_since + STEPPING_SECONDS
        return at < self.began_at + (ROLES_SECONDS if steps else LONGEST_SECONDS)


@dataclass(slots=True)
class RankMap:
    """One attempt: each rank with its hosts, of which there are several only where their roles differ."""

    by_rank: dict[int, tuple[tuple[str, str], ...]] = field(default_factory=dict)  # rank → (role, node)
    on: dict[str, set[Seat]] = field(default_factory=dict)  # node → what it hosts, or nothing any more
    left: dict[int, tuple[str, str]] = field(default_factory=dict)  # rank → (role, node) that gave it up
    start: Start = field(default_factory=Start)

    def rivals(self, node: str, rank: int, role: str) -> list[str]:
        """Return the other nodes that host this rank, unless both have roles and these differ."""
        entries = self.by_rank.get(rank, ())
        return [host for held, host in entries if host != node and not (role and held and role != held)]

    def add(self, node: str, seat: Seat) -> None:
        """Let a node host a rank."""
        rank, role = seat
        self.by_rank[rank] = (*self.by_rank.get(rank, ()), (role, node))
        self.on.setdefault(node, set()).add(seat)
        self.left.pop(rank, None)
        self.start.has_roles |= bool(role) or rank >= PLACED

    def drop(self, node: str, seat: Seat) -> None:
        """Take a rank from a node."""
        rank, role = seat
        left = tuple(entry for entry in self.by_rank.get(rank, ()) if entry != (role, node))
        if left:
            self.by_rank[rank] = left
        else:
            self.by_rank.pop(rank, None)
        self.on.get(node, set()).discard(seat)
        self.left[rank] = role, node

    def is_of_another(self, node: str, seat: Seat) -> bool:
        """Whether other nodes alone host a rank, or one gave it up last."""
        if seat in self.on.get(node, ()):
            return False
        return bool(self.rivals(node, *seat)) or self.last_host(seat) not in (None, node)

    def last_host(self, seat: Seat) -> str | None:
        """Return the node that gave a rank up, which no other has taken since; None: none did."""
        role, node = self.left.get(seat[0], ("", ""))
        return None if not node or (role and seat[1] and role != seat[1]) else node

    def take_from(self, rival: str, rank: int, role: str) -> None:
        """Take from a node what ``rivals`` found it to host."""
        for held in [
            seat for seat in self.on.get(rival, ()) if seat[0] == rank and not (role and seat[1] not in ("", role))
        ]:
            self.drop(rival, held)


def own_ranks(placement: Placement, foreign: Collection[Seat]) -> Placement:
    """Return a placement without these ranks."""
    kept = [place for place, role, rank in places(placement) if not _among(rank, role, foreign)]
    return placement if len(kept) == len(placement.ranks or ()) else only(placement, kept)


def is_refused(record: Record, foreign: Collection[Seat]) -> bool:
    """Whether a record is about one of these ranks."""
    return record.rank is not None and _among(record.rank, record.role or "", foreign)


def _among(rank: int, role: str, foreign: Collection[Seat]) -> bool:
    """Whether a rank is one of these; where either states no role, the number decides."""
    if (rank, role) in foreign or (rank, "") in foreign:
        return True
    return not role and any(held == rank for held, _ in foreign)


def processes_of(placement: Placement) -> Placement:
    """Return what a placement says of its processes: labels and long names of one would take megabytes for an hour."""
    ranks = placement.ranks.ranks()[:MOST_CLAIMED] if placement.ranks is not None else None
    count = len(ranks or ())
    return Placement(
        at=placement.at,
        received_at=placement.received_at,
        node=placement.node,
        job=placement.job,
        attempt=placement.attempt,
        role=placement.role[:LONGEST_ROLE] if placement.role else None,
        ranks=Members.of(ranks) if ranks is not None else None,
        world_size=placement.world_size,
        world_sizes=placement.world_sizes[:count],
        nodes=placement.nodes[:count],
        pids=placement.pids[:count],
        local_ranks=placement.local_ranks[:count],
        roles=tuple(role[:LONGEST_ROLE] for role in placement.roles[:count]),
        devices=tuple(device[:LONGEST_DEVICE] for device in placement.devices[:count]),
        started_ats=placement.started_ats[:count],
    )


def number_of(attempt: Attempt) -> int:
    """Return an attempt's number, -1 for one without: it is the earliest."""
    return -1 if attempt is None else attempt
