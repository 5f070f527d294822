"""A published verdict judged again: the records of its cut, selected as the running engine selected them.

A bundle of an incident holds the batches that its verdicts were judged from. They are taken up in the log's order, and at
each cut the same judgement is made that was made then: by the same program with the same knowledge, the same bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from analyzers.incidents.evidence import Evidence, select_records
from analyzers.incidents.judgement import judge_cut
from analyzers.incidents.messages import Judge, Judged, Received
from analyzers.knowledge import Knowledge
from analyzers.model.incident import Cut
from collectors.records import Record


@dataclass(frozen=True, slots=True)
class ReplayCase:
    """Whose verdicts are judged again. ``nodes``: in the order in which they joined the incident."""

    incident: str
    job: str | None
    attempt: int | None
    nodes: tuple[str, ...]
    context: tuple[Record, ...] = ()


def rejudge_cuts(
    case: ReplayCase, cuts: Iterable[Cut], batches: Iterable[Received], knowledge: Knowledge
) -> Iterator[Judged]:
    """Yield each cut's judgement, the earliest cut first; the batches come in the log's order and are taken up once."""
    waiting = deque(sorted(cuts, key=lambda cut: (cut.through, cut.at)))
    kept: dict[str, Evidence] = {}
    newest = 0
    for batch in batches:
        while waiting and batch.sequence > waiting[0].through:
            yield _judged(case, waiting.popleft(), kept, knowledge)
        if not waiting:
            return
        if batch.sequence > newest:  # a bundle that was put together from two may hold one twice
            kept.setdefault(batch.node, Evidence()).add(batch.sequence, batch.records)
            newest = batch.sequence
    for cut in waiting:
        yield _judged(case, cut, kept, knowledge)


def _judged(case: ReplayCase, cut: Cut, kept: dict[str, Evidence], knowledge: Knowledge) -> Judged:
    records = select_records(kept, case.nodes[: cut.nodes], case.context, cut, case.job, case.attempt)
    return judge_cut(Judge(incident=case.incident, cut=cut, records=records, attempt=case.attempt), knowledge)
