"""How processes ended, as an agent saw it: code or signal, and an instant by the kernel's clock.

Their order shows little: what raised, or was killed, can take longer to go than its peers take to notice, and then its launcher
ends it as a victim. So the first counts only where it left long before the others, or with a code that no lost peer leaves with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analyzers.model.processes import READ_AGAIN_SECONDS
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import LogEvent, ProcessState, RoleState

KILL, TERMINATE = 9, 15
LIMITS = frozenset({10, 12, 14, 24})  # SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU: a limit, where all ranks get the same
CLEANUP_SECONDS = 15.0
"""So long after the first failure a SIGKILL is its launcher's: torchrun and srun ask for 30 s before they kill."""
TOGETHER_SECONDS = (
    2.0  # all ended within this, all by SIGTERM, SIGKILL or a limit's signal: the job was ended from outside
)
ASKED_SECONDS = 1.5  # a SIGKILL so long after the first SIGTERM ends what did not end when asked (Slurm: KillWait)
DYING_SECONDS = 5.0  # that a large process takes to end after it was killed: rounds in between hold that kill already
LOOKED_SECONDS = 60.0  # before its end: what the kernel killed then was this one
LONGEST_DYING_SECONDS = 180.0  # what it killed between the two may have been this one, and earlier another
LEFT_SECONDS = (
    10.0  # within which ranks leave together: an exception or Ctrl-C takes that long to end one on a busy machine
)
AFTER_SECONDS = 0.05  # what ended so much later ended after it
RAISED = 1  # Python's code of any exception: of an own one, and of a lost connection


_Place = tuple[str | None, int | None]  # role and rank


@dataclass(frozen=True, slots=True)
class _Exit:
    row: ProcessState
    at: float

    @property
    def signal(self) -> int | None:
        """The signal that ended it."""
        return _signal(self.row)


def exit_events(window: Window, topology: Topology) -> list[LogEvent]:
    """Return an event for each rank's process that did not end well; none where the whole job was ended from outside."""
    rows = _of_ranks(window)
    runs = _running_last(rows)
    newest: dict[int | None, _Exit] = {}
    ended = [row for row in rows if row.state in {"X", "Z"} and (row.exit_code or row.signal)]
    for row in _not_replaced(ended, window):
        if runs[row.role, row.rank] == (row.node, row.pid):
            newest[row.rank] = _Exit(row, row.at or 0.0)
    exits = sorted(newest.values(), key=lambda one: (one.at, one.row.rank))
    if not exits or _ended_together(exits, topology, _left_well(rows, exits[0].at)):
        return []
    first = _own_codes(exits, topology) or _first(exits, rows)
    swept = _swept(exits)
    return [
        _event(
            one,
            first=one in first,
            cleanup=one in swept or _cleanup(one, exits, rows),
            memory=_for_memory(one.row, rows),
        )
        for one in exits
    ]


def not_for_memory(window: Window) -> frozenset[int]:
    """Return the ranks that a SIGKILL ended while their nodes' kernels, who count that, killed nothing for memory."""
    rows = _of_ranks(window)
    return frozenset(row.rank for row in rows if row.rank is not None and _for_memory(row, rows) is False)


def left_before(window: Window) -> dict[int, ProcessState]:
    """Return the ranks whose processes ended well before any other ended badly; none where no other did."""
    rows = _of_ranks(window)
    runs = _running_last(rows)
    ends = [row for row in rows if row.state in {"X", "Z"} and runs[row.role, row.rank] == (row.node, row.pid)]
    bad = min((row.at or 0.0 for row in ends if row.exit_code or row.signal), default=0.0)
    well = (row for row in ends if row.exit_code == 0 and not row.signal)
    return {row.rank: row for row in well if row.rank is not None and (row.at or 0.0) <= bad - AFTER_SECONDS}


