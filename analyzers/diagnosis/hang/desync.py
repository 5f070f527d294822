"""Ranks that call something else than their group does: another operation, or a size that the operation cannot bear."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from analyzers.diagnosis.hang.fronts import Fronts
from analyzers.model.recorder import Ints, Mask, keyed

# Sizes must agree here. All-to-all, gather, scatter and list-form all-gather carry uneven shards legitimately.
_EQUAL_SIZES = re.compile(
    r"all_?reduce|_all_gather_base|_reduce_scatter_base|broadcast|^reduce$|barrier", re.IGNORECASE
)
_NUMBERS = re.compile(r"\[([\d,\s]*)\]")

Call = tuple[str, int, str]  # operation, elements (-1: may differ), dtypes ("": may differ)


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One collective on which the members disagree. ``odd``: the minority, or all where there is no majority."""

    group: int
    sequence: int
    calls: dict[int, tuple[Call, ...]]  # rank → what it called
    odd: tuple[int, ...]
    decided: bool  # a majority shows which are odd
    lead: int  # by how many the ranks that made the commonest call outnumber all others
    ahead: tuple[int, ...]  # odd ranks whose call is the majority's next one: they skipped this one
    row: int
    created_ns: int


def mismatches(progress: Fronts) -> list[Disagreement]:
    """Return the outstanding collectives on which members disagree, the oldest first, one for each set of odd ranks."""
    table = progress.table
    rows, keys = _compared(progress)
    calls = _calls(progress, rows)
    found = []
    seen: set[tuple[int, ...]] = set()
    for key in _differing(keys, calls):
        chosen = rows[keys == key]
        mismatch = _mismatch(progress, chosen, {int(row): _call(progress, int(row)) for row in chosen})
        if mismatch is not None:
            found.append(mismatch)
    found.sort(key=lambda mismatch: (mismatch.created_ns, table.groups[mismatch.group].name))
    return [m for m in found if not (m.odd in seen or seen.add(m.odd))]  # type: ignore[func-returns-value]


def _compared(progress: Fronts) -> tuple[Ints, Ints]:
    """Return every row, finished or not, of the collectives that are outstanding on any rank, with a key each."""
    table = progress.table
    collective: Mask = progress.current & ~table.is_p2p & (table["group"] >= 0)
    waits = np.flatnonzero(collective & progress.outstanding)
    lowest = np.full(len(table.groups) + 1, np.iinfo(np.int64).max)
    np.minimum.at(lowest, table["group"][waits], table["collective_seq"][waits])
    rows = np.flatnonzero(collective & (table["collective_seq"] >= lowest[table["group"]]))
    key = keyed(table["group"][rows], table["collective_seq"][rows])
    open_keys = np.unique(key[progress.outstanding[rows]], return_index=True)[0]  # plain unique imports numpy.ma
    chosen = np.isin(key, open_keys)
    return rows[chosen], key[chosen]


def _calls(progress: Fronts, rows: Ints) -> Ints:
    """Code each row's call, equal calls equally."""
    table = progress.table
    columns = [table[name][rows] for name in ("operation", "input_sizes", "dtypes")]
    _, first, inverse = np.unique(keyed(*columns), return_index=True, return_inverse=True)
    codes: dict[Call, int] = {}
    of_triple = [
        codes.setdefault(_call_of(*(progress.table.strings[int(code)] for code in triple)), len(codes))
        for triple in np.stack(columns).T[first]
    ]
    return np.asarray(of_triple, np.int64)[inverse] if len(rows) else np.zeros(0, np.int64)


def _differing(keys: Ints, calls: Ints) -> list[int]:
    _, first = np.unique(keyed(keys, calls), return_index=True)
    distinct, counts = np.unique(keys[first], return_counts=True)
    return [int(key) for key in distinct[counts > 1]]


def _call(progress: Fronts, row: int) -> Call:
    table = progress.table
    return _call_of(*(table.strings[int(table[name][row])] for name in ("operation", "input_sizes", "dtypes")))


def _call_of(operation: str, sizes: str, dtypes: str) -> Call:
    name = operation.partition(":")[2] or operation
    if _EQUAL_SIZES.search(name) is None:
        return (name, -1, "")
    return (name, elements(sizes), dtypes)


def elements(sizes: str) -> int:
    """Count the elements of sizes such as ``[[8192,1,5120],[16]]``; the shape itself may differ, the count may not."""
    return sum(math.prod(int(n) for n in shape.split(",") if n.strip()) for shape in _NUMBERS.findall(sizes))


def _mismatch(progress: Fronts, rows: Ints, call_of: dict[int, Call]) -> Disagreement | None:
    table = progress.table
    by_rank: dict[int, list[Call]] = defaultdict(list)
    for row in rows:
        by_rank[int(table["rank"][row])].append(call_of[int(row)])
    calls = {
        rank: tuple(sorted(made)) for rank, made in sorted(by_rank.items())
    }  # coalesced: several calls, one number
    counts = Counter(calls.values()).most_common()
    if len(counts) < 2:
        return None
    lead = 2 * counts[0][1] - len(calls)
    decided = lead > 0
    odd = tuple(rank for rank, made in calls.items() if not decided or made != counts[0][0])
    first = int(rows[np.argmin(table["created_ns"][rows])])
    group, sequence = int(table["group"][first]), int(table["collective_seq"][first])
    ahead = _ahead(progress, group, sequence, {rank: calls[rank] for rank in odd}, calls) if decided else ()
    return Disagreement(group, sequence, calls, odd, decided, lead, ahead, first, int(table["created_ns"][rows].min()))


def _ahead(
    progress: Fronts, group: int, sequence: int, odd: dict[int, tuple[Call, ...]], calls: dict[int, tuple[Call, ...]]
) -> tuple[int, ...]:
    """Return the odd ranks whose call is what the majority calls next: they are ahead by one, not behind."""
    table = progress.table
    rows = np.flatnonzero(
        progress.current & (table["group"] == group) & (table["collective_seq"] == sequence + 1) & ~table.is_p2p
    )
    following = {_call(progress, int(row)) for row in rows if int(table["rank"][row]) in calls.keys() - odd.keys()}
    return tuple(rank for rank, made in odd.items() if set(made) & following)
