"""A line's shape as one row of a table: a word that it must hold, a pattern, and the event that it is.

The named groups of a pattern fill the event's fields of the same names. Further names: ``exit`` an exit code (-9 and 137 are
signals too), ``death`` a signal's number or name, ``host`` and ``port`` a peer, ``members`` ranks as ``0, 2-4``.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from collectors.formats.job_log.job_lines import Line
from collectors.records import LogEvent, Members

MAX_MEMBERS = 65_536
MAX_TEXT, MAX_MESSAGE = 500, 1000
MAX_OF_LINE = 16  # events of one line
LARGEST = (1 << 63) - 1
_ENDLESS = re.compile(r"\d{40,}")
_WHOLE_NUMBERS = frozenset({
    "rank", "pid", "local_rank", "group_rank", "signal", "exit_code", "sequence", "elapsed_ms", "timeout_ms", "last_enqueued",
    "last_completed",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shape:
    """One row. ``fields``: what the event has besides the pattern's groups."""

    word: str
    pattern: re.Pattern[str]
    event: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    every: bool = False  # each place where the pattern fits is an event


def shape(word: str, pattern: str, event: str, *, every: bool = False, **fields: Any) -> Shape:
    """Build a row; every quantifier of the pattern is to be bounded, for a line may be hostile."""
    return Shape(word, re.compile(pattern), event, fields, every)


def without_endless_numbers(line: Line) -> Line:
    """Give the line with a mark in the place of each number that nothing counts to: a line may be hostile."""
    return replace(line, text=_ENDLESS.sub("#", line.text)) if _ENDLESS.search(line.text) else line


def event(line: Line, name: str, **fields: Any) -> LogEvent:
    """One event of this line; its prefix fills what the fields leave open. A number that no column holds is left out."""
    fields.setdefault("rank", line.rank)
    fields.setdefault("node", line.node)
    fields.setdefault("pid", line.pid)
    fields.setdefault("local_rank", line.local_rank)
    fields.setdefault("at", line.at)
    fields.setdefault("text", line.text.strip()[:MAX_TEXT])
    held = {key: value for key, value in fields.items() if not isinstance(value, int) or abs(value) <= LARGEST}
    return LogEvent(source=str(line.number), event=name, **held)


def events(shapes: Iterable[Shape], line: Line) -> list[LogEvent]:
    """Give the event of the first row that the line fits, or none; several where the row says so."""
    for row in shapes:
        most = MAX_OF_LINE if row.every else 1
        if row.word in line.text and (found := list(islice(row.pattern.finditer(line.text), most))):
            return [event(line, row.event, **{**row.fields, **fields_of(each)}) for each in found]
    return []


def fields_of(found: re.Match[str]) -> dict[str, Any]:
    """Turn the named groups of a match into fields of an event."""
    given = {name: value for name, value in found.groupdict().items() if value is not None}
    fields: dict[str, Any] = {}
    host, port = given.pop("host", None), given.pop("port", None)
    if host is not None:
        fields["peer"] = f"{host}:{port}" if port else host
    for name, value in given.items():
        if name in _WHOLE_NUMBERS:
            fields[name] = int(value)
        elif convert := _CONVERTED.get(name):
            fields.update(convert(value))
        elif name != "node" or (value := host_of(value)):
            fields[name] = value[:MAX_MESSAGE].strip()
    return fields


def fate(code: int) -> dict[str, int]:
    """An exit code as the record's fields: −9 and 137 both are death by signal 9."""
    if code < 0:
        return {"exit_code": code, "signal": -code}
    return {"exit_code": code, "signal": code - 128} if 128 < code < 128 + 65 else {"exit_code": code}


def host_of(name: str) -> str | None:
    """The node a launcher names; a list of them (``gpu-[01-04]``) or the loopback names none."""
    return None if "[" in name or name in {"localhost", "127.0.0.1", "<N/A>"} else name


def members_of(text: str) -> list[int]:
    """The numbers of a list such as ``5-7,9`` or ``0, 1``, at most MAX_MEMBERS."""
    numbers: list[int] = []
    for part in re.split(r"[,\s]+", text):
        low, _, high = part.partition("-")
        if low.isdigit() and (not high or high.isdigit()):
            room = MAX_MEMBERS - len(numbers)
            numbers += range(int(low[:9]), min(int((high or low)[:9]), int(low[:9]) + room - 1) + 1)
    return numbers


