"""Where each rank stands by its stacks: the training process and thread chosen, its duty, and whether it moved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from analyzers.frames import Rules, shown, training_thread
from analyzers.process import Owners
from analyzers.topology import Topology
from analyzers.window import Window
from collectors.records import Frame, StackDump

WAITING = frozenset({"waiting_collective", "waiting_p2p", "waiting_gradient", "waiting_device"})
SOFT = frozenset({"store", "idle_worker"})
"""Duties that wait for others without being communication, or say nothing: neither waiting nor suspect."""
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
    at: float | None
    owns_gil: bool | None = None
    active: bool | None = None
    moved: bool | None = None
    frozen: bool = False
    helpers: tuple[str, ...] = ()  # duties of its child processes

    @property
    def waiting(self) -> bool:
        """Whether it waits in communication."""
        return self.duty in WAITING

    @property
    def label(self) -> str:
        """Name duty and operation: ranks with equal labels wait alike."""
        return f"{self.duty} {self.operation}".strip()


def standings(window: Window, topology: Topology, rules: Rules) -> dict[int, Standing]:
    """Return where each rank stands, by rank."""
    owners = Owners.of(window, topology)
    by_rank: dict[int, list[StackDump]] = defaultdict(list)
    for dump in window.of(StackDump):
        rank = dump.rank if dump.rank is not None else owners.rank(dump.pid, dump.node)
        if rank is None and dump.parent_pid is not None:
            rank = owners.rank(dump.parent_pid, dump.node)
        if rank is not None and dump.threads:
            by_rank[rank].append(dump)
    return {rank: _standing(rank, by_rank[rank], topology, rules) for rank in sorted(by_rank)}


def _order(dump: StackDump) -> tuple[float, str, int]:
    """Order dumps by time, then by file, then by their place in it."""
    path, _, place = dump.source.rpartition(":")
    return (dump.at or 0.0, path, int(place)) if place.isdigit() else (dump.at or 0.0, dump.source, 0)


def _standing(rank: int, dumps: Sequence[StackDump], topology: Topology, rules: Rules) -> Standing:
    trainers, helpers = _split(dumps, rules)
    newest = trainers[-1]
    thread = training_thread(newest, rules)
    frames = thread.frames if thread else ()
    duty = rules.duty(frames)
    gil = next((one for one in newest.threads if one.owns_gil and one.active is False), None)
    name = duty.name or "compute"
    if gil is not None and (gil is thread or duty.name in WAITING):
        name, frames = "gil", gil.frames
    exact = [_exact(dump, rules) for dump in trainers[-2:]]
    user = rules.user_frame(frames)
    deciding = frames if user is None else (user,)
    return Standing(
        rank=rank,
        node=newest.node or topology.nodes.get(rank),
        duty=name,
        operation=duty.operation,
        reasons=duty.reasons,
        normal=rules.normal(frames),
        where=_shown(frames, deciding, duty.function),
        source=newest.source,
        at=newest.at,
        owns_gil=thread.owns_gil if thread else None,
        active=thread.active if thread else None,
        moved=exact[0] != exact[1] if len(exact) == 2 else None,
        frozen=len(exact) == 2 and rules.normal(exact[0]) == rules.normal(exact[1]),
        helpers=tuple(sorted(_duty_of(dump, rules) for dump in helpers)),
    )


def _split(dumps: Sequence[StackDump], rules: Rules) -> tuple[list[StackDump], list[StackDump]]:
    """Return the training process's dumps, oldest first, and the newest of each helper.

    The trainer is no child of another process here and loops in no worker; one tool's dumps are compared, not two's.
    """
    pids = {dump.pid for dump in dumps if dump.pid is not None}

    def helper(dump: StackDump) -> bool:
        return (dump.parent_pid in pids and dump.parent_pid is not None) or _duty_of(dump, rules) == "idle_worker"

    candidates = [dump for dump in dumps if not helper(dump)] or list(dumps)
    tool = min((dump.tool for dump in candidates), key=lambda name: (_TOOLS.index(name) if name in _TOOLS else 9, name))
    candidates = [dump for dump in candidates if dump.tool == tool]
    main_pid = min((dump.pid for dump in candidates if dump.pid is not None), default=None)
    trainers = sorted((dump for dump in candidates if dump.pid in {main_pid, None}), key=_order)
    newest: dict[int | None, StackDump] = {}
    for dump in sorted(dumps, key=_order):
        if dump.pid is not None and dump.pid != main_pid:
            newest[dump.pid] = dump
    return trainers, list(newest.values())


def _duty_of(dump: StackDump, rules: Rules) -> str:
    thread = training_thread(dump, rules)
    return (rules.duty(thread.frames).name if thread else "") or "compute"


def _exact(dump: StackDump, rules: Rules) -> tuple[Frame, ...]:
    thread = training_thread(dump, rules)
    return thread.frames if thread else ()


def _shown(frames: Sequence[Frame], deciding: Iterable[Frame], function: str) -> str:
    """Write the frame that decides and the user's own line beside it."""
    user = next(iter(deciding), None)
    text = shown(user) if user is not None else "an empty stack"
    if function and frames and user is not None and not function.startswith(user.function.rsplit(".", 1)[-1]):
        return f"{function}, called from {text}" if user in frames else function
    return text


def moved_on(found: Mapping[int, Standing]) -> bool:
    """Whether the job makes progress: most ranks with two snapshots, waiting ones where there are any, have moved."""
    pairs = [one for one in found.values() if one.moved is not None]
    judged = [one for one in pairs if one.waiting] or pairs
    moved = sum(1 for one in judged if one.moved)
    return len(pairs) * 2 >= len(found) and moved * 2 > len(judged)
