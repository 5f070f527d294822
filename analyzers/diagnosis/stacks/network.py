"""Ranks in a network call to another process: they wait, and the process at the other end is what holds the job up.

An agent saw which socket the training thread waits on, and follows it from process to process on its node; the other end of a
connection between nodes is known where another agent reported the same pair of addresses. Sockets of collectives are none of
these: a rank whose stack shows communication waits for its peers (``standings.WAITING``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from analyzers.model.finding import Cause, Evidence, Finding, Suspect
from analyzers.model.frames import NETWORK_CALL, PROCESS_WAIT, SERVING, THREAD_WAIT, FrameRules
from analyzers.model.processes import Owners, rows_by_rank
from analyzers.model.ranges import ranges
from analyzers.model.standings import ROUND_SECONDS, Standing, place_of
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import BESIDE, Hop, ProcessState, StackDump

STOPPED, SEEN, UNSEEN = 0.9, 0.75, 0.6
"""Strength of an end whose process is stopped or dead, of one that runs, and of one that no agent sees."""
BESIDE_STOPPED = 0.75  # of a stopped process of the job's user, to which no connection leads
ONE_ROUND = 0.85  # of these, where only one round saw the rank there
MOST_SHOWN = 4
_STATES = {
    "T": "is stopped (state T)", "t": "is traced (state t)", "Z": "has ended", "X": "has ended",
    "D": "sleeps in the kernel and cannot be interrupted (state D)",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _End:
    """Where a chain of hops ends. ``rank``: of the job, whose own process it is; ``process``: empty where none is seen."""

    address: str
    process: str = ""
    state: str = ""
    where: str = ""
    rank: int | None = None

    @property
    def sentence(self) -> str:
        """Say what is at that end."""
        if not self.process:
            return f"{self.address}, which no agent of the job's nodes sees"
        does = _STATES.get(self.state) or (f"stands in {self.where}" if self.where else "runs or sleeps")
        return f"{self.address}, {self.process}, which {does}"


class _Ends:
    """Finds where a rank's wait ends."""

    def __init__(self, window: Window, topology: Topology, rules: FrameRules) -> None:
        self._rules = rules
        self._owners = window.once(Owners.from_records, topology)
        self._job = window.job
        self._elsewhere = {
            edge: row for row in window.records_of(ProcessState) if row.connections for edge in row.connections
        }

    def of(self, one: Standing) -> _End | None:
        """Return the end of the one socket that a rank can wait on; None where it is not known which."""
        waits = [wait for wait in one.sockets if wait.call] or list(one.sockets)
        firsts = {wait.hops[0].remote for wait in waits}
        if len(firsts) != 1:
            return None
        last = waits[0].hops[-1]
        row = self._elsewhere.get(f"{last.remote}>{last.local}") if last.pid is None else None
        if row is not None:
            last = Hop(
                remote=last.remote, pid=row.pid, command=row.command, process_state=row.state,
                rank=self._owners.rank(row.pid, row.node), job=self._job,
            )  # fmt: skip
        return self._end(last, (row.node if row is not None else None) or one.node)

    def _end(self, hop: Hop, node: str | None) -> _End:
        if hop.pid is None:
            return _End(hop.remote)
        ours = hop.rank is not None and hop.job in (None, self._job)
        own = ours and hop.pid in self._owners.pids_of(hop.rank or 0)
        whose = f" of rank {hop.rank}" if ours else ""
        name = f"process {hop.pid} ({hop.command}){whose}{f' on {node}' if node else ''}"
        where = place_of(hop.frames, self._rules) if hop.frames else ""
        return _End(hop.remote, name, hop.process_state, where, hop.rank if own else None)


