"""A verdict in its situation: all that options are weighed by."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from analyzers.model.verdict import Verdict
from analyzers.remediation.plan.costs import Costs
from analyzers.remediation.plan.posterior import RootPosterior, guilt_by_node, root_posteriors
from analyzers.remediation.plan.situation import Situation
from analyzers.remediation.role_restart import RoleOption, role_options

RESTARTS = frozenset({"restart_role", "reattempt", "restart_job", "evict", "reboot_node", "reset_gpu"})
"""What may be done to the one role that is at fault in place of the whole job."""
GOES_ON = frozenset({"slow", "hardware", "numeric"})  # symptoms of a job that still takes steps


class PlanCase(msgspec.Struct, frozen=True, kw_only=True):
    """``named``: the nodes that the verdict's action would touch, in its order."""

    doubts: tuple[RootPosterior, ...]
    guilt: dict[str, float]  # suspected node → that it is guilty of any root, its past included
    verdict_guilt: dict[str, float]  # the same by the verdict alone
    situation: Situation
    costs: Costs
    gpus: int
    goes_on: bool
    kind: str  # the harshest that the plan may be
    named: tuple[str, ...]
    restarts: tuple[RoleOption, ...] = ()  # of the role that is named

    @classmethod
    def build(cls, verdict: Verdict, situation: Situation, costs: Costs, kind: str) -> PlanCase:
        """Combine a verdict, a situation and the costs; ``kind``: the harshest that the plan may be."""
        doubts = root_posteriors(verdict, situation.remembered)
        return cls(
            doubts=doubts,
            guilt=guilt_by_node(doubts),
            verdict_guilt=guilt_by_node(root_posteriors(verdict)),
            situation=situation,
            costs=costs,
            gpus=situation.gpus(least_ranks=verdict.coverage.ranks_expected or 0),
            goes_on=verdict.symptom in GOES_ON,
            kind=kind,
            named=tuple(dict.fromkeys(verdict.action.nodes)),
            restarts=tuple(role_options(verdict, situation.instances)) if kind in RESTARTS else (),
        )

    def sure(self, nodes: Iterable[str]) -> float:
        """Return the least probability of guilt among these nodes: policies decide by it, and outcomes are learned from it.

        Their past may lower it and never raise it: so no policy becomes bolder by it, and their record does not count it twice.
        """
        return round(min(min(self.guilt.get(node, 0.0), self.verdict_guilt.get(node, 0.0)) for node in nodes), 4)
