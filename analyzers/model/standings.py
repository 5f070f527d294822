"""Where each rank stands by its stacks: the training process and thread chosen, its duty, and whether it moved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from analyzers.knowledge import Knowledge
from analyzers.model.frames import (
    IDLE,
    NETWORK_CALL,
    PROCESS_WAIT,
    SERVING,
    THREAD_WAIT,
    Duty,
    FrameRules,
    normal,
    shown,
    training_thread,
)
from analyzers.model.processes import Owners
from analyzers.model.ranges import ranges
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import Frame, ProcessState, SocketWait, StackDump, Steps, Thread

WAITING = frozenset({"waiting_collective", "waiting_p2p", "waiting_gradient", "waiting_device"})
SOFT = frozenset({"store", "idle_worker", NETWORK_CALL, SERVING, THREAD_WAIT, PROCESS_WAIT})
"""Duties that wait for others outside communication, or show nothing: neither waiting nor suspect."""
ROUND_SECONDS = 15.0
"""Stacks of one evidence round: an agent takes those of all its ranks at once, twice, and all nodes are asked together."""
ENOUGH_LOOKS = 3
"""So many earlier looks that found a rank outside communication count more than the wait that it has just left."""
OUT_OF_DATE_SECONDS = 180.0
"""Agents take stacks every minute unasked: one so much older than the newest evidence is not of this hang."""
_CALLS_UNSEEN = frozenset({"compute", "data_loader"})
"""Duties of a stack that shows no C frames, where the system call shows that the thread waits on a socket."""
_TOOLS = ("py-spy", "faulthandler", "gdb")


@dataclass(frozen=True, slots=True)
class Standing:
    """One rank's newest stack. ``moved`` compares it with the one before; None where there is none before."""

    rank: int
    node: str | None
    duty: str  # a duty of the rules; "gil" and "compute" are added here
    operation: str
    reasons: tuple[str, ...]
    normal: tuple[str, ...]
    where: str  # the frame to show people
    source: str
    at: float | None  # None: only its file has a time, which may be that of a copy
    owns_gil: bool | None = None
    active: bool | None = None
    moved: bool | None = None
    frozen: bool = False
    round_at: float | None = None  # the first of the stacks that an agent took of it in the newest round
    left_a_wait: bool = False  # between the looks of that round: what it waited for has come
    helpers: tuple[str, ...] = ()  # duties of its child processes
    # What its training thread waits on, or its data loader; its own children are left out.
    sockets: tuple[SocketWait, ...] = ()

    @property
    def waiting(self) -> bool:
        """Whether it waits in communication."""
        return self.duty in WAITING

    @property
    def label(self) -> str:
        """Name duty and operation: ranks with equal labels wait alike."""
        return f"{self.duty} {self.operation}".strip()


def standings(window: Window, topology: Topology, rules: FrameRules) -> dict[int, Standing]:
    """Return where each rank stands, by rank."""
    found = window.once(_processes, topology, rules)
    return {rank: _standing(rank, *found[rank], topology, rules) for rank in sorted(found)}


def histories(window: Window, topology: Topology, rules: FrameRules) -> Callable[[int], tuple[Observation, ...]]:
    """Return a function from a rank to the stacks of its training process, oldest first."""
    found = window.once(_processes, topology, rules)
    trainers = {rank: tuple(of_rank) for rank, (of_rank, _) in found.items()}
    return lambda rank: trainers.get(rank, ())


def _processes(
    window: Window, topology: Topology, rules: FrameRules
) -> dict[int, tuple[list[Observation], list[Observation]]]:
    """Return of each rank the stacks of its training process, and the newest of each helper."""
    by_rank = _by_rank(window, topology)
    return {rank: _split([Observation.from_dump(dump, rules) for dump in dumps]) for rank, dumps in by_rank.items()}


def _by_rank(window: Window, topology: Topology) -> dict[int, list[StackDump]]:
    """Return each rank's stacks that are of the moment that the window ends with."""
    owners = window.once(Owners.from_records, topology)
    by_rank: dict[int, list[StackDump]] = defaultdict(list)
    for dump in window.records_of(StackDump):
        rank = dump.rank if dump.rank is not None else owners.rank(dump.pid, dump.node)
        if rank is None and dump.parent_pid is not None:
            rank = owners.rank(dump.parent_pid, dump.node)
        if rank is not None and dump.threads:
            by_rank[rank].append(dump)
    return _up_to_date(by_rank, window)


def _live(dump: StackDump) -> bool:
    """Whether an agent took it: then its instant is exact; a file's may be that of a copy."""
    return dump.boot_id is not None and dump.at is not None


