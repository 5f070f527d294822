"""All ranks' flight-recorder entries as one set of columns, with group names and operations coded across ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from collectors.records import Members

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class GroupName:
    """One communicator as dumps name it. ``members`` None: no dump lists them (gloo)."""

    name: str
    description: str
    members: Members | None


@dataclass(frozen=True)
class Statuses:
    """The last work that each rank's own status counters know completed, by the group's ``pg_id``. Shape (k,) each."""

    rank: Ints
    pg_id: Ints
    completed: Ints

    def looked_up(self, rank: Ints, pg_id: Ints) -> Ints:
        """Return the number of the last work completed of each (rank, pg_id), -1 where no counter says."""
        count = len(self.rank)
        if not count:
            return np.full(len(rank), -1, np.int64)
        joined = keyed(np.concatenate([self.rank, rank]), np.concatenate([self.pg_id, pg_id]))
        known, wanted = joined[:count], joined[count:]
        order = np.argsort(known, kind="stable")
        place = order[np.clip(np.searchsorted(known[order], wanted), 0, count - 1)]
        return np.where(known[place] == wanted, self.completed[place], -1)


@dataclass(frozen=True)
class RecorderTable:
    """n entries of all dumps, ordered by rank and then by recording; every column is of shape (n,), int64 but for flags.

    ``group`` indexes ``groups``; ``operation``, ``input_sizes``, ``dtypes`` index ``strings``. ``pair`` numbers the
    (rank, group) pairs that occur, in their order. ``state``, ``retired`` and ``is_p2p`` are int8, as in the dumps.
    """

    ranks: tuple[int, ...]  # that have a dump, sorted
    groups: tuple[GroupName, ...]
    strings: tuple[str, ...]
    columns: dict[str, Ints]
    statuses: Statuses
    partial: frozenset[int] = frozenset()  # ranks whose dump was cut short: what it lacks proves nothing

    def __getitem__(self, name: str) -> Ints:
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.columns["rank"])

    @cached_property
    def finished(self) -> Mask:
        """Mark what the rank itself saw end: completed, or retired (all that gloo ever says)."""
        done: Mask = (self["state"] == 2) | (self["retired"] == 1)
        return done

    @cached_property
    def is_p2p(self) -> Mask:
        """Mark sends and receives."""
        p2p: Mask = self["is_p2p"] == 1
        return p2p

    @cached_property
    def rank_index(self) -> Ints:
        """Return each row's position in ``ranks``."""
        starts = np.searchsorted(self["rank"], np.asarray(self.ranks, np.int64))
        return np.repeat(np.arange(len(self.ranks)), np.diff(starts, append=len(self)))

    @cached_property
    def gloo(self) -> Mask:
        """Mark gloo's entries, and those seen on the host only: no states, ``retired`` for whatever ended."""
        return self._marked(lambda text: text.startswith(("gloo:", "host:")))

    @cached_property
    def whole(self) -> Mask:
        """Mark ``coalesced`` entries: the batch as a whole, which alone is watched; its parts come before it."""
        return self.where_operation(lambda operation: operation == "coalesced")

    def where_operation(self, wanted: Callable[[str], bool]) -> Mask:
        """Mark the rows whose operation, without its backend, is wanted."""
        return self._marked(lambda text: wanted(text.rpartition(":")[2]))

    def _marked(self, wanted: Callable[[str], bool]) -> Mask:
        marks = np.zeros(len(self.strings) + 1, np.bool_)
        marks[[code for code in self._operations if wanted(self.strings[code])]] = True
        found: Mask = marks[self["operation"]]  # -1, no operation, reads the False at the end
        return found

    @cached_property
    def _operations(self) -> list[int]:
        """Return which strings are operations: most are sizes."""
        used = np.zeros(len(self.strings) + 1, np.bool_)
        used[self["operation"]] = True
        return [int(code) for code in np.flatnonzero(used[:-1])]

    def operation(self, row: int) -> str:
        """Return an entry's operation without its backend: ``all_reduce``, ``send 0->3``."""
        return self.strings[int(self["operation"][row])].partition(":")[2] or self.strings[int(self["operation"][row])]


@dataclass(frozen=True)
class Pairs:
    """The (rank, group) pairs that occur, sorted: a matrix of 16,384 ranks by as many groups would be mostly empty."""

    keys: Ints  # rank * span + group
    span: int
    of_row: Ints  # shape (n,): each row's pair
    group: Ints  # each pair's group, -1 for none

    @classmethod
    def from_table(cls, table: RecorderTable) -> Pairs:
        """Read the pairs of a table."""
        span, of_row = len(table.groups) + 2, table["pair"]
        keys = np.zeros(int(of_row.max(initial=-1)) + 1, np.int64)
        keys[of_row] = table["rank"] * span + table["group"] + 1
        return cls(keys, span, of_row, keys % span - 1)

    def highest(self, values: Ints, rows: Mask) -> Ints:
        """Return each pair's highest value among the chosen rows, -1 where there is none."""
        highest = np.full(len(self.keys), -1, np.int64)
        np.maximum.at(highest, self.of_row[rows], values[rows])
        return highest

    def by_group(self, values: Ints) -> dict[int, dict[int, int]]:
        """Return the pairs' values as group → rank → value."""
        found: dict[int, dict[int, int]] = defaultdict(dict)
        for rank, group, value in zip(
            (self.keys // self.span).tolist(), self.group.tolist(), values.tolist(), strict=True
        ):
            found[group][rank] = value
        return found


_WIDEST = 1 << 40


def whole_values(data: bytes, kind: str = "<i8") -> Ints:
    """Read a column of whole numbers; what a cut left of the last one is dropped."""
    size = np.dtype(kind).itemsize
    return np.frombuffer(data[: len(data) // size * size], kind).astype(np.int64)


def keyed(*columns: Ints) -> Ints:
    """Return one integer per row that is equal where all columns are; ordered by the first column, then the next."""
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        low, span = int(column.min(initial=0)), int(column.max(initial=0)) - int(column.min(initial=0)) + 1
        if span > _WIDEST:  # no counter runs so far: a damaged dump's noise, which must not overflow
            column = np.unique(column, return_inverse=True)[1].astype(np.int64)  # noqa: PLW2901
            low, span = 0, len(column) + 1
        if int(key.max(initial=0)) > np.iinfo(np.int64).max // max(span, 1) - 1:
            key = np.unique(key, return_inverse=True)[1].astype(np.int64)
        key = key * span + (column - low)
    return key
