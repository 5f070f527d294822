"""The faults, who has them in a scenario, and what a verdict must say of them."""

from __future__ import annotations

import random
import signal
from dataclasses import dataclass
from typing import Any, Literal

from tests.support.jobs.collect import RANKS_PER_NODE, Evidence, host_of

Topology = Literal["ddp", "pipeline", "numbers"]
RANKS: dict[Topology, int] = {"ddp": 4, "pipeline": 8, "numbers": 4}


@dataclass(frozen=True)
class Fault:
    """One kind of fault: what the job is asked to do, who starts it, and what is true afterwards."""

    reported: str  # the kind that the job's own code looks for
    symptom: str
    cause: str
    classes: tuple[str, ...] = ()  # the fault classes that describe it; empty: not judged
    launcher: Literal["ranks", "torchrun"] = "ranks"
    signal: int = 0
    culprits: int = 1  # 0: every rank
    names_ranks: bool = True  # whether exactly the culprits must be named


FAULTS: dict[str, Fault] = {
    "spin": Fault("spin", "hang", "machine", ("never_entered", "stuck_compute")),
    "data_loader": Fault("data_loader", "hang", "data", ("never_entered", "stuck_data_loader")),
    "gil": Fault("gil", "hang", "machine", ("never_entered", "stuck_gil", "no_stack")),
    "sigstop": Fault("signal", "hang", "machine", signal=signal.SIGSTOP),
    "sigkill": Fault("signal", "crash", "machine", launcher="torchrun", signal=signal.SIGKILL),
    "exception": Fault("exception", "crash", "code", launcher="torchrun"),
    "same_exception": Fault("exception", "crash", "code", launcher="torchrun", culprits=0, names_ranks=False),
    "wrong_collective": Fault("wrong_collective", "hang", "code", ("desync",)),
    "wrong_size": Fault("wrong_size", "hang", "code", ("desync",)),
    "opposite": Fault("opposite", "hang", "code", ("deadlock",), names_ranks=False),
    "two_culprits": Fault("spin", "hang", "machine", ("never_entered", "stuck_compute"), culprits=2),
    "healthy": Fault("signal", "healthy", "none", culprits=0, names_ranks=False),
}

NUMERIC: dict[str, Fault] = {  # data parallel, every rank printing its own loss, but in nan_hidden
    "nan_first": Fault("nan", "numeric", "unknown", ("not_a_number",)),
    "nan_all": Fault("nan", "numeric", "code", ("not_a_number",), culprits=0, names_ranks=False),
    "nan_hidden": Fault("nan", "numeric", "unknown", names_ranks=False),  # rank 0 prints the mean
    "spike": Fault("spike", "numeric", "unknown", culprits=0, names_ranks=False),
    "overflow": Fault("overflow", "healthy", "none", culprits=0, names_ranks=False),
    "warm_up": Fault("signal", "healthy", "none", culprits=0, names_ranks=False),
}
"""What goes wrong with the numbers of a job that runs on; a matrix of its own, ``tests.acceptance.numeric_jobs``."""
_EVERY = FAULTS | NUMERIC


@dataclass(frozen=True)
class Scenario:
    """One run: a fault in a topology, with its culprits and the step at which it strikes."""

    fault: str
    topology: Topology
    seed: int
    culprits: tuple[int, ...]
    step: int  # 0: when the driver says so
    ranks_per_node: int = RANKS_PER_NODE
    first_node: int = 0

    @classmethod
    def draw(cls, fault: str, topology: Topology, seed: int) -> Scenario:
        """Choose culprits and step by seed: consecutive seeds go through the ranks."""
        ranks = RANKS[topology]
        # Late enough that the ring of 100 entries no longer holds the first step, which connects and takes seconds.
        step = random.Random(f"{fault} {topology} {seed}").randrange(26, 40)
        first = (seed * 3 + sorted(FAULTS if fault in FAULTS else NUMERIC).index(fault)) % ranks
        # The second culprit is in the other replica and another stage: in its own it would wait for the first.
        second = (first + (3 if topology == "pipeline" else 1 + seed % 3)) % ranks
        chosen = {0: tuple(range(ranks)), 1: (first,), 2: tuple(sorted((first, second)))}
        return cls(fault, topology, seed, chosen[_EVERY[fault].culprits], step)

    @property
    def truth(self) -> Fault:
        """Return the fault, and what a verdict must say of it."""
        return _EVERY[self.fault]

    @property
    def key(self) -> str:
        """Return a name for folders."""
        return f"{self.fault}-{self.topology}-{self.seed}"

    @property
    def name(self) -> str:
        """Return a name for messages."""
        return f"{self.fault} in {self.topology}, culprits {list(self.culprits)}, seed {self.seed}"

    @property
    def ranks(self) -> int:
        """Return the size of the world."""
        return RANKS[self.topology]

    def host_of(self, rank: int) -> str:
        """Return the host that a rank is pretended to run on."""
        return host_of(rank, self.ranks_per_node, self.first_node)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the pretended hosts."""
        return tuple(dict.fromkeys(map(self.host_of, range(self.ranks))))

    def planned(self) -> list[dict[str, Any]]:
        """Return the faults as the job's own code reads them."""
        reported = self.truth.reported
        return [{"kind": reported, "rank": rank, "step": self.step, "variant": self.seed} for rank in self.culprits]

    def evidence(self) -> Evidence:
        """Return the forms of the files, varied by seed; a pipe's answer needs the interpreter, so never with gil."""
        stacks: tuple[Literal["py-spy", "py-spy text", "faulthandler"], ...] = ("py-spy", "faulthandler", "py-spy text")
        pickled = self.seed % 4 == 3 and self.fault != "gil"
        return Evidence("pickle" if pickled else "json", stacks[self.seed % 3])

    def launcher_options(self) -> list[str]:
        """Return torchrun's options, varied by seed: lines interleaved as they come, or each with its rank's prefix."""
        return ["--tee", "3"] if self.seed % 3 == 2 else []
