"""A process table as ``ps`` prints it: pid, state letter, what it waits for in the kernel, age, command line.

State T (stopped) and D (uninterruptible) are evidence that no dump gives. With a header line the columns are found by
name, in any order; without one only the exact layout of ``ps -wweo pid,stat,wchan:32,etime,args`` is believed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from collectors.formats import Input, reader
from collectors.formats.stacks.stack_building import NAME_CHARACTERS, rank_in_command
from collectors.formats.text_lines import lines
from collectors.records import ProcessState, Record, Unread

TELLING_ROWS = 100_000
"""Rows of Python processes and of processes in state D, T, t, Z or X that one table may give."""
OTHER_ROWS = 200
"""Rows of anything else: enough to show that the node is alive."""

_TELLING_STATES = frozenset("DTtZX")
_TELLING_COMMAND = re.compile(r"python|torchrun|deepspeed|accelerate|(?:^|\s)--rank\b|RANK=|\.py\b")
_STATE = re.compile(r"[DIRSTtWXZ][<NLsl+]*$")
_ELAPSED = re.compile(r"(?:(?:(\d+)-)?(\d+):)?(\d+):(\d+)$")
_BARE = re.compile(r"\s*\d+\s+[DIRSTtWXZ][<NLsl+]*\s+\S+\s+(?:\d+-)?(?:\d+:)?\d\d:\d\d\s+\S")
_WEEKDAYS = frozenset(("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"))
_NAMES = {
    "PID": "pid",
    "STAT": "state",
    "S": "state",
    "WCHAN": "wait_channel",
    "ELAPSED": "elapsed",
    "STARTED": "started",
    "COMMAND": "command",
    "CMD": "command",
    "ARGS": "command",
}


@dataclass(frozen=True)
class Layout:
    """Which column holds what; the last column is the command line with its spaces."""

    columns: tuple[str, ...]

    @classmethod
    def of(cls, header: str) -> Layout | None:
        """Read a header line; None where it is not one, or lacks pid, state or command."""
        words = header.split()
        columns = tuple(_NAMES.get(word, "other") for word in words)
        if not {"pid", "state", "command"} <= set(columns) or columns[-1] != "command":
            return None
        return cls(columns)

    def row(self, text: str) -> dict[str, str] | None:
        """Split one line; None where it does not fit."""
        fields = text.split(None, len(self.columns) - 1)
        if "started" in self.columns:  # lstart prints five words under one heading
            place = self.columns.index("started")
            if len(fields) > place and fields[place] in _WEEKDAYS:
                fields = text.split(None, len(self.columns) + 3)
                fields[place : place + 5] = [" ".join(fields[place : place + 5])]
        if len(fields) < len(self.columns) - 1:
            return None
        row = dict(zip(self.columns, fields, strict=False))
        return row if row.get("pid", "").isdigit() and _STATE.match(row.get("state", "")) else None


BARE = Layout(("pid", "state", "wait_channel", "elapsed", "command"))


def _sniff(head: bytes, _source: str) -> int:
    text = head.decode("utf-8", "replace").splitlines()
    text = text[:-1] if len(head) >= 65_536 else text
    filled = [line for line in text if line.strip()]
    for place, line in enumerate(filled[:5]):
        layout = Layout.of(line)
        if layout is not None:
            rows = filled[place + 1 : place + 20]
            fits = sum(layout.row(row) is not None for row in rows)
            return 90 if fits * 10 >= len(rows) * 8 else 0
    return 80 if filled and all(_BARE.match(line) for line in filled) else 0


@reader(
    "process_table",
    made_by="ps -wweo pid,stat,wchan:32,etime,args",
    gives="which process is stopped, uninterruptible or gone",
    sniff=_sniff,
)
def read(input: Input) -> Iterator[Record]:
    """Yield one process state per row worth keeping, and how many were left out."""
    layout: Layout | None = None
    left_out = misfits = telling = others = 0
    only: ProcessState | None = None
    for number, text in lines(input.stream):
        header = Layout.of(text)
        if header is not None or not text.strip():
            layout = header or layout
            continue
        row = (layout or BARE).row(text)
        if row is None:
            misfits += layout is not None
            continue
        matters = row["state"][0] in _TELLING_STATES or _TELLING_COMMAND.search(row.get("command", "")) is not None
        telling, others = telling + matters, others + (not matters)
        if (telling if matters else others) > (TELLING_ROWS if matters else OTHER_ROWS):
            left_out += matters
            continue
        process = _process(input, number, row)
        if matters and telling == 1:
            only = process
        else:
            yield process
    if only is not None:
        # The file's name gives the owner only where the file is about one process: `ps -p PID > ps_rank_3`.
        alone = telling == 1 and only.rank is None
        yield msgspec.structs.replace(only, rank=input.rank) if alone else only
    if left_out:
        reason = f"{left_out} process rows beyond {TELLING_ROWS} are not read: list only the job's processes"
        yield Unread(source=input.source, reason=reason, outcome="limit")
    if misfits:
        yield Unread(source=input.source, reason=f"{misfits} lines fit no process row", outcome="damaged")


def _process(input: Input, number: int, row: dict[str, str]) -> ProcessState:
    command = row.get("command", "")
    channel = row.get("wait_channel")
    return ProcessState(
        source=f"{input.source}:{number}",
        at=input.at,
        node=input.node,
        rank=rank_in_command(command),
        pid=int(row["pid"][:18]),
        state=row["state"][0],
        wait_channel=None if channel in {None, "-", "0", "?"} else channel,
        elapsed_seconds=_elapsed_seconds(row.get("elapsed", "")),
        command=command[:NAME_CHARACTERS],
    )


def _elapsed_seconds(text: str) -> float | None:
    """Read ``[[days-]hours:]minutes:seconds`` or plain seconds."""
    if text.isdigit():
        return float(text[:18])
    found = _ELAPSED.match(text)
    if not found:
        return None
    days, hours, minutes, seconds = (int((part or "0")[:9]) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
