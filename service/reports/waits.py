"""What the ranks waited in when they were dumped: the unfinished operations of each communicator. For display.

The verdict is decided in the analyzers; this shows the same columns so that a reader can check it with their own eyes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from analyzers.model.recorder import GroupName, Ints, Mask, RecorderTable
from analyzers.model.topology import ProcessGroup, Topology, key_of
from analyzers.model.window import Window

_NEVER = np.iinfo(np.int64).max
_TOWARDS = {"send": "to", "recv": "from"}
_PEERS = re.compile(r"(send|recv) (\d+)(?:->|<-)(\d+)")
MOST_FRONTS = 3  # of one communicator, where its members stand at different operations
MOST_POINT_TO_POINT = 100_000  # unfinished sends and receives looked at


@dataclass(frozen=True, slots=True)
class Wait:
    """An operation at which ``waiting`` stand; ``missing`` have not reached it, ``silent`` of these left no dump."""

    key: str  # of the communicator
    group: str
    description: str
    dimension: str
    operation: str
    sequence: int | None  # None: a send or a receive
    size: int
    entered: tuple[int, ...]
    waiting: tuple[int, ...]  # of those that entered, the ranks that stand there
    missing: tuple[int, ...]
    silent: tuple[int, ...]
    since_ns: int  # UTC; -1 unknown


def oldest_waits(window: Window, topology: Topology) -> tuple[Wait, ...]:
    """Return the waits. First those that lack a rank which does not wait itself, then by how many lack, then by age."""
    table = window.recorder
    if not len(table) or not table.groups:
        return ()
    found = [*_collectives(table, topology), *_point_to_point(table, topology)]
    busy = {rank for wait in found for rank in wait.waiting}
    return tuple(
        sorted(
            found,
            key=lambda wait: (
                not wait.missing,
                busy.issuperset(wait.missing),
                len(wait.missing),
                wait.since_ns,
                wait.group,
                wait.entered,
            ),
        )
    )


def wait_of_rank(waits: tuple[Wait, ...]) -> dict[int, int]:
    """Map each waiting rank to the wait that holds it: its oldest with a rank missing, else its oldest."""
    order = sorted(range(len(waits)), key=lambda index: (not waits[index].missing, waits[index].since_ns), reverse=True)
    return {rank: index for index in order for rank in waits[index].waiting}


def most_missed(waits: tuple[Wait, ...]) -> tuple[tuple[int, int], ...]:
    """Return (rank, communicators it is missing from), most missed first."""
    groups: dict[int, set[str]] = defaultdict(set)
    for wait in waits:
        for rank in wait.missing if wait.sequence is not None else ():
            groups[rank].add(wait.key)
    return tuple(sorted(((rank, len(keys)) for rank, keys in groups.items()), key=lambda pair: (-pair[1], pair[0])))


def _collectives(table: RecorderTable, topology: Topology) -> Iterator[Wait]:
    """Yield a wait for each communicator with an unfinished collective. Stale entries (something later ended) are skipped."""
    chosen: Mask = ~table.is_p2p & (table["group"] >= 0) & (table["collective_seq"] >= 0)
    rows = np.flatnonzero(chosen)
    sequence, done = table["collective_seq"][rows], table.finished[rows]
    pairs, of_pair = np.unique(table["rank"][rows] * len(table.groups) + table["group"][rows], return_inverse=True)
    last, ended, front = np.full(len(pairs), -1), np.full(len(pairs), -1), np.full(len(pairs), _NEVER)
    np.maximum.at(last, of_pair, sequence)
    np.maximum.at(ended, of_pair[done], sequence[done])
    open_: Mask = ~done & (sequence > ended[of_pair])
    np.minimum.at(front, of_pair[open_], sequence[open_])
    at_front = np.flatnonzero(open_ & (sequence == front[of_pair]))
    row_of_pair = np.full(len(pairs), -1)
    row_of_pair[of_pair[at_front]] = rows[at_front]
    group_of_pair, dumped = pairs % len(table.groups), frozenset(table.ranks)
    order = np.argsort(group_of_pair, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(group_of_pair[order])) + 1):
        ranks = pairs[part] // len(table.groups)
        for at in _fronts(front[part]):
            yield _collective(
                table, topology, table.groups[int(group_of_pair[part[0]])], at, dumped,
                ranks[last[part] >= at], ranks[front[part] == at], row_of_pair[part[front[part] == at]],
            )  # fmt: skip


def _fronts(fronts: Ints) -> list[int]:
    """Return the operations at which members of one communicator stand: the oldest and the newest few."""
    distinct: list[int] = np.unique(fronts[fronts != _NEVER]).tolist()
    return distinct if len(distinct) <= MOST_FRONTS else [distinct[0], *distinct[1 - MOST_FRONTS :]]


def _collective(
    table: RecorderTable, topology: Topology, named: GroupName, sequence: int, dumped: frozenset[int],
    entered: Ints, waiting: Ints, rows: Ints,
) -> Wait:  # fmt: skip
    group = _group(named, topology)
    reached = frozenset(entered.tolist())
    missing = tuple(rank for rank in sorted(group.members) if rank not in reached)
    created = table["created_ns"][rows]
    return Wait(
        group.key, group.name, group.description, group.dimension, table.operation(int(rows[0])), sequence,
        max(len(group.members), len(reached)), tuple(sorted(reached)), tuple(sorted(waiting.tolist())), missing,
        tuple(rank for rank in missing if rank not in dumped), int(created[created > 0].min()) if (created > 0).any() else -1,
    )  # fmt: skip


def _point_to_point(table: RecorderTable, topology: Topology) -> Iterator[Wait]:
    """Yield a wait for each rank's oldest unfinished send or receive of a pair; both sides posted: none is missing."""
    posted: dict[tuple[str, int, int, str], tuple[ProcessGroup, int]] = {}
    for row in np.flatnonzero(_open_point_to_point(table))[:MOST_POINT_TO_POINT].tolist():
        match = _PEERS.search(table.operation(row))
        group = _group(table.groups[int(table["group"][row])], topology)
        peer = int(match[3]) if match else -1
        if match and peer < len(group.members):
            key = (group.key, int(table["rank"][row]), group.members[peer], match[1])
            posted.setdefault(key, (group, int(table["created_ns"][row])))
    dumped = frozenset(table.ranks)
    for (communicator, rank, peer, verb), (group, since) in posted.items():
        other = (communicator, peer, rank, "send" if verb == "recv" else "recv")
        missing = () if other in posted else (peer,)
        yield Wait(
            group.key, group.name, group.description, group.dimension, f"{verb} {_TOWARDS[verb]} {peer}", None, 2,
            (rank,) if missing else tuple(sorted((rank, peer))), (rank,), missing,
            tuple(one for one in missing if one not in dumped), since,
        )  # fmt: skip


def _open_point_to_point(table: RecorderTable) -> Mask:
    """Mark unfinished sends and receives after which no equal one of the same rank ended."""
    rows = np.flatnonzero(table.is_p2p & (table["group"] >= 0))
    keys = np.stack([table[name][rows] for name in ("rank", "group", "operation")], axis=1)
    _, of_key = np.unique(keys, axis=0, return_inverse=True) if len(rows) else (keys, np.zeros(0, np.int64))
    ended = np.full(len(rows), -1)
    done = table.finished[rows]
    np.maximum.at(ended, of_key[done], rows[done])
    found: Mask = np.zeros(len(table), np.bool_)
    found[rows[~done & (rows > ended[of_key])]] = True
    return found


def _group(named: GroupName, topology: Topology) -> ProcessGroup:
    known = topology.by_key.get(key_of(named))
    if known is not None:
        return known
    members = named.members.ranks() if named.members is not None else ()
    return ProcessGroup(key_of(named), named.name, named.description, "other", members)
