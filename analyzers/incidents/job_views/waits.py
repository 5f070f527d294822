"""The operations that ranks wait in: open entries of the probe's rings, and NCCL's counts of launched operations per rank."""

from __future__ import annotations

from dataclasses import dataclass

from analyzers.incidents.job_views.node import NodeView
from analyzers.incidents.job_views.processes import LARGEST_RANK, MOST_RANKS
from analyzers.model.rings import ring_values
from collectors.records import Members, RasCommunicator, Ring

MOST_DURATIONS = 256
MOST_COMMUNICATORS = 4_096


@dataclass(frozen=True, slots=True)
class OpenOperation:
    """The oldest collective or transfer that a rank has entered and not left. Sequence 0: a transfer."""

    since: float
    group: str
    operation: str
    sequence: int
    members: Members | None


@dataclass(slots=True)
class RankRing:
    """One rank's ring when it was last read."""

    at: float
    moved_at: float  # something was last entered or left
    inside: OpenOperation | None


@dataclass(slots=True)
class LaunchCounts:
    """A communicator by RAS: the operations launched, the ranks that are behind, and since when nothing has changed."""

    at: float
    since: float
    counts: int  # a hash of them: whether they changed is all that is asked
    behind: int  # how many ranks


class OpenOperations:
    """The rings and the communicators of one attempt."""

    def __init__(self) -> None:
        self.rings: dict[int, RankRing] = {}
        self.first_at: float | None = None
        self.looked_at = 0.0
        self.moved_at = 0.0  # any rank entered or left something
        self.communicators: dict[str, LaunchCounts] = {}
        self.first_count_at: float | None = None
        self.durations: list[float] = []  # the longest finished operation of each of the newest readings

    def take(self, ring: Ring, node: NodeView, received_at: float, *, durations: bool) -> float | None:
        """Apply a ring; return when it was read. ``durations``: keep them, because the job reports no steps."""
        if ring.rank is None or ring.ended:
            return None
        at = node.here(ring.at, received_at)
        known = self.rings.get(ring.rank)
        if known is not None and at <= known.at:
            return at
        if known is None and (len(self.rings) >= MOST_RANKS or not 0 <= ring.rank < LARGEST_RANK):
            return None
        entered, left = ring_values(ring, "entered_ns"), ring_values(ring, "left_ns")
        if not len(entered) == len(left) == ring.count:
            return at
        moved_ns = max(max(entered, default=0), max(left, default=0))
        moved_at = node.here(moved_ns / 1e9, at) if moved_ns > 0 else 0.0
        self.rings[ring.rank] = RankRing(at, moved_at, _inside(ring, entered, left, node, at) if -1 in left else None)
        self.moved_at, self.looked_at = max(self.moved_at, moved_at), max(self.looked_at, at)
        self.first_at = at if self.first_at is None else min(self.first_at, at)
        if durations:
            taken = max((end - begin for begin, end in zip(entered, left, strict=True) if end >= begin), default=0)
            self.durations = [*self.durations[1 - MOST_DURATIONS :], taken / 1e9]
        return at

    def count(self, communicator: RasCommunicator, node: NodeView, received_at: float) -> None:
        """Apply a communicator of a RAS report."""
        at = node.here(communicator.at, received_at)
        self.first_count_at = at if self.first_count_at is None else min(self.first_count_at, at)
        key = f"{communicator.hash[:64]}/{communicator.secondary_hash[:64]}"
        ranks = [rank for rank in communicator.ranks if not rank.missing and not rank.unresponsive]
        launched = tuple(sum(rank.counts.values()) for rank in ranks)
        most, counts = max(launched, default=0), hash(launched)
        behind = sum(count < most for count in launched)
        known = self.communicators.get(key)
        if known is None:
            if len(self.communicators) < MOST_COMMUNICATORS:
                self.communicators[key] = LaunchCounts(at, at, counts, behind)
        elif at > known.at:
            since = known.since if counts == known.counts else at
            self.communicators[key] = LaunchCounts(at, since, counts, behind)

    @property
    def changed_at(self) -> float:
        """Return when NCCL's counts last changed; 0.0: no change was seen."""
        changed_at = max((one.since for one in self.communicators.values()), default=0.0)
        return changed_at if self.first_count_at is not None and changed_at > self.first_count_at else 0.0

    @property
    def counted_at(self) -> float:
        """Return when NCCL's counts were last read; 0.0: never."""
        return max((one.at for one in self.communicators.values()), default=0.0)

    @property
    def moved_seconds(self) -> float:
        """Return for how long ranks have entered and left operations since the first reading."""
        return self.moved_at - self.first_at if self.first_at is not None else 0.0

    @property
    def counted_seconds(self) -> float:
        """Return for how long NCCL's counts have changed since the first report."""
        changed_at = max((one.since for one in self.communicators.values()), default=0.0)
        return changed_at - self.first_count_at if self.first_count_at is not None else 0.0

    def p99_seconds(self) -> float:
        """Return the p99 of the operations' durations."""
        ordered = sorted(self.durations)
        return ordered[(len(ordered) * 99 - 1) // 100] if ordered else 0.0


def _inside(ring: Ring, entered: list[int], left: list[int], node: NodeView, latest: float) -> OpenOperation:
    """Return the oldest open collective, or where there is none the oldest open transfer."""
    sequences = ring_values(ring, "collective_seq")
    sequences = sequences if len(sequences) == len(left) else [0] * len(left)
    still = [index for index, instant in enumerate(left) if instant == -1]
    oldest = min(still, key=lambda index: (sequences[index] == 0, entered[index]))
    group = _text(ring, "group", oldest)
    members = node.listed(
        -1 if ring.rank is None else ring.rank,
        next((known.members for known in ring.groups if known.name == group), None),
    )
    since = node.here(entered[oldest] / 1e9, latest)
    return OpenOperation(since, group, _text(ring, "operation", oldest), sequences[oldest], members)


def _text(ring: Ring, name: str, index: int) -> str:
    numbers = ring_values(ring, name)
    number = numbers[index] if index < len(numbers) else -1
    return ring.strings[number][:200] if 0 <= number < len(ring.strings) else ""