def network_waits(
    found: Mapping[int, Standing], window: Window, topology: Topology, rules: FrameRules
) -> Iterator[Finding]:
    """Claim, for the ranks in a network call, the process at the other end, or that none is known.

    A rank that waits for a thread of its own which waits for another process shows no connection: there may be many.
    """
    stopped = _stopped_beside(window)
    served = [one for one in found.values() if one.duty in (THREAD_WAIT, SERVING, PROCESS_WAIT)]
    halted = {rank for rank, rows in window.once(rows_by_rank, topology).items() if rows[-1].state in _STATES}
    if stopped and (
        waits := [one for one in found.values() if one in served or (_polls(one) and one.rank not in halted)]
    ):
        yield _for_stopped(waits, stopped, found)
    elif served:
        yield _from_outside(served, found, named=any(dump.role for dump in window.records_of(StackDump)))
    waiters = [one for one in found.values() if one.duty == NETWORK_CALL]
    if not waiters:
        return
    ends = _Ends(window, topology, rules)
    by_end: dict[_End | None, list[Standing]] = defaultdict(list)
    for one in waiters:
        by_end[ends.of(one)].append(one)
    victims = tuple(sorted({one.rank for one in found.values() if one.waiting} | {one.rank for one in waiters}))
    for end, ranks in sorted(by_end.items(), key=lambda item: item[1][0].rank):
        yield _nameless(ranks, victims) if end is None else _finding(end, ranks, victims, found)


def _finding(end: _End, waiters: list[Standing], victims: tuple[int, ...], found: Mapping[int, Standing]) -> Finding:
    """Return the claim on one end. A rank of the job that does something else is another claim's: here it ends a chain."""
    other = found.get(end.rank) if end.rank is not None else None
    # Any process is in D, or traced by a tool, for a moment.
    still = end.state in {"T", "Z", "X"} or (end.state in {"D", "t"} and waiters[0].frozen)
    chains = tuple((one.rank, end.rank) for one in waiters) if end.rank is not None else ()
    named = f"rank{'s' if len(waiters) > 1 else ''} {ranges(one.rank for one in waiters)}"
    why = f"{named} wait{'' if len(waiters) > 1 else 's'} in a network call for {end.sentence}"
    evidence = _evidence(waiters)
    strength = (STOPPED if still else SEEN if end.process else UNSEEN) * (1.0 if waiters[0].frozen else ONE_ROUND)
    suspect = Suspect(kind="service", strength=round(strength, 4), why=why, name=end.address, evidence=evidence)
    cause: Cause = "platform" if still else "unknown"
    busy = other is not None and not other.waiting and other.duty != NETWORK_CALL
    return Finding(
        analyzer="stacks",
        family="stacks",
        symptom="hang",
        cause=cause,
        fault_class="service_stopped" if still else "network_wait",
        together=True,
        suspects=() if busy or (still and end.rank is not None) else (suspect,),
        scope=frozenset(one.rank for one in waiters),
        victims=victims if end.rank is None else tuple(rank for rank in victims if rank != end.rank),
        chains=chains,
        rejected=tuple(_acquitted(one, end.address) for one in waiters[:MOST_SHOWN]),
        missing=() if end.process else (f"what {end.address} does: run an agent on its node, or look at it there",),
        evidence=(Evidence(text=why, source=waiters[0].source, at=waiters[0].at), *evidence),
    )


def _nameless(waiters: list[Standing], victims: tuple[int, ...]) -> Finding:
    """Return the claim where it is not known which connection is waited on."""
    several = sorted({wait.hops[0].remote for one in waiters for wait in one.sockets})[:MOST_SHOWN]
    among = f": one of {', '.join(several)}" if len(several) > 1 else ""
    missing = f"for which process {_who_wait(waiters)} in a network call{among}"
    acquitted = tuple(_acquitted(one, "a process at the other end") for one in waiters[:MOST_SHOWN])
    return _unknown(
        "network_wait", waiters, victims, acquitted, f"{missing}: an agent on its node, or `ss -tnp` there, shows it"
    )


