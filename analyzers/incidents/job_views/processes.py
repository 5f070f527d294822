"""The ranks' processes: which runs where, and how those that do not run any more have ended."""

from __future__ import annotations

from dataclasses import dataclass

from analyzers.incidents.job_views.node import NodeView
from collectors.records import Placement, ProcessState

ENDED = frozenset("XZ")
MOST_RANKS = 1 << 17
LARGEST_RANK = 1 << 30


@dataclass(frozen=True, slots=True)
class End:
    """How a rank's process ended; neither code nor signal: nobody saw it."""

    rank: int
    node: str
    at: float  # by the service's clock
    pid: int | None = None
    code: int | None = None
    signal: int | None = None

    @property
    def well(self) -> bool:
        """Whether it ended as a process does that has done its work."""
        return self.code == 0 and not self.signal

    @property
    def seen(self) -> bool:
        """Whether anybody saw how."""
        return self.code is not None or self.signal is not None

    @property
    def killed_by(self) -> int | None:
        """Return the signal that ended it; a program that catches one and leaves says 128 + signal, as a shell does."""
        code = self.code or 0
        return self.signal or (code - 128 if 128 < code <= 128 + 64 else None)

    def how(self) -> str:
        """Say it in words."""
        if self.signal:
            return f"by signal {self.signal}"
        return f"with exit code {self.code}" if self.code is not None else "in a way that nobody saw"


@dataclass(slots=True)
class Process:
    """A rank's process, the youngest that was told of."""

    node: str
    pid: int | None = None
    started_at: float | None = None  # by its node's clock, as far as it is told
    state: str = ""
    seen_at: float | None = None  # the newest look, by the service's clock


class Processes:
    """The processes of one attempt, by rank."""

    def __init__(self) -> None:
        self.ranks: dict[int, str] = {}
        self.by_rank: dict[int, Process] = {}
        self.ended: dict[int, End] = {}
        self.world_size: int | None = None
        self._placed: dict[str, tuple[float, frozenset[int]]] = {}  # node → when it told of which ranks

    @property
    def alive(self) -> int:
        """Return how many ranks are not known to have ended."""
        return len(self.ranks) - len(self.ended)

    def place(self, placement: Placement, node: NodeView, received_at: float) -> None:
        """Take which ranks run where. Of a node's own two accounts the newer one tells who has vanished."""
        ranks = placement.ranks.ranks() if placement.ranks is not None else ()
        at = node.here(placement.at, received_at)
        if placement.world_size is not None and 0 < placement.world_size <= LARGEST_RANK:
            self.world_size = max(placement.world_size, self.world_size or 0)
        for index, (rank, name) in enumerate(zip(ranks, placement.nodes, strict=False)):
            pid = placement.pids[index] if index < len(placement.pids) else None
            started_at = placement.started_ats[index] if index < len(placement.started_ats) else None
            self._process(rank, name, pid, started_at)
        if all(name == node.node for name in placement.nodes):
            self._account(node.node, at, frozenset(ranks))

    def look(self, row: ProcessState, node: NodeView, received_at: float) -> None:
        """Take one look at a process; what a rank has started is not the rank."""
        if row.rank is None or row.parent_pid is not None:
            return
        process = self._process(row.rank, node.node, row.pid, row.started_at)
        if process is None or process.pid != row.pid:
            return  # one that the rank had before
        at = node.here(row.at, received_at)
        if row.state in ENDED or row.exit_code is not None or row.signal is not None:
            self._end(End(row.rank, node.node, at, row.pid, row.exit_code, row.signal))
        elif process.seen_at is None or at >= process.seen_at:
            process.seen_at, process.state = at, row.state

    def _process(self, rank: int, node: str, pid: int | None, started_at: float | None) -> Process | None:
        """Return the rank's process after hearing of this one: the youngest holds."""
        process = self.by_rank.get(rank)
        if process is None:
            if not 0 <= rank < LARGEST_RANK or len(self.by_rank) >= MOST_RANKS:
                return None
            process = self.by_rank[rank] = Process(node, pid, started_at)
        elif pid is not None and process.pid is None:
            process.node, process.pid, process.started_at = node, pid, started_at
        elif pid is not None and (pid, node) != (process.pid, process.node):
            if (started_at or 0.0, pid) <= (process.started_at or 0.0, process.pid or 0):
                return process
            process = self.by_rank[rank] = Process(node, pid, started_at)
            self.ended.pop(rank, None)
        self.ranks[rank] = process.node
        return process

    def _end(self, end: End) -> None:
        """Keep how a process ended: the first that was seen, for a zombie may be told of before its code."""
        known = self.ended.get(end.rank)
        if known is None or (end.seen, -end.at) > (known.seen, -known.at):
            self.ended[end.rank] = end

    def _account(self, node: str, at: float, ranks: frozenset[int]) -> None:
        before = self._placed.get(node)
        if before is not None and at <= before[0]:
            return
        self._placed[node] = at, ranks
        for rank in before[1] - ranks if before is not None and before[1] != ranks else ():
            process = self.by_rank[rank]
            if process.node == node:
                self._end(End(rank, node, at, process.pid))
