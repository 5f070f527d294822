"""The wait-for graph: what each rank has launched that others have not reached.

An operation is a node of its own between the ranks that wait in it and those that they wait for, so that a world of 16,384 ranks
waiting for one costs 16,384 edges and a world waiting for half of itself no more than twice that.

Fewer dumps must never make a bolder claim (docs/decisions/0007): whatever rests on a rank having done nothing, or on a group
having no further member, is claimed only as far as the dumps can show it (``DumpCoverage``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from analyzers.diagnosis.hang.fronts import Fronts, peers_of
from analyzers.model.ranges import ranges
from analyzers.model.topology import Topology, key_of


class Operation(NamedTuple):
    """A collective (``source`` = ``target`` = -1), or the first unfinished transfer from one rank to another."""

    group: int
    sequence: int
    source: int = -1
    target: int = -1


Node = int | Operation


@dataclass
class Waits:
    """``after[x]``: what x waits for. ``stuck``: operations that all members reached and nothing older holds up."""

    after: dict[Node, set[Node]] = field(default_factory=lambda: defaultdict(set))
    absent: dict[Operation, tuple[int, ...]] = field(default_factory=dict)  # members that have not reached it
    row_of: dict[Operation, int] = field(default_factory=dict)  # one waiter's row, to name it by
    waiting: dict[Operation, set[int]] = field(default_factory=lambda: defaultdict(set))  # at whose front it is
    operation_of: dict[int, Operation] = field(default_factory=dict)  # front row → operation
    stuck: set[Operation] = field(default_factory=set)
    opaque: set[int] = field(default_factory=set)  # ranks whose wait has no readable peer


@dataclass(frozen=True)
class HangSituation:
    """What the graph is built from: the ranks' progress, and each group's members (by the table's group number)."""

    progress: Fronts
    members: tuple[tuple[int, ...], ...]
    inferred: tuple[bool, ...]

    @cached_property
    def member_sets(self) -> tuple[frozenset[int], ...]:
        """Return the members as sets: each rank of the job is looked up in the world's."""
        return tuple(map(frozenset, self.members))


def situate(progress: Fronts, topology: Topology) -> HangSituation:
    """Find the members of every group that the table uses."""
    found = [topology.by_key.get(key_of(group)) for group in progress.table.groups]
    members = tuple(group.members if group else () for group in found)
    return HangSituation(progress, members, tuple(group.inferred if group else True for group in found))


def build(situation: HangSituation) -> Waits:
    """Draw every edge of the fronts: to the ranks that have not reached them, or else to those that something older holds up."""
    waits = Waits()
    fronts = _operations(situation, waits)
    blocking = _blocking(situation, fronts)
    for rank, operation in fronts.values():
        waits.after[rank].add(operation)
    for operation in list(waits.row_of):
        if operation.source < 0:
            _collective_edges(situation, waits, operation, blocking)
        else:
            _transfer_edges(situation, waits, operation, blocking)
    return waits


def _operations(situation: HangSituation, waits: Waits) -> dict[int, tuple[int, Operation]]:
    """Name the operation of every front row: row → (rank, operation)."""
    table, rows = situation.progress.table, situation.progress.fronts
    columns = (
        values[rows].tolist() for values in (table["rank"], table["group"], table["collective_seq"], table.is_p2p)
    )
    fronts: dict[int, tuple[int, Operation]] = {}
    for row, rank, group, sequence, is_p2p in zip(rows, *columns, strict=True):
        if group < 0 or rank not in situation.member_sets[group]:
            operation = None
        elif is_p2p:
            operation = _transfer(situation, rank, group, table.operation(row))
        else:
            operation = Operation(group, sequence)
        if operation is None:
            waits.opaque.add(rank)
            continue
        fronts[row] = (rank, operation)
        waits.row_of.setdefault(operation, row)
        waits.waiting[operation].add(rank)
        waits.operation_of[row] = operation
    return fronts


def _transfer(situation: HangSituation, rank: int, group: int, name: str) -> Operation | None:
    ends, members = peers_of(name), situation.members[group]
    if ends is None or ends[2] >= len(members):
        return None
    peer = members[ends[2]]
    source, target = (rank, peer) if ends[0] == "send" else (peer, rank)
    return Operation(group, -1, source, target)


def _blocking(situation: HangSituation, fronts: dict[int, tuple[int, Operation]]) -> dict[int, set[Operation]]:
    """Return what holds each rank up: its oldest outstanding operation, with the other parts of a coalesced one."""
    table = situation.progress.table
    rows = np.array(list(fronts), np.int64)
    oldest = np.array([situation.progress.oldest_row[rank] for rank, _ in fronts.values()], np.int64)
    coalesced = table.is_p2p[rows] & table.is_p2p[oldest]
    for name in ("group", "p2p_seq", "collective_seq"):
        coalesced &= table[name][rows] == table[name][oldest]
    held: dict[int, set[Operation]] = defaultdict(set)
    for blocks, (rank, operation) in zip((coalesced | (rows == oldest)).tolist(), fronts.values(), strict=True):
        if blocks:
            held[rank].add(operation)
    return held


def _collective_edges(
    situation: HangSituation, waits: Waits, operation: Operation, blocking: dict[int, set[Operation]]
) -> None:
    absent = waits.absent[operation] = _absent(situation, operation)
    known = [member for member in absent if member in situation.progress.dumped]
    waits.after[operation].update(known or _held_up(situation, operation, blocking))
    if any(operation in blocking[rank] for rank in waits.waiting[operation]):
        # Without a dump a member counts as absent only where it is what holds a rank up.
        waits.after[operation].update(absent)
    if not waits.after[operation] and not absent:
        waits.stuck.add(operation)  # all reached it and nothing older holds a rank up: device or network


def _absent(situation: HangSituation, operation: Operation) -> tuple[int, ...]:
    """Return the members that have not launched a collective; one without a dump counts as not having launched it."""
    entered = situation.progress.entered_by[operation.group]
    members = situation.members[operation.group]
    return tuple(member for member in members if entered.get(member, -1) < operation.sequence)


def _held_up(situation: HangSituation, operation: Operation, blocking: dict[int, set[Operation]]) -> list[int]:
    """Return the members that reached a collective but are held up by something older.

    One that has left it is held up by something newer: gloo's members leave one after the other, and a rank that waits in
    the next collective has given this one all that it had to give.
    """
    ended, dumped = situation.progress.ended_by[operation.group], situation.progress.dumped
    return [
        member
        for member in situation.members[operation.group]
        if member in dumped
        and ended.get(member, -1) < operation.sequence
        and blocking.get(member)
        and operation not in blocking[member]
    ]


def _transfer_edges(
    situation: HangSituation, waits: Waits, operation: Operation, blocking: dict[int, set[Operation]]
) -> None:
    """A transfer waits for its other end, unless that end is there too: the oldest unfinished of each pair up in order."""
    ends = {operation.source, operation.target}
    here = waits.waiting[operation]
    away = ends - here
    blocks = any(operation in blocking[rank] for rank in here)
    waits.absent[operation] = tuple(sorted(away))
    for peer in away:
        if peer in situation.progress.dumped or blocks:
            waits.after[operation].add(peer)
    if not away:
        waits.after[operation].update(rank for rank in here if operation not in blocking[rank])
        if not waits.after[operation]:
            waits.stuck.add(operation)


MOST_ABSENT_SHARE = 1 / 3


@dataclass(frozen=True)
class DumpCoverage:
    """The dumps of a window, held against the ranks and the groups of its job."""

    situation: HangSituation
    topology: Topology

    @cached_property
    def absent(self) -> frozenset[int]:
        """Return the ranks without a whole dump."""
        return frozenset(self.topology.ranks) - self.situation.progress.dumped

    def mostly_absent(self, ranks: Collection[int]) -> bool:
        """Return whether at least half of these left no dump: then a missing dump is the rule, and no clue."""
        return 2 * len(self.absent.intersection(ranks)) >= len(ranks)

    def too_few_to_blame(self, awaited: Collection[int]) -> bool:
        """Return whether ranks that others wait for may not be named for having left no dump: too many left none."""
        return self.mostly_absent(self.topology.ranks) or len(awaited) > MOST_ABSENT_SHARE * len(self.topology.ranks)

    def may_have_more_members(self, operation: Operation) -> bool:
        """Return whether a group that no dump lists may hold a rank whose dump is not here."""
        if not self.situation.inferred[operation.group]:
            return False
        group = self.situation.progress.table.groups[operation.group]
        siblings = [g for g in self.topology.groups if g.description == group.description and g.inferred]
        placed = {rank for sibling in siblings for rank in sibling.members if group.description}
        elsewhere = placed - set(self.situation.members[operation.group])
        return not self.topology.sized or bool(self.absent - elsewhere)

    def wanted(self, ranks: Collection[int]) -> str:
        """Name the ranks whose dumps would decide."""
        named = f"rank{'s' if len(ranks) > 1 else ''} {ranges(ranks)}"
        return (
            f"the flight-recorder dump{'s' if len(ranks) > 1 else ''} of {named} would decide: too few ranks left one"
        )
