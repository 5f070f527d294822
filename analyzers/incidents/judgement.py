"""A judgement from beginning to end: from the records of a cut to the verdict. The service and a replay call the same."""

from __future__ import annotations

from collections.abc import Callable

from analyzers.incidents.messages import Judge, Judged
from analyzers.knowledge import Knowledge
from analyzers.model.topology import infer
from analyzers.model.window import Window
from analyzers.verdict.judge import decide, findings, told


def judge_cut(asked: Judge, knowledge: Knowledge, running: Callable[[str], None] = lambda _name: None) -> Judged:
    """Judge the records of a cut; ``running`` is told the name of each analyzer before it runs.

    Analyzers that ``cut.unfinished`` names are left out, and the verdict says so.
    """
    window = Window.build(asked.records, asked.attempt, asked.cut.offsets, live=True)
    topology = infer(window)
    cut = asked.cut
    found = list(findings(window, topology, knowledge, cut.unfinished, running))
    verdict = decide(found, window, topology, knowledge, looks=cut.looks)
    return Judged(incident=asked.incident, cut=cut, verdict=verdict, claims=tuple(told(finding) for finding in found))
