"""From a verdict to the action of least expected loss: evict nodes, or restart (docs/plan.md). The past is in ``ladder``."""

from analyzers.remediation.plan.choice import Plan, choose_plan
from analyzers.remediation.plan.costs import Costs
from analyzers.remediation.plan.loss import Weighed
from analyzers.remediation.plan.situation import Situation, find_lost_shards
from analyzers.remediation.role_restart import PastRestart, RoleFacts, RoleInstance, RoleRestart

__all__ = [
    "Costs", "PastRestart", "Plan", "RoleFacts", "RoleInstance", "RoleRestart", "Situation", "Weighed", "choose_plan",
    "find_lost_shards",
]  # fmt: skip
