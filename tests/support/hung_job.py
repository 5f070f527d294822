"""A job whose dumps show one class of hang."""

from __future__ import annotations

from analyzers.diagnosis.hang.hang import analyze
from analyzers.knowledge import Knowledge
from analyzers.model.finding import Finding
from analyzers.model.topology import infer
from analyzers.model.window import Window
from collectors.records import FlightRecorderDump, Group, Record
from tests.support.hand_made import SCHEDULED, START_NS, Entry, call, calls, dump, group

WORLD = (group("0", 0, 1, 2, 3, description="default_pg"),)
START_S = START_NS / 1e9


def found(*records: Record) -> list[Finding]:
    """What the analyzer claims about these records."""
    window = Window.build(records)
    return list(analyze(window, infer(window), Knowledge()))


def only(*records: Record) -> Finding:
    """The single claim."""
    (finding,) = found(*records)
    return finding


def suspects(finding: Finding) -> tuple[int, ...]:
    """All ranks that a claim points at."""
    return tuple(rank for suspect in finding.suspects for rank in suspect.ranks)


def job(*entries: tuple[Entry, ...], groups: tuple[Group, ...] = WORLD, **more: object) -> list[FlightRecorderDump]:
    """One dump a rank, in order of rank."""
    return [dump(rank, lines, groups, **more) for rank, lines in enumerate(entries)]  # type: ignore[arg-type]


def absent_rank(state: int = SCHEDULED) -> list[FlightRecorderDump]:
    """Ranks 0, 1 and 3 wait in collective 4; rank 2 ended 3 and launched nothing since."""
    waits = (*calls(1, 2, 3), call(4, state))
    return job(waits, waits, calls(1, 2, 3), waits)