def _from_outside(waiters: list[Standing], found: Mapping[int, Standing], *, named: bool) -> Finding:
    """Return the claim on what feeds an idle thread of these ranks: another process, and no one here knows which.

    ``named``: they state a role already; then only they can say for whom they wait.
    """
    victims = tuple(sorted({one.rank for one in found.values() if one.waiting or one in waiters}))
    advice = "start each process with FAULTHOUND_ROLE, so that its role is known"
    if named:
        advice = "`waiting` of faulthound_roles states it (`faulthound-agent roles --write DIR`)"
    missing = f"from which process {_who_wait(waiters)} for work, with all threads idle: {advice}"
    acquitted = tuple(
        _acquitted(one, "what another process sends", "with idle threads") for one in waiters[:MOST_SHOWN]
    )
    return _unknown("thread_wait", waiters, victims, acquitted, missing)


def _stopped_beside(window: Window) -> list[ProcessState]:
    """Return the processes that are no ranks, and that agents found stopped beside ranks in their newest round; few."""
    newest: dict[str | None, float] = {}
    for row in window.records_of(StackDump):
        newest[row.node] = max(newest.get(row.node, 0.0), row.at or 0.0)
    found = {
        (row.node, row.pid): row
        for row in window.records_of(ProcessState)
        if row.source == BESIDE and (row.at or 0.0) >= newest.get(row.node, 0.0) - ROUND_SECONDS
    }
    return [found[key] for key in sorted(found, key=str)] if len(found) <= MOST_SHOWN else []


def _polls(one: Standing) -> bool:
    """Whether its main thread sleeps in its own code: it may ask again and again whether another process has answered."""
    return one.duty in ("sleeping", "compute") and one.active is False and not one.owns_gil


def _for_stopped(waiters: list[Standing], stopped: list[ProcessState], found: Mapping[int, Standing]) -> Finding:
    """Return the claim that these wait for a process of their user that is stopped, where no connection shows for which."""
    waiters = sorted(waiters, key=lambda one: one.rank)
    suspects = []
    for row in stopped:
        name = f"process {row.pid} ({row.command}) on {row.node}"
        why = f"{_who_wait(waiters)} for another process, and {name}, of the same user, is stopped (state T)"
        shown = (Evidence(text=f"{name} is stopped", source=row.source, at=row.at), *_evidence(waiters))
        suspects.append(Suspect(kind="service", strength=BESIDE_STOPPED, why=why, name=name, evidence=shown))
    return Finding(
        analyzer="stacks", family="stacks", symptom="hang", cause="platform", fault_class="service_stopped",
        together=True, suspects=tuple(suspects), scope=frozenset(one.rank for one in waiters),
        victims=tuple(sorted({one.rank for one in found.values() if one.waiting or one in waiters})),
        rejected=tuple(_acquitted(one, "a process that is stopped", "outside the job") for one in waiters[:MOST_SHOWN]),
        missing=("which role each process has: start each with FAULTHOUND_ROLE",), evidence=suspects[0].evidence,
    )  # fmt: skip


def _unknown(
    fault_class: str, waiters: list[Standing], victims: tuple[int, ...], acquitted: tuple[Suspect, ...], missing: str
) -> Finding:
    """Return the claim that these wait for a process which nothing names."""
    return Finding(
        analyzer="stacks", family="stacks", symptom="hang", cause="unknown", fault_class=fault_class,
        scope=frozenset(one.rank for one in waiters), victims=victims, rejected=acquitted, missing=(missing,),
        evidence=_evidence(waiters),
    )  # fmt: skip


def _who_wait(waiters: list[Standing]) -> str:
    several = len(waiters) > 1
    return f"rank{'s' if several else ''} {ranges(one.rank for one in waiters)} wait{'' if several else 's'}"


def _acquitted(one: Standing, end: str, how: str = "in a network call") -> Suspect:
    return Suspect(kind="rank", strength=0.05, why=f"it waits {how} for {end} itself", ranks=(one.rank,))


def _evidence(waiters: list[Standing]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(text=f"rank {one.rank}: {one.where}", source=one.source, at=one.at, rank=one.rank)
        for one in waiters[:MOST_SHOWN]
    )
