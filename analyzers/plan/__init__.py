"""From a verdict to what is worth doing: the set to take out, or the restart, of least expected loss (docs/plan.md)."""

from analyzers.plan.choosing import Plan, choose
from analyzers.plan.costs import Costs
from analyzers.plan.loss import Weighed
from analyzers.plan.situation import Situation
from analyzers.plan.survivability import lost_shards

__all__ = ["Costs", "Plan", "Situation", "Weighed", "choose", "lost_shards"]
