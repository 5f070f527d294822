"""What a flight recorder would write for each line of a program: shared by all ranks that run it.

What the recorder does, and this does too [PyTorch ProcessGroupNCCL.cpp, FlightRecorder.hpp]: the parts of a coalesced
batch are entries of their own that stay ``scheduled`` without end, and only the ``nccl:coalesced`` entry behind them is
watched; up to 2.4 a batch takes a collective sequence number, later a p2p one; ranks in ``send 0->1`` are local to the
group; entries captured in a CUDA graph never end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from simulation.execution import Job
from simulation.programs import DESCRIPTIONS, Kind, Operation, Part, Program

DIMENSIONS = tuple(DESCRIPTIONS["megatron"])
PARTS = tuple(Part(send, offset) for offset in (-1, 1) for send in (True, False))
_WITHIN_STAGE = frozenset({"tp", "dp", "ep"})


class LedgerLine(NamedTuple):
    """One recorder entry of a program; what is text is a place in the rank's string table."""

    position: int  # of the operation in the program; -1: it lingers from before
    dimension: int
    name: int
    sizes_in: int
    sizes_out: int
    dtype: int
    collective: int
    p2p: int
    op_id: int
    is_p2p: bool
    watched: bool


@dataclass(slots=True)
class Ledger:
    """A program's entries and the strings that its ranks share; ``before`` counts the recorder's earlier entries."""

    lines: list[LedgerLine]
    strings: tuple[str, ...]
    before: int
    columns: dict[tuple[int, int], dict[str, bytes]] = field(default_factory=dict)  # by slice of the lines


def own_strings(job: Job, rank: int) -> tuple[str, ...]:
    """Return the texts that differ by rank: group names, transfers by group and part, uneven token counts."""
    groups, shape = job.groups, job.shape
    names = [groups.name(groups.of[rank][d]) if d in groups.of[rank] else "" for d in DIMENSIONS]
    stage = shape.coordinate(rank, "pp")
    for me, step in ((stage, 1), (rank, shape.stride("pp"))):  # in a pipeline group; in the world group
        for part in PARTS:
            text = f"nccl:send {me}->" if part.send else f"nccl:recv {me}<-"
            names.append(f"{text}{me + part.offset * step}" if 0 <= stage + part.offset < shape.pp else "")
    tokens = 1900 + rank * 7919 % 300
    return (*names, f"[[{tokens},{1024 + 512 * (shape.tp > 1)}]]")


OWN = len(DIMENSIONS) + 2 * len(PARTS) + 1


class _LineWriter:
    """Numbers a program's operations as the recorder would."""

    def __init__(self, program: Program, version: str, first: int) -> None:
        self.old = version == "2.4"
        self.places: dict[str, int] = {}
        self.lines: list[LedgerLine] = []
        self.collective, self.p2p = first_numbers(program.stage, first)
        self.op_id = [c + p for c, p in zip(self.collective, self.p2p, strict=True)]

    def place(self, text: str) -> int:
        return OWN + self.places.setdefault(text, len(self.places))

    def linger(self, count: int) -> None:
        """Put entries first that a captured graph left behind."""
        dimension, size = DIMENSIONS.index("tp"), self.place("[[1024]]")
        for number in range(count):
            old = self.collective[dimension] - 400 + number
            texts = self.place("nccl:all_reduce"), size, size, self.place("Float")
            self.lines.append(LedgerLine(-1, dimension, *texts, old, 0, old, False, True))

    def collective_line(self, index: int, operation: Operation) -> None:
        dimension = DIMENSIONS.index(operation.dimension)
        self.collective[dimension] += 1
        self._append(index, dimension, self.place(operation.name), operation)

    def transfer_lines(self, index: int, operation: Operation) -> None:
        dimension = DIMENSIONS.index(operation.dimension)
        bumped = self.collective if operation.coalesced and self.old else self.p2p
        bumped[dimension] += 1
        first = len(DIMENSIONS) + (len(PARTS) if operation.dimension == "world" else 0)
        for part in operation.parts:
            name = first + PARTS.index(part)
            self._append(index, dimension, name, operation, is_p2p=True, watched=not operation.coalesced)
        if operation.coalesced:
            whole = operation._replace(sizes_in="[]", sizes_out="[]", dtype="")
            self._append(index, dimension, self.place("nccl:coalesced"), whole, is_p2p=not self.old)

    def _append(
        self, index: int, place: int, name: int, operation: Operation, *, is_p2p: bool = False, watched: bool = True
    ) -> None:
        self.op_id[place] += 1
        into, out = (
            OWN - 1 if size == "[[0]]" else self.place(size) for size in (operation.sizes_in, operation.sizes_out)
        )
        numbers = self.collective[place], self.p2p[place], self.op_id[place]
        self.lines.append(
            LedgerLine(index, place, name, into, out, self.place(operation.dtype), *numbers, is_p2p, watched)
        )


def first_numbers(stage: int, first: int) -> tuple[list[int], list[int]]:
    """Return the last collective and p2p numbers before the run, by dimension; groups across stages share theirs."""
    if not first:
        return [0] * len(DIMENSIONS), [0] * len(DIMENSIONS)
    collective = [first + 37 * i + (1000 * stage if name in _WITHIN_STAGE else 0) for i, name in enumerate(DIMENSIONS)]
    return collective, [first // 3 + stage] * len(DIMENSIONS)


def write_ledger(program: Program, version: str, first: int, stale: int) -> Ledger:
    """Number a program's operations."""
    scribe = _LineWriter(program, version, first)
    scribe.linger(stale)
    for index, operation in enumerate(program.operations):
        if operation.kind is Kind.COLLECTIVE:
            scribe.collective_line(index, operation)
        elif operation.kind is Kind.TRANSFER:
            scribe.transfer_lines(index, operation)
    return Ledger(scribe.lines, tuple(scribe.places), 9 * first)
