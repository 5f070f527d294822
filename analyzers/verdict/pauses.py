"""Pauses: what one rank may do for long while the others wait for it, with no rank at fault (docs/pauses.md).

A rank that compiles, writes a checkpoint or is held by a debugger stands still in its own code, as a stuck rank does. The
names on its stack distinguish the two; which names mean which pause is knowledge (``pauses.toml``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from analyzers.knowledge import Knowledge
from analyzers.model.finding import Cause
from analyzers.model.frames import normal
from analyzers.model.standings import WAITING, Observation
from collectors.records import Frame, ProcessState

TRACED_SECONDS = 5.0
"""py-spy and gdb stop a process for a moment; one that is traced for longer is being debugged."""
_ELSEWHERE = (WAITING - {"waiting_device"}) | {"store"}


@dataclass(frozen=True, slots=True)
class Pause:
    """What a rank is busy with, on which evidence."""

    kind: str
    words: str  # "in a checkpoint"
    cause: Cause
    longest_seconds: float  # 0: no bound
    where: str
    source: str
    at: float | None  # of the newest stack
    since: float | None  # of the first stack that shows it
    left_at: float | None = None  # of the newest stack, which shows that it is over

    def excuses(self, age_seconds: float | None) -> bool:
        """Whether it has not lasted too long."""
        return not self.longest_seconds or age_seconds is None or age_seconds <= self.longest_seconds


@dataclass(frozen=True, slots=True)
class _Rule:
    kind: str
    pattern: re.Pattern[str]
    file: re.Pattern[str] | None = None

    def fits(self, frame: Frame) -> bool:
        last = frame.function if "::" in frame.function else frame.function.rsplit(".", 1)[-1]
        if self.file is not None and not self.file.search(frame.file):
            return False
        return bool(self.pattern.match(last) or self.pattern.match(frame.function))


@dataclass
class Pauses:
    """The rules of a knowledge value. ``unusable``: what is wrong with rows that cannot be used."""

    kinds: Mapping[str, Mapping[str, Any]]
    frames: tuple[_Rule, ...]
    commands: tuple[_Rule, ...]
    channels: tuple[_Rule, ...]
    unusable: tuple[str, ...] = ()
    _known: dict[tuple[str, str], str] = field(default_factory=dict)

    @classmethod
    def from_knowledge(cls, knowledge: Knowledge) -> Pauses:
        """Compile the rules of the ``pauses`` table; a wrong row of a site is left out."""
        table = knowledge.table("pauses")
        named = table.get("kind")
        kinds = (
            {name: row for name, row in named.items() if isinstance(row, Mapping)} if isinstance(named, Mapping) else {}
        )
        wrong: list[str] = []

        def rules(part: str, column: str) -> tuple[_Rule, ...]:
            return tuple(_compiled(table.get(part, {}), part, column, kinds, wrong))

        frames, commands = rules("frames", "function"), rules("commands", "command")
        return cls(kinds, frames, commands, rules("channels", "channel"), tuple(wrong))

    def shared(self, one: Observation, waiting: Collection[str], rank: int) -> bool:
        """Whether a stack's pause excuses nothing, for those who wait for the rank are in it too, and it does other work.

        ``waiting``: the functions on their stacks. In an evaluation that all are in, a data loader that does not return is
        what distinguishes the rank. Rank 0 alone writes files for all, and that is no hang.
        """
        found = self._kind_of(one)
        if found is None or one.duty.name not in self.kinds.get(found[0], {}).get("not_its_work", ()):
            return False
        alone = rank == 0 and one.duty.name == "storage"
        return not alone and any(normal(frame) in waiting for frame in one.frames if self._kind(frame) == found[0])

    def seen(
        self, observed: Sequence[Observation], rows: Sequence[ProcessState], helpers: Iterable[ProcessState]
    ) -> Pause | None:
        """Return what a rank is busy with, by its stacks and its process's states, oldest first; None: nothing known.

        A rank that waits in communication is busy with nothing, wherever that was called from.
        """
        if observed and observed[-1].duty.name in _ELSEWHERE:
            return None
        if observed and (found := self._kind_of(observed[-1])) is not None:
            newest = observed[-1].dump
            return self._pause(found[0], normal(found[1]), newest.source, newest.at, self._since(observed, found[0]))
        if rows and rows[-1].state == "t" and (traced := _traced_since(rows)) is not None:
            return self._pause("debugger", "its process is traced (state t)", rows[-1].source, rows[-1].at, traced)
        if rows and (kind := _first(self.channels, rows[-1].wait_channel or "")):
            return self._pause(
                kind, f"its process sleeps in {rows[-1].wait_channel}", rows[-1].source, rows[-1].at, None
            )
        for row in helpers:
            if (started := _first(self.commands, row.command)) is not None:
                return self._pause(started, f"it has started {row.command[:60]!r}", row.source, row.at, row.started_at)
        return None

    def just_left(self, observed: Sequence[Observation], onset: float | None) -> Pause | None:
        """Return the pause in which the stack before the newest found a rank that is out of it now; None: there is none.

        What others wait for may have come since: the next round shows it.
        """
        if len(observed) < 2 or self._kind_of(observed[-1]) is not None:
            return None
        before, newest = observed[-2].dump.at, observed[-1].dump.at
        if before is None or newest is None or (onset is not None and before < onset - 1.0):
            return None
        found = self.seen(observed[:-1], (), ())
        return None if found is None else replace(found, left_at=newest)

    def _kind_of(self, one: Observation) -> tuple[str, Frame] | None:
        """Return the innermost pause of a stack, with its frame."""
        return next(((kind, frame) for frame in one.frames if (kind := self._kind(frame))), None)

    def _kind(self, frame: Frame) -> str:
        key = (frame.function, frame.file)
        if key not in self._known:
            self._known[key] = next((rule.kind for rule in self.frames if rule.fits(frame)), "")
        return self._known[key]

    def _since(self, observed: Sequence[Observation], kind: str) -> float | None:
        """Return the time of the first of the newest stacks that all show this pause."""
        since = None
        for one in reversed(observed):
            found = self._kind_of(one)
            if found is None or found[0] != kind:
                break
            since = one.dump.at
        return since

    def _pause(self, kind: str, where: str, source: str, at: float | None, since: float | None) -> Pause | None:
        row = self.kinds.get(kind)
        if row is None:
            return None
        cause: Cause = "code" if row.get("cause") == "code" else "none"
        words, longest = str(row.get("words", kind)), _seconds(row.get("longest_seconds"))
        return Pause(kind, words, cause, longest, where, source, at, since)


def _traced_since(rows: Sequence[ProcessState]) -> float | None:
    """Return since when a process is traced, None where it may be for a moment only."""
    traced: list[float] = []
    for row in reversed(rows):
        if row.state != "t":
            break
        traced.append(row.at or 0.0)
    return traced[-1] if traced and traced[0] - traced[-1] >= TRACED_SECONDS else None


def _seconds(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _first(rules: Iterable[_Rule], text: str) -> str | None:
    return next((rule.kind for rule in rules if rule.pattern.search(text)), None) if text else None


def _compiled(rows: Any, part: str, column: str, kinds: Mapping[str, Any], wrong: list[str]) -> Iterable[_Rule]:
    for name, row in sorted(rows.items()) if isinstance(rows, Mapping) else ():
        try:
            if row["kind"] not in kinds:
                raise ValueError(f"there is no [kind.{row['kind']}]")
            file = re.compile(row["file"]) if "file" in row else None
            yield _Rule(str(row["kind"]), re.compile(row[column]), file)
        except (KeyError, TypeError, ValueError, re.error) as problem:
            wrong.append(f"row [{part}.{name}] of pauses.toml cannot be used ({problem}): correct it")