def _not_replaced(ends: list[ProcessState], window: Window) -> list[ProcessState]:
    """Return the ends but those of processes that had lost their instance of a role before: a restart ended them."""
    readings = [one for one in window.records_of(RoleState) if one.epoch is not None] if ends else []
    if not readings:
        return ends
    from analyzers.model.role_epochs import former_holders  # few jobs have a directory of roles

    former = former_holders(sorted(readings, key=lambda one: one.at or 0.0))
    return [row for row in ends if not former.had_lost(row.role or "", row.pid, row.node, row.at or 0.0)]


def _of_ranks(window: Window) -> list[ProcessState]:
    """Return the rows of ranks; a process that a rank started has an end of its own, which the rank outlives or reports."""
    return [row for row in window.records_of(ProcessState) if row.rank is not None and row.parent_pid is None]


def _signal(row: ProcessState) -> int | None:
    """Return the signal of an end; a program that catches one and leaves says 128 + signal, as a shell does."""
    code = row.exit_code or 0
    return row.signal or (code - 128 if 128 < code <= 128 + 64 else None)


def _for_memory(end: ProcessState, rows: Sequence[ProcessState]) -> bool | None:
    """Whether its node's kernel killed for memory in the minute before this SIGKILL took its process.

    None where no agent counted then, and where the kernel killed some minutes earlier in the life of the process: one of much
    memory, or that a driver holds, may take as long to go.
    """
    if end.state not in {"X", "Z"} or _signal(end) != KILL or end.oom_kills_total is None:
        return None
    end_at = end.at or 0.0
    counted = [
        (end_at - (row.at or 0.0), row.oom_kills_total)
        for row in rows
        if row.oom_kills_total is not None and (row.node, row.boot_id) == (end.node, end.boot_id)
    ]
    lately = [count for ago, count in counted if DYING_SECONDS <= ago <= LOOKED_SECONDS]
    if not lately:
        return None
    if end.oom_kills_total > min(lately):
        return True
    lived_seconds = end_at - (end.started_at or 0.0)
    earlier = [count for ago, count in counted if LOOKED_SECONDS < ago <= min(LONGEST_DYING_SECONDS, lived_seconds)]
    return None if earlier and end.oom_kills_total > min(earlier) else False


def _running_last(rows: Sequence[ProcessState]) -> dict[_Place, tuple[str | None, int | None]]:
    """Return node and pid of each rank's youngest process: a rank that was started anew has an end that did not matter."""
    began: dict[_Place, tuple[float, float]] = {}
    found: dict[_Place, tuple[str | None, int | None]] = {}
    for row in rows:
        place, instants = (row.role, row.rank), (row.started_at or 0.0, row.at or 0.0)
        if place not in began or instants >= began[place]:
            began[place], found[place] = instants, (row.node, row.pid)
    return found


def _left_well(rows: Sequence[ProcessState], since: float) -> int:
    """Return how many ranks have left well since an instant: those that a signal reached too, and that saved first."""
    runs = _running_last(rows)
    ends = (row for row in rows if row.state in {"X", "Z"} and runs[row.role, row.rank] == (row.node, row.pid))
    return len(
        {(row.role, row.rank) for row in ends if row.exit_code == 0 and not row.signal and (row.at or 0.0) >= since}
    )


def _ended_together(exits: Sequence[_Exit], topology: Topology, left_well: int) -> bool:
    """Whether all were ended from outside; a launcher's SIGTERMs after one SIGKILL are its answer to that one's death."""
    signals = {one.signal for one in exits}
    if len(signals) == 1 and signals <= LIMITS and left_well:  # it can be caught: those that save first leave well
        return len(exits) + left_well >= len(topology.ranks) and exits[-1].at - exits[0].at <= TOGETHER_SECONDS
    all_of_them = len(exits) > 1 and 4 * len(exits) >= 3 * len(topology.ranks)
    killed = [one for one in exits if one.signal == KILL]
    if all_of_them and signals == {KILL, TERMINATE} and killed[0].at >= exits[0].at + ASKED_SECONDS:
        return True  # a process that is asked to end because another was killed ends after that one
    alike = len(signals) == 1 and signals <= {KILL, TERMINATE, *LIMITS}
    by_one = alike or (signals == {KILL, TERMINATE} and _abroad(killed))
    return all_of_them and by_one and exits[-1].at - exits[0].at <= TOGETHER_SECONDS


