"""NCCL RAS as text: what ``ncclras`` prints, and the events of ``ncclras -m``.

The table gives status and errors per set of alike communicators; blocks such as ``#0-0 (hash) MISMATCH`` below it name
ranks. Where a block lists only the outliers, the ranks it does not list are those of the one count that it left without
a list, so that they get that count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from collectors.formats import Input, reader
from collectors.formats.text_lines import lines, local_seconds
from collectors.records import RasCommunicator, RasPeerDead, RasRank, Record

MAX_RANKS = 1 << 20
"""Rank numbers above this are memory garbage, as NCCL 2.27.3 was seen to print."""
MAX_WARNINGS = 64

_BANNER = re.compile(r"R?(?:NCCL) version ")
_ROW = re.compile(r"\s*(\d+)\s+(\d+)\s+(\d+)\s+[\d-]+\s+(\d+)\s+\d+\s+([A-Z]+(?:/[A-Z]+)?)\s+([A-Z,]+)\s*$")
_BLOCK = re.compile(r"#(\d+)-(\d+) \((?:0x)?([0-9a-fA-F]+)\) ([A-Z]+)")
_JOB_BLOCK = re.compile(r"(INCOMPLETE|DEAD|TIMEOUT)\s*$")
_PROCESS = re.compile(r"Process (\d+) on node (\S+) managing GPUs? ([\d,]*)")
_OPERATIONS = re.compile(r"have different (\w+) operation counts")
_MANY = re.compile(r"(\d+) ranks have (?:launched up to operation (\d+)|(not launched))")
_ONE = re.compile(r"Rank (\d+) has (?:launched up to operation (\d+)|(not launched))")
_RANK = re.compile(r"Rank (\d+)\b")
_WHERE = re.compile(r"-- GPU (\d+).* managed by process (\d+) on node (\S+)")
_EVENT = re.compile(
    r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\] PEER_DEAD: Process (\d+) on node (\S+) managing GPUs? ([\d,]*)"
)
_SNIFF = re.compile(
    rb"(?m)^Communicators\.\.\. \(|^Group +Comms +Nodes +Ranks|\] PEER_DEAD: Process \d+|^RAS Monitor Mode"
)


def sniff(head: bytes, _source: str) -> int:
    """Know a report by its own words."""
    if not _SNIFF.search(head):
        return 0
    return 92 if re.search(rb"(?m)^(?:Job summary|Errors|RAS Monitor Mode)|PEER_DEAD", head) else 60


@reader(
    "nccl_ras_text",
    made_by="ncclras -v; ncclras -m; echo 'VERBOSE STATUS' | nc localhost 28028",
    gives="communicators, operation counts that differ, dead processes",
    sniff=sniff,
)
def read(input: Input) -> Iterator[Record]:
    """Yield one communicator per block and table row, and one event per dead process."""
    report = _Report(input, 1)
    for number, text in lines(input.stream):
        if found := _EVENT.search(text):
            yield _dead(input, number, found.group(3), found.group(2), found.group(4), local_seconds(found.group(1)))
        elif _BANNER.match(text) and (report.rows or report.blocks):
            yield from report.finish()
            report = _Report(input, number)
        else:
            yield from report.take(number, text)
    yield from report.finish()


@dataclass
class _Row:
    line: int
    communicators: int
    size: int
    status: str
    errors: str


@dataclass
class _Block:
    """One communicator's block under construction."""

    line: int
    key: tuple[int, int]
    hash: str
    size: int
    ranks: dict[int, RasRank] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    operation: str = ""
    count: int | None = None
    # Operation → (ranks, count) without a list.
    unlisted: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    listed: dict[str, set[int]] = field(default_factory=dict)

    def take(self, kind: str, text: str) -> None:
        """Read one indented line."""
        if found := _OPERATIONS.search(text):
            self.operation, self.count = found.group(1), None
        elif found := _MANY.search(text):
            self.count = int((found.group(2) or "0")[:18])
            self.unlisted.setdefault(self.operation, []).append((int(found.group(1)[:9]), self.count))
        elif found := _RANK.search(text):
            self._rank(kind, int(found.group(1)[:12]), text)
        if len(self.warnings) < MAX_WARNINGS:
            self.warnings.append(text.strip())

    def _rank(self, kind: str, rank: int, text: str) -> None:
        if rank >= (self.size or MAX_RANKS):
            return
        where = _WHERE.search(text)
        before = self.ranks.get(rank, RasRank(rank=rank))
        counts = before.counts
        if kind == "MISMATCH" and self.operation:
            one = _ONE.search(text)
            count = int((one.group(2) or "0")[:18]) if one else self.count
            if count is not None:
                counts = {**counts, self.operation: count}
                self.listed.setdefault(self.operation, set()).add(rank)
                groups = self.unlisted.get(self.operation)
                if not one and groups and groups[-1][1] == count:
                    groups.pop()
        place = {"host": where[3], "pid": int(where[2][:9]), "gpu": int(where[1][:4])} if where else {}
        missing = before.missing or kind == "INCOMPLETE"
        self.ranks[rank] = msgspec.structs.replace(before, counts=counts, missing=missing, **place)

    def filled(self) -> tuple[RasRank, ...]:
        """Return the ranks, the unlisted ones with the one count that no list belongs to."""
        for operation, groups in self.unlisted.items():
            silent = [group for group in groups if group[0]]
            unnamed = set(range(min(self.size, MAX_RANKS))) - self.listed.get(operation, set())
            absent = {rank for rank in unnamed if rank in self.ranks and self.ranks[rank].missing}
            if len(silent) == 1 and len(unnamed - absent) == silent[0][0]:
                for rank in unnamed - absent:
                    before = self.ranks.get(rank, RasRank(rank=rank))
                    counts = {**before.counts, operation: silent[0][1]}
                    self.ranks[rank] = msgspec.structs.replace(before, counts=counts)
        return tuple(self.ranks[rank] for rank in sorted(self.ranks))