def _up_to_date(by_rank: dict[int, list[StackDump]], window: Window) -> dict[int, list[StackDump]]:
    """Leave out ranks whose newest stack, by an agent, is older than the moment that the window ends with.

    A stack from after the opening of the incident is of that moment until a newer one comes: a late answer takes nothing away.
    One from before the job stopped shows a step of a job that ran.
    """
    newest = {rank: max(dump.at or 0.0 for dump in dumps) for rank, dumps in by_rank.items() if all(map(_live, dumps))}
    if not newest:
        return by_rank
    alive = (
        row.at for row in window.records_of(ProcessState) if row.rank is not None and row.boot_id and row.at is not None
    )
    last = max(newest.values())
    since = max((last, *alive)) - OUT_OF_DATE_SECONDS
    if 2 * sum(at >= last - ROUND_SECONDS for at in newest.values()) > len(newest):
        since = max(since, last - ROUND_SECONDS)
    if window.since is not None:
        since = min(since, window.since)
    if window.onset is not None:
        since = max(since, window.onset)
    return {rank: dumps for rank, dumps in by_rank.items() if newest.get(rank, since) >= since}


@dataclass(frozen=True, slots=True)
class Observation:
    """One dump, its training thread and what that does."""

    dump: StackDump
    thread: Thread | None
    duty: Duty

    @classmethod
    def from_dump(cls, dump: StackDump, rules: FrameRules) -> Observation:
        """Find the training thread of a dump."""
        return cls(dump, *training_thread(dump, rules))

    @property
    def frames(self) -> tuple[Frame, ...]:
        """Return its frames, innermost first."""
        return self.thread.frames if self.thread else ()


def _order(one: Observation) -> tuple[float, str, int]:
    """Order dumps by time, then by file, then by their place in it."""
    at, source = one.dump.at or 0.0, one.dump.source
    path, _, place = source.rpartition(":")
    return (at, path, int(place)) if place.isdigit() else (at, source, 0)


def _standing(
    rank: int, trainers: Sequence[Observation], helpers: Sequence[Observation], topology: Topology, rules: FrameRules
) -> Standing:
    newest = trainers[-1]
    frames, duty = newest.frames, newest.duty
    gil = next((one for one in newest.dump.threads if one.owns_gil and one.active is False), None)
    name = duty.name or "compute"
    if gil is not None and (gil is newest.thread or duty.name in WAITING):
        name, frames = "gil", gil.frames
    sockets = tuple(one for one in _waits_of(newest) if _outward(one, rank))
    if name == "data_loader" and not sockets:  # its workers fetch what it waits for
        sockets = tuple(wait for one in helpers for wait in _waits_of(one) if _outward(wait, rank))
    if name in _CALLS_UNSEEN and any(one.call for one in sockets):
        name = NETWORK_CALL
    elif name == "compute" and _is_called(newest):
        name = SERVING
    elif name == PROCESS_WAIT and any((one.duty.name or "compute") not in IDLE for one in helpers):
        name = "compute"  # for a process of its own: so is a hang
    before = trainers[-2].frames if len(trainers) > 1 else None
    since = (newest.dump.at or 0.0) - ROUND_SECONDS
    of_round = [one for one in trainers if _live(one.dump) and one.dump.at is not None and one.dump.at >= since]
    return Standing(
        rank=rank,
        node=newest.dump.node or topology.nodes.get(rank),
        duty=name,
        operation=duty.operation,
        reasons=duty.reasons,
        normal=rules.normal(frames),
        where=_shown(frames, rules, duty.function),
        source=newest.dump.source,
        at=newest.dump.at if _live(newest.dump) else None,
        owns_gil=newest.thread.owns_gil if newest.thread else None,
        active=newest.thread.active if newest.thread else None,
        moved=None if before is None else before != newest.frames,
        frozen=before is not None and rules.normal(before) == rules.normal(newest.frames),
        round_at=of_round[0].dump.at if of_round else None,
        left_a_wait=len(of_round) > 1
        and of_round[-2].duty.name in WAITING
        and sum((one.dump.at or 0.0) < since and one.duty.name not in WAITING for one in trainers) < ENOUGH_LOOKS,
        helpers=tuple(sorted(one.duty.name or "compute" for one in helpers)),
        sockets=sockets,
    )


def _waits_of(one: Observation) -> tuple[SocketWait, ...]:
    return one.thread.sockets if one.thread else ()


def _is_called(one: Observation) -> bool:
    """Whether it is blocked on sockets of which none leads to another process: it waits for one to come."""
    calls = [wait for wait in _waits_of(one) if wait.call]
    return bool(calls) and all(not wait.hops or wait.hops[0].pid == one.dump.pid for wait in calls)


def _outward(wait: SocketWait, rank: int) -> bool:
    """Whether a socket leads to another process than the rank's own and its children."""
    return bool(wait.hops) and wait.hops[0].rank != rank


