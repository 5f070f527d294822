"""One fault as it truly is: what no strategy is shown. A strategy sees only what the job shows."""

from __future__ import annotations

import random
from dataclasses import dataclass

from analyzers.remediation.plan import Costs
from tests.support.ettr.mixes import Kind, Mix
from tests.support.ettr.parameters import Parameters

CLASSES = {
    "event": "off_bus", "hang": "never_entered", "exception": "exception_one_rank", "same_exception": "same_exception",
    "dead": "silent", "numeric": "nan", "slow": "slow", "storage": "storage", "killed": "process_killed",
}  # fmt: skip
"""How it shows → the fault class of a verdict, by which plan.toml says what a plain restart cures."""


@dataclass(frozen=True, slots=True)
class Fault:
    """``node``: that has it, None where no machine has. ``lasting``: a restart on the same nodes does not cure it."""

    number: int
    kind: Kind
    node: str | None
    lasting: bool

    @property
    def of_a_machine(self) -> bool:
        """Whether taking its node out cures it."""
        return self.node is not None

    @property
    def fault_class(self) -> str:
        """The class by which a verdict names what shows."""
        return CLASSES[self.kind.shows]


def draw(number: int, mix: Mix, nodes: list[str], costs: Costs, parameters: Parameters, lots: random.Random) -> Fault:
    """Draw the next fault of a mix, on one of the job's nodes where it is of a machine."""
    kind = lots.choices(mix.kinds, weights=[kind.count for kind in mix.kinds])[0]
    if kind.cause == "outside":
        return Fault(number, kind, None, lasting=False)
    if kind.cause == "network":
        lasts = lots.random() < parameters.network_lasts
        return Fault(number, kind, lots.choice(nodes) if lasts else None, lasting=lasts)
    lasting = lots.random() >= costs.cured_by_restart(CLASSES[kind.shows])
    return Fault(number, kind, lots.choice(nodes) if kind.cause == "machine" else None, lasting=lasting)
