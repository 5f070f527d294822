"""One judgement, from the records of a cut to the verdict, and what remains of it when analyzers fail.

The service and a replay both call ``judge_cut``. An analyzer that crashes or does not end is left out of the next try.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from analyzers.diagnosis import every_analyzer
from analyzers.incidents.messages import Judge, Judged
from analyzers.knowledge import Knowledge
from analyzers.model.fault_classes import ANALYZER_FAILED
from analyzers.model.topology import infer
from analyzers.model.verdict import Missing, Verdict
from analyzers.model.window import Window
from analyzers.verdict.build import VERSION
from analyzers.verdict.explain import claim_to_json
from analyzers.verdict.judge import decide, findings


def judge_cut(asked: Judge, knowledge: Knowledge, running: Callable[[str], None] = lambda _name: None) -> Judged:
    """Judge the records of a cut; ``running`` gets the name of each analyzer before it runs.

    Analyzers that ``cut.unfinished`` names are left out, and the verdict states that.
    """
    window = Window.build(asked.records, asked.attempt, asked.cut.offsets, live=True)
    topology = infer(window)
    cut = asked.cut
    found = list(findings(window, topology, knowledge, cut.unfinished, running))
    verdict = decide(found, window, topology, knowledge, rounds=cut.looks)
    return Judged(
        incident=asked.incident, cut=cut, verdict=verdict, claims=tuple(claim_to_json(finding) for finding in found)
    )


def left_out(already: Iterable[str], running: str, *, everything: bool) -> tuple[str, ...]:
    """Return the analyzers to leave out of the next try: the one that ran, or ``everything`` that had not ended."""
    names = {*already, running} if running else {*already}
    if everything:  # analyzers run in the order of their names
        names |= {name for name in every_analyzer() if name >= running}
    return tuple(sorted(names))


def failed_analyzers(judged: Judged) -> Iterator[tuple[str, str]]:
    """Yield (analyzer, why) for those that ended with an exception: the judgement holds without them."""
    for claim in judged.claims:
        if claim.get("fault_class") == ANALYZER_FAILED and claim.get("analyzer") not in judged.cut.unfinished:
            yield str(claim["analyzer"]), "; ".join(map(str, claim.get("missing", ())))


def give_up(asked: Judge, knowledge: Knowledge, why: str) -> Judged:
    """Return the judgement of a cut that cannot be judged: it abstains and states why."""
    cut = replace(asked.cut, unfinished=tuple(every_analyzer()))
    missing = Missing(what=f"this could not be judged: the judgement failed ({why}); the log of the service says more")
    verdict = Verdict(
        symptom="unknown", cause="unknown", abstained=True, version=VERSION, knowledge=knowledge.hash,
        attempt=asked.attempt, missing=(missing,),
    )  # fmt: skip
    return Judged(incident=asked.incident, cut=cut, verdict=verdict)