def _swept(exits: Sequence[_Exit]) -> list[_Exit]:
    """Return those that a launcher killed at once after another had failed: on several nodes, within seconds."""
    killed = [one for one in exits if one.signal == KILL]
    others = [one for one in exits if one.signal != KILL]
    if not others or not _abroad(killed) or killed[-1].at - killed[0].at > TOGETHER_SECONDS:
        return []
    return killed if others[0].at <= killed[0].at - AFTER_SECONDS else []


def _abroad(exits: Sequence[_Exit]) -> bool:
    """Whether they were on several nodes: no machine kills another's processes."""
    return len({one.row.node for one in exits}) > 1


def _own_codes(exits: Sequence[_Exit], topology: Topology) -> list[_Exit]:
    """Return those of at most half of the ranks that left with a code that their program chose; a lost peer leaves with 1."""
    chosen = [one for one in exits if one.signal is None and one.row.exit_code != RAISED]
    return chosen if 2 * len(chosen) <= max(len(topology.ranks), len(exits)) else []


def _first(exits: Sequence[_Exit], rows: Sequence[ProcessState]) -> list[_Exit]:
    """Return the first where it left long before all others, or others were seen alive long after it."""
    alive = (row.at or 0.0 for row in rows if row.state not in {"X", "Z"} and row.rank != exits[0].row.rank)
    then = exits[1].at if len(exits) > 1 else max(alive, default=0.0)
    return list(exits[:1]) if then - exits[0].at >= LEFT_SECONDS else []


def _cleanup(one: _Exit, exits: Sequence[_Exit], rows: Sequence[ProcessState]) -> bool:
    """Whether a SIGKILL comes so long after another process ended, or was last seen on its node, that it is a launcher's.

    ``exits``: by their instants. A process whose end is among them was there until then, however seldom its agent read it.
    One for memory is the kernel's. What left well is missed by none, and what began a minute apart is of another run.
    """
    if one.signal != KILL or _for_memory(one.row, rows):
        return False
    seen: dict[_Place, float] = {}
    known = {(row.role, row.rank) for row in rows if row.state in {"X", "Z"} and row.exit_code == 0 and not row.signal}
    known |= {(end.row.role, end.row.rank) for end in exits if end is not one}
    for row in rows:
        place, began, own = (row.role, row.rank), row.started_at, one.row.started_at
        same_run = began is None or own is None or abs(began - own) < LOOKED_SECONDS
        if row.node == one.row.node and row.state not in {"X", "Z"} and place not in known and same_run:
            seen[place] = max(row.at or 0.0, seen.get(place, 0.0))
    # Its agent read then: what was not seen for long before was gone.
    read_at = seen.pop((one.row.role, one.row.rank), 0.0)
    gone = (at for at in seen.values() if at <= read_at - READ_AGAIN_SECONDS)
    return one.at - min(exits[0].at, one.at, *gone) >= CLEANUP_SECONDS


def _event(one: _Exit, *, first: bool, cleanup: bool, memory: bool | None) -> LogEvent:
    row = one.row
    kind = "closing_signal" if cleanup else "oom_kill" if memory else "exit"
    how = f"signal {one.signal}" if one.signal else f"exit code {row.exit_code}"
    return LogEvent(
        source=row.source, at=row.at, node=row.node, rank=row.rank, pid=row.pid, job=row.job, attempt=row.attempt,
        event=kind, signal=one.signal, exit_code=row.exit_code, first=first or None,
        text=f"process {row.pid} ended with {how}"
        + (", and its node's kernel has killed for memory" if memory else ", alone or before all others" if first else ""),
    )  # fmt: skip
