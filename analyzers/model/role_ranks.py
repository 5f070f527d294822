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


@dataclass(frozen=True, slots=True)
class Process:
    """A process of a rank, as an agent saw it."""

    role: str
    rank: int
    node: str | None = None
    pid: int | None = None


@dataclass(slots=True)
class Statement:
    """What an instance says of itself under its newest epoch."""

    rank: int | None = None
    pid: int | None = None
    node: str | None = None
    epoch: int | None = None


def match_ranks(said: Mapping[Seat, Statement], seen: Iterable[Process]) -> dict[Seat, int]:
    """Return the ranks of instances: by their own word, by their process, else by a name that is their rank's number.

    A process id counts within its role, on the node that the instance names where several nodes have it: a container's process
    knows another id than its node, and another name of it. A name counts where ranks and instances have the same numbers, and no
    process shows the rank to be another instance.
    """
    pids: dict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
    ranks: dict[str, set[int]] = defaultdict(set)
    for process in seen:
        ranks[process.role].add(process.rank)
        if process.pid is not None:
            pids[process.role, process.pid].add((plain(process.node), process.rank))
    found = {seat: one.rank for seat, one in said.items() if one.rank is not None}
    for seat, one in said.items():
        if (
            seat not in found
            and one.pid is not None
            and (rank := _by_process(one, pids.get((seat[0], one.pid), set()))) is not None
        ):
            found[seat] = rank
    taken = {(seat[0], rank) for seat, rank in found.items()}
    numbers: dict[str, set[int]] = defaultdict(set)
    for (role, _), number in (numbered := {seat: number_of(seat[1]) for seat in said}).items():
        if number is not None:
            numbers[role].add(number)
    for seat, number in numbered.items():
        own = ranks[seat[0]]
        alike = not (own - numbers[seat[0]] and numbers[seat[0]] - own)
        if seat not in found and number in own and alike and (seat[0], number) not in taken:
            found[seat] = number
    return found


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
    return found


def seen_in(records: Iterable[Record]) -> Iterable[Process]:
    """Yield the processes of ranks that placements and process tables show, each as often as they do."""
    for record in records:
        if isinstance(record, Placement):
            for place, role, rank in places(record):
                node = record.nodes[place] if place < len(record.nodes) else record.node
                yield Process(role, rank, node, record.pids[place] if place < len(record.pids) else None)
        elif isinstance(record, ProcessState) and record.rank is not None and record.parent_pid is None:
            yield Process(record.role or "", record.rank, record.node, record.pid)


def _by_process(one: Statement, found: set[tuple[str, int]]) -> int | None:
    there = {rank for node, rank in found if node == plain(one.node)} or {rank for _, rank in found}
    return there.pop() if len(there) == 1 else None