def _split(observed: Sequence[Observation]) -> tuple[list[Observation], list[Observation]]:
    """Return the training process's dumps, oldest first, and the newest of each helper.

    The trainer is no child of another process here and loops in no worker; one tool's dumps are compared, not two's.
    """
    pids = {one.dump.pid for one in observed if one.dump.pid is not None}

    def helper(one: Observation) -> bool:
        return one.dump.parent_pid in pids or one.duty.name == "idle_worker"

    candidates = [one for one in observed if not helper(one)] or list(observed)
    tool = min(
        (one.dump.tool for one in candidates), key=lambda name: (_TOOLS.index(name) if name in _TOOLS else 9, name)
    )
    candidates = [one for one in candidates if one.dump.tool == tool]
    main_pid = _main_pid(candidates)
    trainers = sorted((one for one in candidates if one.dump.pid in {main_pid, None}), key=_order)
    newest: dict[int, Observation] = {}
    since = (trainers[-1].dump.at or 0.0) - OUT_OF_DATE_SECONDS
    for one in sorted(observed, key=_order):
        # An agent takes children's stacks every ten minutes; one without a parent was the rank's process before.
        past = _live(one.dump) and ((one.dump.at or 0.0) < since or one.dump.parent_pid is None)
        if one.dump.pid is not None and one.dump.pid != main_pid and not past:
            newest[one.dump.pid] = one
    return trainers, list(newest.values())


def _main_pid(candidates: Sequence[Observation]) -> int | None:
    """Return the trainer's pid: an agent's stacks name the parent, so that the newest is the one that runs now."""
    known = [one.dump for one in candidates if one.dump.pid is not None]
    if known and all(map(_live, known)):
        return max(known, key=lambda dump: (dump.at or 0.0, -(dump.pid or 0))).pid
    return min((dump.pid for dump in known if dump.pid is not None), default=None)


def place_of(frames: Sequence[Frame], rules: FrameRules) -> str:
    """Write where a thread is, for people: as ``Standing.where``."""
    return _shown(frames, rules, rules.duty(frames).function)


def _shown(frames: Sequence[Frame], rules: FrameRules, function: str) -> str:
    """Write the user's own line, what it called, and the frame that decides if that is another, inside or around."""
    user = rules.user_frame(frames)
    if user is None:
        return function or (shown(frames[0]) if frames else "an empty stack")
    texts, inner = [normal(frame) for frame in frames], frames.index(user)
    if function in texts and texts.index(function) > inner:
        return f"{shown(user)} inside {function}"
    called = next((texts[place] for place in range(inner - 1, -1, -1) if texts[place]), "")  # by the user's line
    inside = [text for text in dict.fromkeys((function, called)) if text and text != normal(user)]
    return f"{', in '.join(inside)}, called from {shown(user)}" if inside else shown(user)


def moved_on(found: Mapping[int, Standing]) -> bool:
    """Whether the job makes progress: most ranks with two snapshots, waiting ones where there are any, have moved."""
    pairs = [one for one in found.values() if one.moved is not None]
    judged = [one for one in pairs if one.waiting] or pairs
    moved = sum(1 for one in judged if one.moved)
    return len(pairs) * 2 >= len(found) and moved * 2 > len(judged)


def stepped_on(found: Mapping[int, Standing], window: Window) -> bool:
    """Whether all ranks whose logs report steps have reported one since the newest round of stacks began, to an agent.

    A loop that is found twice in its longest line looks frozen. A rank whose log went quiet keeps the claim.
    """
    began = [one.round_at for one in found.values()]
    newest: dict[tuple[str | None, int | None], float] = {}
    for steps in window.records_of(Steps):
        if steps.received_at is not None and steps.at is not None and steps.step is not None:
            log = (steps.node, steps.rank)
            newest[log] = max(steps.at, newest.get(log, steps.at))
    return bool(newest) and all(at is not None for at in began) and min(filter(None, began)) < min(newest.values())


@dataclass(frozen=True, slots=True)
class StackGroup:
    """Ranks whose training threads stand alike."""

    ranks: tuple[int, ...]
    duty: str
    where: str
    frames: tuple[str, ...]

    def __str__(self) -> str:
        ranks = "rank" if len(self.ranks) == 1 else f"{len(self.ranks)} ranks"
        return f"{ranks} {ranges(self.ranks)}: {self.duty.replace('_', ' ')}, {self.where}"


def stack_groups(window: Window, topology: Topology, knowledge: Knowledge) -> tuple[StackGroup, ...]:
    """Group all ranks by their normalised stack, largest first: what a report shows."""
    return grouped(standings(window, topology, FrameRules.from_knowledge(knowledge)).values())


def grouped(found: Iterable[Standing]) -> tuple[StackGroup, ...]:
    """Group standings by their normalised stack, largest first."""
    groups: dict[tuple[str, tuple[str, ...]], list[Standing]] = defaultdict(list)
    for one in found:
        groups[one.duty, one.normal].append(one)
    made = [
        StackGroup(tuple(one.rank for one in members), members[0].duty, members[0].where, frames)
        for (_, frames), members in groups.items()
    ]
    return tuple(sorted(made, key=lambda group: (-len(group.ranks), group.ranks)))
