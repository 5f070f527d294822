"""What a healthy job does: the length of its steps, and what recurs between them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal

Law = Literal["steady", "jitter", "lognormal", "bursts"]
ReportedBy = Literal["log", "logs", "probe", "traffic"]


@dataclass(frozen=True, slots=True)
class Habits:
    """What a job does without faults. ``…_every`` counts steps, 0: never."""

    step_seconds: float = 1.0  # the median
    law: Law = "jitter"
    checkpoint_every: int = 500
    checkpoint_seconds: float = 20.0
    saved_by_all: bool = False  # every rank writes its shard; otherwise rank 0 writes and the others wait
    evaluation_every: int = 1000
    evaluation_seconds: float = 60.0
    evaluated_by_all: bool = True
    collection_every: int = 0  # garbage collection of one rank
    collection_seconds: float = 1.5
    start_seconds: float = 25.0  # imports and rendezvous
    first_step_seconds: float = 8.0
    reported_by: ReportedBy = "log"  # the last rank's log, every rank's log, the probe, or only traffic counters
    log_every: int = 1  # steps between two lines of the log
    lines_at_once: int = 1  # of the log: Python buffers what it prints into a file, 8 kB at a time
    wait: Literal["gradient", "all_reduce", "item"] = "gradient"  # where ranks wait for the others
    captured: bool = False  # CUDA graphs: recorder and ring see nothing of the steps

    def step(self, random: Random) -> float:
        """Draw the length of one step."""
        if self.law == "steady":
            return self.step_seconds
        if self.law == "jitter":
            return self.step_seconds * random.uniform(0.9, 1.1)
        if self.law == "lognormal":
            return self.step_seconds * random.lognormvariate(0.0, 0.25)
        return self.step_seconds * (1.0 if random.random() < 0.98 else random.uniform(2.0, 4.0))


def draw(random: Random) -> Habits:
    """Draw habits: steps of 0.2 to 60 s, the rest within what is usual."""
    step_seconds = round(10 ** random.uniform(-0.7, 1.78), 2)
    # A checkpoint every 5 to 60 minutes, whatever the step takes.
    every = max(10, round(random.uniform(300, 3600) / step_seconds / 10) * 10)
    reported_by: ReportedBy = random.choice(("log", "log", "log", "logs", "probe", "traffic"))
    return Habits(
        step_seconds=step_seconds,
        law=random.choice(("steady", "jitter", "lognormal", "bursts")),
        checkpoint_every=every,
        checkpoint_seconds=random.choice((2.0, 15.0, 40.0, 90.0, 240.0)),
        saved_by_all=random.random() < 0.5,
        evaluation_every=every * random.choice((0, 1, 2, 3)),
        evaluation_seconds=random.choice((20.0, 60.0, 180.0, 600.0)),
        evaluated_by_all=random.random() < 0.7,
        collection_every=random.choice((0, 50, 200, 1000)),
        start_seconds=random.uniform(10, 90),
        first_step_seconds=step_seconds + random.choice((2.0, 10.0, 60.0)),
        reported_by=reported_by,
        log_every=random.choice((1, 1, 10)) if step_seconds < 3 else 1,
        wait=random.choice(("gradient", "all_reduce", "item")),
        captured=reported_by in ("log", "logs") and random.random() < 0.15,
    )
