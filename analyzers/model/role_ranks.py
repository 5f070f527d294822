"""Which rank of its role an instance is: a directory names instances, and agents see ranks, which may be numbered apart.

A job may give each process a number of its own, or none, while every role's instances are called 0, 1, 2 …
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from analyzers.model.role_instances import Seat
from collectors.records import Placement, ProcessState, Record, RoleState
from collectors.records.identity import places, plain

MOST_DIGITS = 9
RENEWED_SECONDS = 15.0  # within which one that lives is heard again
APART_SECONDS = 2.0  # between the clocks of a node and of the service
_GONE = frozenset({"X", "Z", "T", "t"})


@dataclass(frozen=True, slots=True)
class Process:
    """A process of a rank, as an agent saw it."""

    role: str
    rank: int
    node: str | None = None
    pid: int | None = None
    gone_at: float | None = None  # it has ended, or is stopped, since then


@dataclass(slots=True)
class Statement:
    """What an instance says of itself under its newest epoch. ``heard_at``: its newest heartbeat, while it serves."""

    rank: int | None = None
    pid: int | None = None
    node: str | None = None
    epoch: int | None = None
    heard_at: float | None = None


def match_ranks(said: Mapping[Seat, Statement], seen: Iterable[Process]) -> dict[Seat, int]:
    """Return the ranks of instances: by their own word, by their process, else by a name that is their rank's number.

    A process id counts within its role, on the node that the instance names where several nodes have it: a container's process
    knows another id than its node, and another name of it. A name counts where ranks and instances have the same numbers, and no
    process shows the rank to be another instance. An instance that is heard after a process has ended or was stopped is another
    process; by its name alone it is that one only once it was not heard again.
    """
    pids: dict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
    ranks: dict[str, dict[int, float | None]] = defaultdict(dict)  # the newest process of a rank comes last
    for process in seen:
        ranks[process.role][process.rank] = process.gone_at
        if process.pid is not None:
            pids[process.role, process.pid].add((plain(process.node), process.rank))
    outlived = {
        (seat, rank)
        for seat, one in said.items()
        for rank in (one.rank, number_of(seat[1]))
        if rank is not None and _outlives(one, ranks[seat[0]].get(rank))
    }
    found = {seat: one.rank for seat, one in said.items() if one.rank is not None and (seat, one.rank) not in outlived}
    for seat, one in said.items():
        if (
            seat not in found
            and one.pid is not None
            and (rank := _by_process(one, pids.get((seat[0], one.pid), set()))) is not None
        ):
            found[seat] = rank
    taken = {(seat[0], rank) for seat, rank in found.items()}
    newest = max((one.heard_at for one in said.values() if one.heard_at is not None), default=None)
    numbers: dict[str, set[int]] = defaultdict(set)
    for (role, _), number in (numbered := {seat: number_of(seat[1]) for seat in said}).items():
        if number is not None:
            numbers[role].add(number)
    for seat, number in numbered.items():
        own = ranks[seat[0]]
        alike = not (own.keys() - numbers[seat[0]] and numbers[seat[0]] - own.keys())
        if number is None or seat in found or number not in own or not alike or (seat[0], number) in taken:
            continue
        gone_at, heard_at = own[number], said[seat].heard_at
        may_be_heard = gone_at is not None and heard_at is not None and (newest or 0.0) < gone_at + RENEWED_SECONDS
        if (seat, number) not in outlived and not may_be_heard:
            found[seat] = number
    return found


def _outlives(one: Statement, gone_at: float | None) -> bool:
    return gone_at is not None and one.heard_at is not None and one.heard_at > gone_at + APART_SECONDS


def number_of(instance: str) -> int | None:
    """Return the number that an instance is called by; None: its name is no number."""
    return int(instance) if instance.isdecimal() and len(instance) <= MOST_DIGITS else None


def statements(readings: Iterable[RoleState]) -> dict[Seat, Statement]:
    """Return what each instance says of itself; ``readings``: the oldest first."""
    found: dict[Seat, Statement] = {}
    for one in readings:
        if not one.role:
            continue
        known = found.setdefault((one.role, one.instance), Statement())
        if one.epoch is not None and known.epoch is not None and one.epoch != known.epoch:
            if one.epoch < known.epoch:
                continue
            known = found[one.role, one.instance] = Statement()
        known.epoch = known.epoch if one.epoch is None else one.epoch
        known.rank = known.rank if one.rank is None else one.rank
        known.pid = known.pid if one.pid is None else one.pid
        known.node = known.node if one.node is None else one.node
        serves = one.state in (None, "serving")  # who has left or was fenced is not heard again
        known.heard_at = max(known.heard_at or 0.0, one.renewed_at or 0.0) or None if serves else None
    return found


def seen_in(records: Iterable[Record]) -> Iterable[Process]:
    """Yield the processes of ranks that placements and process tables show; of a rank the youngest comes last."""
    rows: dict[tuple[str, int], list[ProcessState]] = defaultdict(list)
    for record in records:
        if isinstance(record, Placement):
            for place, role, rank in places(record):
                node = record.nodes[place] if place < len(record.nodes) else record.node
                yield Process(role, rank, node, record.pids[place] if place < len(record.pids) else None)
        elif isinstance(record, ProcessState) and record.rank is not None and record.parent_pid is None:
            rows[record.role or "", record.rank].append(record)
    for (role, rank), of_rank in rows.items():
        gone: dict[tuple[str | None, int | None], float | None] = {}
        for row in sorted(of_rank, key=lambda row: (row.started_at or 0.0, row.at or 0.0)):
            process = row.node, row.pid
            gone[process] = (gone.get(process) or row.at) if row.state in _GONE else None
        yield from (Process(role, rank, node, pid, gone_at) for (node, pid), gone_at in gone.items())


def _by_process(one: Statement, found: set[tuple[str, int]]) -> int | None:
    there = {rank for node, rank in found if node == plain(one.node)} or {rank for _, rank in found}
    return there.pop() if len(there) == 1 else None
