"""The obvious slow way to do what the hang analyzer does fast: loops over rows and pairs, written to be read, not run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from analyzers.model.recorder import RecorderTable

SYNCHRONISING = ("all_reduce", "all_gather", "_all_gather_base", "_reduce_scatter_base", "all_to_all", "barrier")


def equal_keys(columns: Sequence[Sequence[int]]) -> list[int]:
    """Number the rows by their values in all columns, in the order of those values."""
    rows = list(zip(*columns, strict=True))
    order = sorted(set(rows))
    return [order.index(row) for row in rows]


def highest(table: RecorderTable, name: str, rows: Iterable[int]) -> dict[tuple[int, int], int]:
    """Return the highest value per (rank, group) among these rows."""
    found: dict[tuple[int, int], int] = {}
    for row in rows:
        pair = (int(table["rank"][row]), int(table["group"][row]))
        found[pair] = max(found.get(pair, -1), int(table[name][row]))
    return found


def ranges(ranks: Iterable[int]) -> str:
    """Write ranks as ranges, one number after the other."""
    parts: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if parts and parts[-1][-1] == rank - 1:
            parts[-1].append(rank)
        else:
            parts.append([rank])
    return ",".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else f"{part[0]}" for part in parts)


class Naive:
    """What one table shows, of jobs with collectives only, without timeouts, restarts or batches."""

    def __init__(self, table: RecorderTable) -> None:
        self.table = table
        self.rows = range(len(table))

    def value(self, name: str, row: int) -> int:
        """One cell."""
        return int(self.table[name][row])

    def pair(self, row: int) -> tuple[int, int]:
        """The row's rank and group."""
        return self.value("rank", row), self.value("group", row)

    def done(self, row: int) -> bool:
        """Whether the rank itself saw it end."""
        return self.value("state", row) == 2 or self.value("retired", row) == 1

    def overtaken(self, row: int) -> bool:
        """Whether the same rank saw a later collective of the same group end."""
        return any(
            self.pair(other) == self.pair(row)
            and self.done(other)
            and self.value("collective_seq", other) > self.value("collective_seq", row)
            for other in self.rows
        )

    def open(self) -> list[int]:
        """Rows that look unfinished and were not overtaken."""
        return [row for row in self.rows if not self.done(row) and not self.overtaken(row)]

    def ended(self) -> dict[tuple[int, int], int]:
        """How far each rank saw each group end; the oldest unfinished one proves the one before it."""
        found = {self.pair(row): -1 for row in self.rows}
        for row in self.rows:
            if self.value("state", row) == 2:
                found[self.pair(row)] = max(found[self.pair(row)], self.value("collective_seq", row))
        for pair, number in found.items():
            unfinished = [self.value("collective_seq", row) for row in self.open() if self.pair(row) == pair]
            found[pair] = max(number, min(unfinished, default=0) - 1)
        return found

    def lost(self) -> set[int]:
        """Open rows of every rank that holds for unfinished what another rank's end proves to have ended."""
        ended = self.ended()
        blind = set()
        for row in self.open():
            rank, group = self.pair(row)
            name = self.table.strings[self.value("operation", row)].removeprefix("nccl:")
            for (_, other_group), number in ended.items():
                if name in SYNCHRONISING and other_group == group and self.value("collective_seq", row) <= number:
                    blind.add(rank)
        return {row for row in self.open() if self.value("rank", row) in blind}

    def entered(self) -> dict[tuple[int, int], int]:
        """The highest number that each rank launched in each group, of what does not linger."""
        kept = [row for row in self.rows if self.done(row) or not self.overtaken(row)]
        return highest(self.table, "collective_seq", kept)