class _Report:
    """One answer of RAS: its table rows and its blocks."""

    def __init__(self, input: Input, line: int) -> None:
        self.input = input
        self.line = line
        self.rows: dict[int, _Row] = {}
        self.blocks: dict[tuple[int, int], _Block] = {}
        self.kind = ""
        self.block: _Block | None = None
        self.job_lines: list[str] = []

    def take(self, number: int, text: str) -> Iterator[Record]:
        """Read one line; yield a dead process where it names one."""
        if found := _ROW.match(text):
            group, communicators, _, size = (int(part[:9]) for part in found.groups()[:4])
            self.rows[group] = _Row(number, communicators, size, found.group(5), found.group(6))
        elif found := _BLOCK.match(text):
            self._open(number, found)
        elif found := _JOB_BLOCK.match(text):
            self.block, self.kind = None, found.group(1)
        elif self.block is not None and text.startswith("  "):
            self.block.take(self.kind, text)
        elif self.kind in {"DEAD", "INCOMPLETE"} and (found := _PROCESS.search(text)):
            if self.kind == "DEAD":
                yield _dead(self.input, number, found.group(2), found.group(1), found.group(3), self.input.at)
            elif len(self.job_lines) < MAX_WARNINGS:
                self.job_lines.append(f"missing: {text.strip()}")

    def _open(self, number: int, found: re.Match[str]) -> None:
        key = (int(found.group(1)[:9]), int(found.group(2)[:9]))
        row = self.rows.get(key[0])
        self.kind = found.group(4)
        self.block = self.blocks.setdefault(key, _Block(number, key, f"0x{found.group(3)}", row.size if row else 0))
        self.block.kinds.append(self.kind)

    def finish(self) -> Iterator[Record]:
        """Yield the blocks, then the rows that no block explains."""
        for block in self.blocks.values():
            row = self.rows.get(block.key[0])
            yield RasCommunicator(
                source=f"{self.input.source}:{block.line}",
                at=self.input.at,
                node=self.input.node,
                hash=block.hash,
                size=block.size,
                status=row.status if row else None,
                errors=row.errors if row else ",".join(block.kinds),
                ranks=block.filled(),
                warnings=tuple(block.warnings),
            )
        explained = {key[0] for key in self.blocks}
        for group, row in self.rows.items():
            if group not in explained:
                yield RasCommunicator(
                    source=f"{self.input.source}:{row.line}",
                    at=self.input.at,
                    node=self.input.node,
                    size=row.size,
                    status=row.status,
                    errors=row.errors,
                    warnings=(f"{row.communicators} communicators of {row.size} ranks", *self.job_lines),
                )


def _dead(input: Input, number: int, host: str, pid: str, gpus: str, at: float | None) -> RasPeerDead:
    devices = tuple(int(part[:4]) for part in gpus.split(",") if part.isdigit())
    source = f"{input.source}:{number}"
    return RasPeerDead(source=source, at=at, host=host, pid=int(pid[:9]), gpus=devices)
