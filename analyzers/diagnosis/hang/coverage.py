"""What the dumps at hand leave open: ranks that left none, and members of a group that no dump lists.

Fewer dumps must never make a bolder claim (docs/decisions/0007): whatever rests on a rank having done nothing, or on a group
having no further member, is claimed only as far as the dumps can show it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from analyzers.diagnosis.hang.waits import Operation, Situation
from analyzers.model.ranges import ranges
from analyzers.model.topology import Topology

MOST_ABSENT_SHARE = 1 / 3


@dataclass(frozen=True)
class DumpCoverage:
    """The dumps of a window, held against the ranks and the groups of its job."""

    situation: Situation
    topology: Topology

    @cached_property
    def absent(self) -> frozenset[int]:
        """Return the ranks without a whole dump."""
        return frozenset(self.topology.ranks) - self.situation.progress.dumped

    def mostly_absent(self, ranks: Collection[int]) -> bool:
        """Return whether at least half of these left no dump: then a missing dump is the rule, and no clue."""
        return 2 * len(self.absent.intersection(ranks)) >= len(ranks)

    def too_few_to_blame(self, awaited: Collection[int]) -> bool:
        """Return whether ranks that others wait for may not be named for having left no dump: too many left none."""
        return self.mostly_absent(self.topology.ranks) or len(awaited) > MOST_ABSENT_SHARE * len(self.topology.ranks)

    def may_have_more_members(self, operation: Operation) -> bool:
        """Return whether a group that no dump lists may hold a rank whose dump is not here."""
        if not self.situation.inferred[operation.group]:
            return False
        group = self.situation.progress.table.groups[operation.group]
        siblings = [g for g in self.topology.groups if g.description == group.description and g.inferred]
        placed = {rank for sibling in siblings for rank in sibling.members if group.description}
        elsewhere = placed - set(self.situation.members[operation.group])
        return not self.topology.sized or bool(self.absent - elsewhere)

    def wanted(self, ranks: Collection[int]) -> str:
        """Name the ranks whose dumps would decide."""
        named = f"rank{'s' if len(ranks) > 1 else ''} {ranges(ranks)}"
        return (
            f"the flight-recorder dump{'s' if len(ranks) > 1 else ''} of {named} would decide: too few ranks left one"
        )
