"""Naive ways to find a culprit that the analyzer must beat: each reads the same dumps and names ranks."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from collectors.records import FlightRecorderDump


def _rows(dump: FlightRecorderDump) -> Iterator[tuple[str, int, int, int]]:
    """Yield group, collective sequence number, state and creation of each collective."""
    groups, numbers = array("i", dump.columns["group"]), array("q", dump.columns["collective_seq"])
    created = array("q", dump.columns["created_ns"])
    for row, (group, number) in enumerate(zip(groups, numbers, strict=True)):
        if not dump.columns["is_p2p"][row]:
            yield dump.strings[group], number, dump.columns["state"][row], created[row]


def longest_wait(dumps: list[FlightRecorderDump]) -> frozenset[int]:
    """Name the rank with the oldest unfinished operation: that is a victim."""
    oldest = {dump.rank or 0: min((at for _, _, state, at in _rows(dump) if state < 2), default=None) for dump in dumps}
    waiting = {rank: at for rank, at in oldest.items() if at is not None}
    return frozenset([min(waiting, key=lambda rank: waiting[rank])]) if waiting else frozenset()


def flag_all(dumps: list[FlightRecorderDump]) -> frozenset[int]:
    """Name every rank with anything unfinished."""
    return frozenset(dump.rank or 0 for dump in dumps if any(state < 2 for _, _, state, _ in _rows(dump)))


def smallest_group(dumps: list[FlightRecorderDump]) -> frozenset[int]:
    """Name all members of the smallest group that has an unfinished operation."""
    waiting = {group for dump in dumps for group, _, state, _ in _rows(dump) if state < 2}
    members = {
        group.name: frozenset(group.members.ranks())
        for dump in dumps
        for group in dump.groups
        if group.members and group.name in waiting
    }
    return min(members.values(), key=len, default=frozenset())


def lowest_number(dumps: list[FlightRecorderDump]) -> frozenset[int]:
    """Name the ranks that are furthest behind their group in its sequence number."""
    last: dict[str, dict[int, int]] = defaultdict(dict)
    for dump in dumps:
        for group, number, _, _ in _rows(dump):
            last[group][dump.rank or 0] = max(number, last[group].get(dump.rank or 0, 0))
    behind = {
        rank: max(numbers.values()) - number
        for numbers in last.values()
        for rank, number in numbers.items()
        if number < max(numbers.values())
    }
    return frozenset(rank for rank, gap in behind.items() if gap == max(behind.values()))


def minority(dumps: list[FlightRecorderDump]) -> frozenset[int]:
    """Name the ranks whose last recorded operation is the rarest."""
    last = {}
    for dump in dumps:
        names = array("i", dump.columns["operation"])
        last[dump.rank or 0] = dump.strings[names[-1]].split(" ")[0] if names else ""
    counts = Counter(last.values())
    rarest = min(counts.values(), default=0)
    return frozenset(rank for rank, name in last.items() if counts[name] == rarest)


def missing_dump(dumps: list[FlightRecorderDump]) -> frozenset[int]:
    """Name the members of groups that left no dump."""
    members = {rank for dump in dumps for group in dump.groups if group.members for rank in group.members.ranks()}
    return frozenset(members - {dump.rank for dump in dumps})


CONTROLS: dict[str, Callable[[list[FlightRecorderDump]], frozenset[int]]] = {
    "longest_wait": longest_wait,
    "flag_all": flag_all,
    "smallest_group": smallest_group,
    "lowest_number": lowest_number,
    "minority": minority,
    "missing_dump": missing_dump,
}
