"""What detectors inside the job report of stragglers, as the agent of rank 0's node reads its log: the newest reports.

They are judged by the rule for files: three reports and more. They are one node's word about ranks of others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from analyzers.diagnosis.slow.straggler_claims import named_in
from analyzers.diagnosis.slow.straggler_table import joined, tabulate
from analyzers.model.finding import Finding, Suspect
from analyzers.model.slow_look import ReportedRanks, StragglerLook
from collectors.records import StragglerReports

MOST_BYTES = 1 << 18  # of one job: hundreds of usual reports
MOST_PARTS = 512
FIRST_RANK = 0  # prints the reports


class ReportedStragglers:
    """The newest reports of one attempt in one log, and what they come to."""

    def __init__(self) -> None:
        self._parts: deque[StragglerReports] = deque()  # as an agent has read them, each some reports
        self._stated: StragglerReports | None = None  # the newest that states the job's sizes, without its reports
        self._bytes = 0
        self._look: StragglerLook | None = None
        self._is_judged = True

    def take(self, record: StragglerReports, sender: str, nodes: Mapping[int, str]) -> None:
        """Take what the node of rank 0 has read of the log, and no other node's word. ``nodes``: of each rank."""
        if nodes.get(FIRST_RANK) != sender or _bytes(record) > MOST_BYTES:
            return
        if self._parts and self._parts[-1].source != record.source:  # the job writes into another log now
            self._parts.clear()
            self._bytes = 0
        if record.sizes:
            empty = dict.fromkeys(record.columns, b"")
            self._stated = msgspec.structs.replace(record, reports=0, count=0, columns=empty)
        self._parts.append(record)
        self._bytes += _bytes(record)
        while len(self._parts) > MOST_PARTS or self._bytes > MOST_BYTES:
            self._bytes -= _bytes(self._parts.popleft())
        self._is_judged = False

    def look(self, nodes: Mapping[int, str]) -> StragglerLook | None:
        """Return what they come to, None where no rank is slow in the newest. ``nodes``: of each rank."""
        if not self._is_judged:
            parts = ([] if self._stated is None else [self._stated]) + list(self._parts)
            tables = [table for part in parts if (table := tabulate(part)) is not None]
            # Where its ranks run a log may state as it likes.
            found = next(named_in(replace(joined(tables), nodes={}), nodes), None) if tables else None
            self._look = None if found is None else _look(found, nodes)
            self._is_judged = True
        return self._look

    def document(self, nodes: Mapping[int, str]) -> list[dict[str, Any]]:
        """Return what they come to, as plain values."""
        look = self.look(nodes)
        return [] if look is None else [msgspec.to_builtins(look)]


def _bytes(record: StragglerReports) -> int:
    return sum(map(len, record.columns.values())) + sum(map(len, record.strings))


def _look(found: Finding, nodes: Mapping[int, str]) -> StragglerLook:
    shown = tuple(dict.fromkeys(one.text for one in found.evidence))
    named = tuple(_named(one, nodes) for one in found.suspects)
    return StragglerLook(fault_class=found.fault_class, shown=shown, named=named, missing=found.missing)


def _named(suspect: Suspect, nodes: Mapping[int, str]) -> ReportedRanks:
    own = suspect.node is not None and suspect.node == nodes.get(FIRST_RANK)
    return ReportedRanks(ranks=suspect.ranks, why=suspect.why, strength=suspect.strength, node=suspect.node, own=own)
