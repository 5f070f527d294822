"""The ranks' processes: where each runs, or how it ended."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice

from analyzers.incidents.job_views.node import MOST_RANKS as MOST_RANKS_OF_A_NODE
from analyzers.incidents.job_views.node import NodeView
from analyzers.model.processes import READ_AGAIN_SECONDS
from analyzers.model.roles import Numbering
from collectors.records import Placement, ProcessState
from collectors.records.identity import places, size_of

ENDED = frozenset("XZ")
STOPPED, STUCK = "T", "D"
APART_SECONDS = 45.0  # between two readings of a process: over a longer span nothing is known of it
AGAIN_SECONDS = 5.0  # readings that are nearer, as those for an incident, are not kept
MOST_RAN = 10  # a minute and a half
SAME_SECONDS = 1.0  # by which an agent's readings are not regular
MOST_RANKS = 1 << 17
LARGEST_RANK = 1 << 30


@dataclass(frozen=True, slots=True)
class End:
    """How a rank's process ended; without code and signal the end was not seen."""

    rank: int
    node: str
    at: float  # by the service's clock
    pid: int | None = None
    code: int | None = None
    signal: int | None = None
    oom_kills: int | None = None  # of its node's kernel by then

    @property
    def well(self) -> bool:
        """Whether it ended with exit code 0."""
        return self.code == 0 and not self.signal

    @property
    def seen(self) -> bool:
        """Whether its code or signal was seen."""
        return self.code is not None or self.signal is not None

    @property
    def killed_by(self) -> int | None:
        """Return the signal that ended it; a program that catches a signal exits with 128 + signal, as a shell does."""
        code = self.code or 0
        return self.signal or (code - 128 if 128 < code <= 128 + 64 else None)

    def how(self) -> str:
        """Return it in words."""
        if self.signal:
            return f"by signal {self.signal}"
        return f"with exit code {self.code}" if self.code is not None else "in an unknown way"


@dataclass(slots=True)
class Process:
    """The youngest reported process of a rank."""

    node: str
    pid: int | None = None
    started_at: float | None = None  # by its node's clock, where reported
    state: str = ""
    oom_kills: int | None = None  # of its node's kernel, at the process's first reading
    seen_at: float | None = None  # by the service's clock
    ran_at: tuple[float, ...] = ()  # the newest readings since it was last read stopped, or was not read for long
    stopped: Held | None = None  # the newest span in which it was stopped


@dataclass(slots=True)
class Held:
    """A process that was found stopped, or stuck in the kernel, in all readings of a span."""

    rank: int
    node: str
    state: str
    since: float
    until: float
    spent: tuple[float | None, int | None]  # CPU time and voluntary switches: what is stuck gains none
    apart: float = 0.0  # the longest span between two of the readings

    @property
    def seconds(self) -> float:
        """Return for how long it was seen so."""
        return self.until - self.since


