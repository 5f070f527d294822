"""Who is compared, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from analyzers.knowledge import Knowledge
from analyzers.remediation.plan import Costs
from analyzers.remediation.types import Limits, Policy, Rule
from service.packaged_knowledge import load
from tests.support.ettr.controls import CheckAll, Hope
from tests.support.ettr.mixes import MIXES
from tests.support.ettr.ours import AUTOMATIC, Ours, WholeGroup
from tests.support.ettr.parameters import Restarts, measured
from tests.support.ettr.run import Run, Strategy, Tally

# What a group control needs: the product's own bounds would forbid most of it.
UNBOUNDED = Policy(
    rules=(Rule(name="one node", mode="automatic", kind="evict", most_nodes=64), *AUTOMATIC.rules[1:]),
    limits=Limits(evictions_an_hour=1_000_000, breaker_share=1.0, breaker_least_nodes=1_000_000),
)


@dataclass(frozen=True)
class Compared:
    """A strategy and what it stands for."""

    make: Callable[[Knowledge], Strategy]
    means: str


STRATEGIES = {
    "ours": Compared(
        Ours, "verdict, plan and ladder; one node by itself under the default bounds, a person for the rest"
    ),
    "ours_proposed": Compared(lambda known: Ours(known, policy=Policy()), "the same, and a person approves everything"),
    "group": Compared(
        lambda known: WholeGroup(known, policy=UNBOUNDED),
        "the same verdicts, and the whole parallel group of 8 machines leaves; without budget and breaker",
    ),
    "hope": Compared(
        lambda _known: Hope(), "restart on the same nodes; people look when three restarts have not helped"
    ),
    "check_all": Compared(
        lambda _known: CheckAll(), "no localization: every machine is checked at every stop, people look after three"
    ),
}


def settle(mix: str, restarts: Restarts | str, strategy: str, seed: int, days: float) -> Tally:
    """Play one job under one strategy, and return what it came to."""
    known = load()
    run = Run(
        MIXES[mix], measured(), "standbys" if restarts == "standbys" else "requeue", Costs.from_knowledge(known),
        STRATEGIES[strategy].make(known), seed,
    )  # fmt: skip
    return replace(run.play(days), most_out=run.fleet.most_out)