def _members(text: str) -> dict[str, Any]:
    return {"ranks": Members.of(members_of(text))}


def _death(text: str) -> dict[str, Any]:
    number = int(text) if text.isdigit() else next((one.value for one in signals.Signals if one.name == text), None)
    return {"signal": number}


_CONVERTED: dict[str, Callable[[str], dict[str, Any]]] = {
    "exit": lambda text: dict(fate(int(text))),
    "death": _death,
    "members": _members,
}


@dataclass(frozen=True, slots=True)
class Block:
    """What goes over several lines: ``opens`` begins it, each of ``lines`` may follow, ``within_lines`` others end it.

    ``closes``: "each" line is an event, "first" the first line is, "all" fields together are one event at the end, "differ"
    as "each", but only where the lines' operations differ. ``if_differ``: the event where they do. ``needs``: fields without
    which "all" is no event.
    """

    word: str
    opens: re.Pattern[str]
    lines: tuple[re.Pattern[str], ...]
    event: str
    closes: str = "each"
    needs: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    if_differ: str = ""
    within_lines: int = 1  # so many lines that fit nothing may come between


class Blocks:
    """The blocks that one stream is printing; it looks at lines and takes none away from other readers."""

    def __init__(self, rows: tuple[Block, ...]) -> None:
        self._rows = rows
        self._open: Block | None = None
        self._line: Line | None = None
        self._head: dict[str, Any] = {}
        self._found: list[tuple[Line, dict[str, Any]]] = []
        self._misses = 0

    @property
    def busy(self) -> bool:
        """True inside a block, whose further lines have no word of their own."""
        return self._open is not None

    def feed(self, line: Line) -> list[LogEvent]:
        """Give the events that are complete with this line."""
        if (row := self._open) is not None:
            found = next((match for pattern in row.lines if (match := pattern.match(line.text))), None)
            if found is not None:
                self._found.append((line, fields_of(found)))
                self._misses = 0
                return self.close() if row.closes == "first" or len(self._found) >= MAX_MEMBERS else []
            self._misses += 1
            if self._misses < row.within_lines and not any(each.word in line.text for each in self._rows):
                return []
        ended = self.close()
        for row in self._rows:
            if row.word in line.text and (found := row.opens.search(line.text)):
                self._open, self._line, self._head, self._misses = row, line, fields_of(found), 0
                break
        return ended

    def close(self) -> list[LogEvent]:
        """Give what is still open: the file ended inside a block."""
        row, line, lines = self._open, self._line, self._found
        self._open, self._found = None, []
        if row is None or line is None or not lines:
            return []
        if row.closes == "all":
            fields = dict(self._head)
            for _, each in lines:
                fields = _joined(fields, each)
            known = all(fields.get(name) is not None for name in row.needs)
            return [event(line, row.event, **{**row.fields, **fields})] if known else []
        differ = len({each.get("operation") for _, each in lines}) > 1
        if row.closes == "differ" and not differ:
            return []
        name = row.if_differ if differ and row.if_differ else row.event
        return [event(at, name, **{**row.fields, **self._head, **each}) for at, each in lines]


def _joined(fields: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Add fields; ranks are collected, of anything else the first stands."""
    joined = {**more, **fields}
    if "ranks" in fields and "ranks" in more:
        joined["ranks"] = Members.of([*fields["ranks"].ranks(), *more["ranks"].ranks()])
    return joined


def words_of(shapes: Iterable[Shape | Block]) -> Iterator[str]:
    """Yield the words without which a line fits no row."""
    return (row.word for row in shapes)


def identity(stream: str, found: LogEvent) -> tuple[object, ...]:
    """Return what makes two events of a stream the same one said again; numbers in a message do not."""
    said = re.sub(r"\d+", "0", (found.message or "")[:200])
    if found.event in {"exit", "oom_kill", "closing_signal", "torchrun_failure"}:
        return (stream, found.event, found.rank, found.local_rank, found.pid, found.signal, found.exit_code, found.node)
    where = found.frames[:1]
    return (stream, found.event, found.rank, found.exception, said, found.peer, found.group, found.sequence, found.node,
            found.last_enqueued, found.first, where, found.ranks, found.device, found.code, found.operation)  # fmt: skip
