"""Those that diagnosis is compared with: they see the same faults as fast as it does, and name no machine."""

from __future__ import annotations

from tests.support.ettr.looks import look
from tests.support.ettr.node_faults import Fault
from tests.support.ettr.run import Run
from tests.support.ettr.simulated_nodes import Wait

SETTLED_SECONDS = 1_800.0


class Hope:
    """Restart on the same nodes, and look by hand when that has not helped for the third time."""

    def __init__(self) -> None:
        self.tries = 0

    def recover(self, run: Run, fault: Fault, ran_seconds: float) -> Wait:
        """Restart, or look."""
        yield from run.wait(look(fault, run.fleet, run.parameters, run.lots).seconds + run.parameters.schedule_seconds)
        self.tries = 1 if ran_seconds > SETTLED_SECONDS else self.tries + 1
        if self.tries > run.parameters.tries:
            self.tries = 0
            yield from run.found_by_hand(fault)
            return
        yield from self.once(run, fault)

    def once(self, run: Run, fault: Fault) -> Wait:
        """Do what this strategy does before anybody looks."""
        yield from run.restart()


class CheckAll(Hope):
    """Stop, check every machine, and restart without those that fail: no localization at all."""

    def once(self, run: Run, fault: Fault) -> Wait:
        """Check all of them; a check misses some, and blames some."""
        yield from run.wait(run.parameters.probe_seconds)
        faulty = sorted({one.node for one in run.latent if one.node is not None and one.lasting})
        out = [node for node in faulty if run.lots.random() < run.parameters.probe_recall]
        if run.lots.random() < run.parameters.probe_false:
            out.append(run.lots.choice(run.fleet.job))
        yield from run.restart(tuple(dict.fromkeys(out)))
