"""A rank's process is not seen any more, while its node reports the others.

A silent agent is no sign of a rank: the fleet judges it.
"""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.incidents.detectors import detector
from analyzers.incidents.job_views.job import JobView
from analyzers.model.incident import Symptom

SILENT_SECONDS = 60.0
LOOK_SECONDS = 10.0  # between an agent's readings: the process was missing at the first one after it was seen
MOST_NAMED = 64


@detector("rank_silent")
def detect(view: JobView, now: float) -> Iterator[Symptom]:
    """Yield a silence for ranks whose node was read a minute after they were last seen."""
    del now
    looked = {name: node.states_at - SILENT_SECONDS for name, node in view.nodes.items() if node.states_at is not None}
    silent = sorted(
        (process.seen_at + LOOK_SECONDS, rank)
        for rank, process in view.processes.by_rank.items()
        if process.seen_at is not None
        and process.seen_at < looked.get(process.node, 0.0)
        and rank not in view.ended
        and not view.is_placed(rank)
    )
    if not silent or view.went_on(silent[0][0]):
        return
    at, rank = silent[0]
    others = f", and {len(silent) - 1} more" if len(silent) > 1 else ""
    node = view.ranks[rank]
    yield Symptom(
        kind="silence",
        detector="rank_silent",
        at=at,
        text=f"the process of {view.name(rank)} on {node} was not seen for more than {SILENT_SECONDS:.0f} s{others}, "
        "and neither was its end",
        ranks=tuple(rank for _, rank in silent[:MOST_NAMED]),
        nodes=(node,),
    )
