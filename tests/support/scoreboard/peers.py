"""Naive rules and peers' methods on the records that Faulthound judged: whom each would evict, as a verdict."""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.model.topology import Topology
from analyzers.model.verdict import Action, Coverage, Culprit, Verdict
from analyzers.model.window import Window
from collectors.records import FlightRecorderDump, OpTimings
from tests.support import baselines, slow_cases
from tests.support.op_traces import of_records

WORDS = {
    "longest_wait": "the rank that has waited longest",
    "flag_all": "every rank with something unfinished",
    "smallest_group": "the smallest group that waits",
    "lowest_number": "who is furthest behind in its group (sequence numbers)",
    "minority": "who runs another operation than most",
    "missing_dump": "who left no dump",
    "score below 0.7 of the fastest": "NVRx's score: below 0.7 of the fastest",
    "twice the median": "DLRover's: more than 2 × the median",
    "longest collective": "who is longest in collectives",
    "largest distance from the others": "Minder's distance from all others, without its autoencoder",
}
"""A rule's name → the words of the table."""


def answers(window: Window, topology: Topology) -> Iterator[tuple[str, Verdict]]:
    """Yield each rule that can read these records, and its answer."""
    dumps = list(window.records_of(FlightRecorderDump))
    if dumps:
        for name, rule in baselines.CONTROLS.items():
            yield name, as_verdict(rule(dumps), topology)
    operations = list(window.records_of(OpTimings))
    if operations:
        table = of_records(operations)
        for control in slow_cases.CONTROLS:
            yield control.name, as_verdict(frozenset(control.evicts(table)), topology)


def as_verdict(ranks: frozenset[int], topology: Topology) -> Verdict:
    """Return the verdict that evicts these ranks, their machines where they are known; without any the job is healthy."""
    if not ranks:
        return Verdict(symptom="healthy", cause="none", abstained=False)
    nodes = {topology.nodes[rank] for rank in ranks if rank in topology.nodes}
    lone = tuple(sorted(rank for rank in ranks if rank not in topology.nodes))
    return Verdict(
        symptom="unknown",
        cause="machine",
        abstained=False,
        culprits=tuple(Culprit(root="r1", kind="rank", id=str(rank), ranks=(rank,)) for rank in sorted(ranks)),
        action=Action(kind="evict", nodes=tuple(sorted(nodes)), ranks=lone),
        coverage=Coverage(ranks_expected=len(topology.ranks)),
    )
