"""Which nodes' agents sent the records that a finding rests on: two kinds of evidence that one agent sent are not independent.

A record with a time of receipt is its sender's. Files have no senders, and what cannot be traced to a record has none either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

from analyzers.model.finding import Evidence, Finding
from analyzers.model.topology import Topology
from analyzers.model.window import Window

CONFIRMED = frozenset(
    {"ras"}
)  # it accuses by the word of two nodes, or of the accused one, and shows one report of them
_Senders = dict[tuple[str, float | None], set[str]]


def with_senders(findings: Iterable[Finding], window: Window, topology: Topology) -> Iterator[Finding]:
    """Yield the findings with their senders, as far as an analyzer has not stated them."""
    sent: _Senders = defaultdict(set)
    for record in window.records:
        if record.received_at is not None and record.node is not None:
            sent[record.source, record.at].add(record.node)
    dumped = frozenset(dump.node or "" for dump in window.dumps if dump.received_at is not None)
    for finding in findings:
        if finding.senders or not sent or not finding.suspects or finding.analyzer in CONFIRMED:
            yield finding
        elif finding.family == "waits":  # who waits for whom is found from all dumps at once
            yield replace(finding, senders=dumped if len(dumped) < 2 else frozenset())
        else:
            yield replace(finding, senders=_senders(finding, sent, topology))


def _senders(finding: Finding, sent: _Senders, topology: Topology) -> frozenset[str]:
    shown = [*finding.evidence, *(one for suspect in finding.suspects for one in suspect.evidence)]
    found = [sent.get((one.source, one.at)) or _host(one, topology) for one in shown]
    return frozenset().union(*found) if all(found) else frozenset()


def _host(evidence: Evidence, topology: Topology) -> set[str]:
    node = topology.nodes.get(evidence.rank) if evidence.rank is not None else None
    return {node} if node else set()


def one_voice(one: frozenset[str], other: frozenset[str], accused: Iterable[str]) -> bool:
    """Whether two pieces of evidence are all one agent's word, and that is not the agent of an accused node itself."""
    return bool(one and other) and len(one | other) == 1 and not (one & frozenset(accused))
