"""One job over many days: it trains until something strikes, somebody answers, and it trains on."""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, Protocol

import simpy

from analyzers.remediation.plan import Costs
from tests.support.ettr.mixes import Mix
from tests.support.ettr.node_faults import Fault, draw
from tests.support.ettr.parameters import Parameters, Restarts, checkpoint_seconds, restart_seconds
from tests.support.ettr.simulated_nodes import Fleet, Wait

DAY = 86_400.0


@dataclass
class Tally:
    """What a run came to."""

    productive_seconds: float = 0.0
    training_seconds: float = 0.0  # with what was lost again, and the stalls of checkpoints
    incidents: int = 0  # strikes, those of what was not cured as well
    troubles: int = 0  # faults
    faulty_out: int = 0
    healthy_out: int = 0
    by_hand: int = 0
    most_out: int = 0  # machines, at once
    refused: dict[str, int] = field(default_factory=dict)  # hindrances at the time of acting
    did: dict[str, int] = field(default_factory=dict)


def count(counts: dict[str, int], what: str) -> None:
    """Count one more."""
    counts[what] = counts.get(what, 0) + 1


class Strategy(Protocol):
    """Who answers. ``recover`` ends when the job is to train again."""

    def recover(self, run: Run, fault: Fault, ran_seconds: float) -> Wait:
        """Answer a strike, after so long a run."""
        ...


class Run:
    """A job, its machines, its faults, and the time."""

    def __init__(
        self, mix: Mix, parameters: Parameters, restarts: Restarts, costs: Costs, strategy: Strategy, seed: int
    ) -> None:
        self.mix, self.parameters, self.restarts, self.costs, self.strategy = mix, parameters, restarts, costs, strategy
        self.seed = f"{mix.name} {seed}"  # the same faults for every strategy, after the same hours of training
        self.lots = random.Random(self.seed)
        self.env = simpy.Environment()
        self.fleet = Fleet(self.env, mix, parameters.pool_nodes)
        self.tally = Tally()
        self.latent: list[Fault] = []  # struck, and not cured
        self.fresh_in, self.fresh_lots = 0.0, random.Random()
        self._draw_next()
        self.every = checkpoint_seconds(parameters.checkpoint_stall_seconds, mix.interruptions_a_day)
        self.checkpoint_age = 0.0
        self.saving = False
        self.attempt = 1
        self.back = lambda _node: 0.0

    def play(self, days: float) -> Tally:
        """Let the job run for so many days."""
        self.env.process(self._life(days * DAY))
        self.env.run(until=days * DAY)
        return self.tally

    def _life(self, until: float) -> Generator[simpy.Event, Any, None]:
        while True:
            began = self.env.now
            fault, ran = self._next()
            if began + ran >= until:
                self._trained(until - began)
                return
            yield self.env.timeout(ran)
            self._trained(ran)
            self.tally.incidents += 1
            if fault not in self.latent:
                self.latent.append(fault)
            yield from self.strategy.recover(self, fault, ran)

    def _next(self) -> tuple[Fault, float]:
        """Return what strikes next, and after how long: a new fault, or one that was not cured."""
        again = [(self.lots.expovariate(1.0 / self.parameters.recurs_seconds), one) for one in self.latent]
        soonest = min(again, key=lambda one: one[0], default=None)
        if soonest is not None and soonest[0] < self.fresh_in:
            self.fresh_in -= soonest[0]
            return soonest[1], soonest[0]
        ran = self.fresh_in
        fault = draw(self.tally.troubles, self.mix, self.fleet.job, self.costs, self.parameters, self.fresh_lots)
        self.tally.troubles += 1
        self._draw_next()
        return fault, ran

    def _draw_next(self) -> None:
        """Draw after how long a training the next new fault strikes."""
        self.fresh_lots = random.Random(f"{self.seed} {self.tally.troubles}")
        self.fresh_in = self.fresh_lots.expovariate(self.mix.interruptions_a_day / DAY)

    def _trained(self, ran: float) -> None:
        """Count what is kept: whole intervals between checkpoints, without the stalls."""
        stall = self.parameters.checkpoint_stall_seconds
        whole = int(ran // self.every)
        self.tally.training_seconds += ran
        self.tally.productive_seconds += whole * (self.every - stall)
        self.checkpoint_age = ran - whole * self.every
        self.saving = self.checkpoint_age > self.every - stall

    # --- what strategies do

    def wait(self, seconds: float) -> Wait:
        """Let time pass."""
        yield self.env.timeout(seconds)

    def restart(self, out: tuple[str, ...] = (), *, rolled_back: bool = False) -> Wait:
        """Restart without these nodes; a node that is dead is left out by the scheduler itself."""
        dead = {one.node for one in self.latent if one.kind.shows == "dead" and one.node in self.fleet.job}
        wanted = [*out, *sorted(node for node in dead if node is not None and node not in out)]
        warm = len(self.fleet.warm)
        guilty = {one.node for one in self.latent if one.lasting}
        gone = self.fleet.swap(wanted)
        for node in gone:
            faulty = node in guilty or node in dead
            if node in out:
                self.tally.faulty_out += faulty
                self.tally.healthy_out += not faulty
            hours = self.parameters.repair_hours if faulty else self.parameters.innocent_hours
            self.env.process(self.fleet.repair(node, hours, self.back))
        self.latent = [one for one in self.latent if self._lasts(one, gone, rolled_back=rolled_back)]
        self.attempt += 1
        yield self.env.timeout(restart_seconds(self.restarts, self.mix.nodes, len(gone), warm))

    def _lasts(self, fault: Fault, gone: list[str], *, rolled_back: bool) -> bool:
        cured = fault.kind.cause == "code" and rolled_back
        return fault.lasting and not cured and fault.node not in gone

    def found_by_hand(self, fault: Fault) -> Wait:
        """Let people look for as long as they need, and restart without what they find."""
        self.tally.by_hand += 1
        by_hand = self.parameters.by_hand_seconds
        yield from self.wait(by_hand.get(fault.kind.shows, by_hand[""]))
        out = (fault.node,) if fault.node is not None and fault.lasting else ()
        yield from self.restart(out, rolled_back=fault.kind.cause == "code")