class Processes:
    """The processes of one attempt, by the number that ``numbering`` gives them: their rank, unless roles share it."""

    def __init__(self, numbering: Numbering | None = None) -> None:
        self.numbering = numbering or Numbering()
        self._sizes: dict[str, int] = {}  # role → its number of ranks
        self.ranks: dict[int, str] = {}
        self.by_rank: dict[int, Process] = {}
        self.ended: dict[int, End] = {}
        self.former: dict[int, End] = {}  # how the process before the present one of a rank ended
        self.pids: dict[str, set[int]] = {}  # node → of the ranks' processes there, earlier ones too
        self.held: dict[int, Held] = {}  # the ranks that are stopped or stuck now
        self.continued: list[Held] = []  # those that are it no more, until they are taken up
        self.run_began_at = 0.0  # by the nodes' clocks: when most ranks were started anew, or their number changed
        self._younger: dict[int, float] = {}  # the ranks that were replaced since, and when the new process began
        self._placed: dict[str, tuple[float, frozenset[int]]] = {}  # node → its newest placement: when, and which ranks

    def killed_for_memory(self, end: End) -> bool:
        """Whether its node's kernel killed for memory in the life of a process that has ended."""
        process = self.by_rank.get(end.rank)
        began = None if process is None else process.oom_kills
        return began is not None and end.oom_kills is not None and end.oom_kills > began

    @property
    def world_size(self) -> int | None:
        """Return how many ranks there are, where placements state it: in all roles together, where they share numbers."""
        return (sum if self.numbering.shares else max)(self._sizes.values()) if self._sizes else None

    @property
    def alive(self) -> int:
        """Return how many ranks are not known to have ended."""
        return len(self.ranks) - len(self.ended)

    def ran_beside(self, one: Held) -> bool:
        """Whether another rank was read running while this one was stopped: else a person may have stopped all of them.

        On its own node one agent reads both at the same instants. Elsewhere the other ran for so long that this one, had it been
        continued, too, would have been read in between.
        """
        others = (process for rank, process in self.by_rank.items() if rank != one.rank and rank not in self.ended)
        return self.alive < 2 or any(_ran_on_its_node(other, one) or _ran_elsewhere(other, one) for other in others)

    def place(self, placement: Placement, node: NodeView, received_at: float) -> None:
        """Apply a placement. A rank that is missing in a node's newer placement has ended."""
        seats = list(islice(places(placement), MOST_RANKS_OF_A_NODE))
        ranks = [self.numbering.number(role, rank) for _, role, rank in seats]
        at = node.here(placement.at, received_at)
        for role in dict.fromkeys(role for _, role, _ in seats):
            size = size_of(placement, [place for place, whose, _ in seats if whose == role])
            if size is not None and 0 < size <= LARGEST_RANK:
                if size > self._sizes.get(role, size):
                    self.run_began_at = max(self.run_began_at, at)
                self._sizes[role] = max(size, self._sizes.get(role, 0))
        for index, (rank, name) in enumerate(zip(ranks, placement.nodes, strict=False)):
            pid = placement.pids[index] if index < len(placement.pids) else None
            started_at = placement.started_ats[index] if index < len(placement.started_ats) else None
            self._process(rank, name, pid, started_at)
        if all(name == node.node for name in placement.nodes):
            self._account(node.node, at, frozenset(ranks))

    def look(self, row: ProcessState, node: NodeView, received_at: float) -> None:
        """Apply the state of a process; a child process of a rank is not the rank."""
        if row.rank is None or row.parent_pid is not None:
            return
        process = self._process(row.rank, node.node, row.pid, row.started_at)
        if process is None:
            return
        at, over = node.here(row.at, received_at), row.exit_code is not None or row.signal is not None
        end = End(row.rank, node.node, at, row.pid, row.exit_code, row.signal, row.oom_kills_total)
        if process.pid != row.pid:
            if over and row.pid in self.pids.get(node.node, ()):
                self.former[row.rank] = end
            return
        if row.state in ENDED or over:
            self._end(end)
            return
        if row.oom_kills_total is not None:
            process.oom_kills = min(row.oom_kills_total, process.oom_kills or row.oom_kills_total)
        if process.seen_at is None or at >= process.seen_at:
            process.seen_at, process.state = at, row.state
            process.ran_at = () if row.state == STOPPED else _ran(process.ran_at, at)
            if (missed := self.ended.get(row.rank)) is not None and not missed.seen and missed.at < at:
                del self.ended[row.rank]  # one scan had missed it
            self._hold(row.rank, node.node, row, at)

    def _hold(self, rank: int, node: str, row: ProcessState, at: float) -> None:
        """Note since when a process is stopped or stuck. A span that no agent read counts for neither."""
        spent = (row.cpu_seconds, row.voluntary_switches)
        known = self.held.get(rank)
        stays = known is not None and known.state == row.state and at - known.until <= APART_SECONDS
        if known is not None and stays and (row.state == STOPPED or known.spent == spent):
            known.apart, known.until = max(known.apart, at - known.until), at
            return
        if known is not None:
            del self.held[rank]
            self.continued.append(known)
        if row.state in {STOPPED, STUCK}:
            self.held[rank] = Held(rank, node, row.state, at, at, spent)
            if row.state == STOPPED and (process := self.by_rank.get(rank)) is not None:
                process.stopped = self.held[rank]

    def _process(self, rank: int, node: str, pid: int | None, started_at: float | None) -> Process | None:
        """Return the rank's process, which is the youngest reported."""
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
            if rank in self.ended:
                self.former[rank] = self.ended.pop(rank)
            self.held.pop(rank, None)
            self._replaced(rank, started_at or 0.0)
        self.ranks[rank] = process.node
        if process.pid is not None:
            here = self.pids.setdefault(process.node, set())
            if len(here) < MOST_RANKS_OF_A_NODE:
                here.add(process.pid)
        return process

    def _replaced(self, rank: int, started_at: float) -> None:
        """Where most ranks have a younger process it is another run, whatever its number."""
        self._younger[rank] = started_at
        if 2 * len(self._younger) > len(self.by_rank):
            self.run_began_at = max(self.run_began_at, min(self._younger.values()))
            self._younger.clear()

    def _end(self, end: End) -> None:
        """Keep how a process ended: the first end with a code or signal, as a zombie may be reported before its code.

        An end that no agent saw is none where the process was read later.
        """
        process = self.by_rank.get(end.rank)
        if not end.seen and process is not None and process.pid == end.pid and (process.seen_at or 0.0) > end.at:
            return
        self.held.pop(end.rank, None)
        known = self.ended.get(end.rank)
        if known is None or (end.seen, -end.at) > (known.seen, -known.at):
            self.ended[end.rank] = end

    def _account(self, node: str, at: float, ranks: frozenset[int]) -> None:
        before = self._placed.get(node)
        if before is not None and at <= before[0]:
            return
        self._placed[node] = at, ranks
        for rank in before[1] - ranks if before is not None and before[1] != ranks else ():
            process = self.by_rank.get(rank)
            if process is not None and process.node == node:
                self._end(End(rank, node, at, process.pid))


def _ran(ran_at: tuple[float, ...], at: float) -> tuple[float, ...]:
    """Return the newest readings of a process that runs: what a late agent reports of another is compared with older ones."""
    if ran_at and at - ran_at[-1] < AGAIN_SECONDS:
        return ran_at
    kept = ran_at if ran_at and at - ran_at[-1] <= 2.0 * READ_AGAIN_SECONDS else ()
    return (*kept[1 - MOST_RAN :], at)


def _ran_on_its_node(other: Process, one: Held) -> bool:
    """Whether a rank that the same agent reads ran on, and was not stopped in between as far as it was read."""
    stopped_until = other.stopped.until if other.stopped is not None else -math.inf
    return other.node == one.node and stopped_until < one.since - READ_AGAIN_SECONDS and bool(_readings(other, one))


def _ran_elsewhere(other: Process, one: Held) -> bool:
    beside = _readings(other, one)
    stopped_until = other.stopped.until if other.stopped is not None else -math.inf
    ran_on = stopped_until < one.until - READ_AGAIN_SECONDS
    return ran_on and bool(beside) and beside[-1] - beside[0] >= one.apart - SAME_SECONDS


def _readings(other: Process, one: Held) -> list[float]:
    """Return when a rank was read running while another was stopped; one that is stopped with it may be so a little later."""
    return [at for at in other.ran_at if one.since + READ_AGAIN_SECONDS < at <= one.until]
