"""A judgement from beginning to end: from the records of a cut to the verdict. The service and a replay call the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from analyzers.engine.judging import decide, every_analyzer, failed, told
from analyzers.finding import Finding
from analyzers.incident import Judge, Judged
from analyzers.knowledge import Knowledge
from analyzers.topology import Topology, infer
from analyzers.window import Window

ENDED = "it had not ended at the deadline"


def conclude(asked: Judge, knowledge: Knowledge, running: Callable[[str], None] = lambda _name: None) -> Judged:
    """Judge the records of a cut; ``running`` is told the name of each analyzer before it runs.

    Analyzers that ``cut.unfinished`` names are left out, and the verdict says so.
    """
    window = Window.build(asked.records, asked.attempt, asked.cut.offsets, live=True)
    topology = infer(window)
    found = list(_findings(asked, window, topology, knowledge, running))
    cut = asked.cut
    verdict = decide(found, window, topology, knowledge, looks=cut.looks)
    return Judged(incident=asked.incident, cut=cut, verdict=verdict, claims=tuple(told(finding) for finding in found))


def _findings(
    asked: Judge, window: Window, topology: Topology, knowledge: Knowledge, running: Callable[[str], None]
) -> Iterator[Finding]:
    for name, analyze in every_analyzer().items():
        if name in asked.cut.unfinished:
            yield failed(name, ENDED)
            continue
        running(name)
        try:
            yield from list(analyze(window, topology, knowledge))
        except Exception as failure:  # noqa: BLE001 the one catch-all of the engine: the others' claims must stand
            yield failed(name, f"{type(failure).__name__}: {failure}")
