"""Which trials of the acceptance matrices every test run makes, in whole runs of many seconds; ``MORE``: second proofs.

Faults that ask for the same verdict, by symptom, cause and classes, are tried once.
"""

from __future__ import annotations

from tests.support.jobs.scenarios import FAULTS, Scenario
from tests.support.jobs.verdicts import Trial

LIVE = [
    Trial.draw("sigstop", "pipeline", 3, probe=True),
    Trial.draw("sigkill", "ddp", 4),
    Trial.draw("healthy", "pipeline", 11),
]
"""Below agents and a service, judged by the service itself."""

NUMBERS = [Trial.draw("nan_first", "numbers", 1)]
"""Judged by the service, too: a job that runs on while its numbers are wrong."""

MORE_LIVE = [
    Trial.draw("spin", "ddp", 0),
    Trial.draw("exception", "pipeline", 5),
    Trial.draw("two_culprits", "pipeline", 10, probe=True),
]

_SEEDS = {fault: seed for seed, fault in enumerate(FAULTS)}  # every form of the files occurs


def _drawn(*faults: str) -> list[Scenario]:
    return [Scenario.draw(fault, "ddp", _SEEDS[fault]) for fault in faults]


FILES = [
    *_drawn("gil", "same_exception", "wrong_collective", "opposite"),
    *(Scenario.draw(fault, "pipeline", _SEEDS[fault] + 1) for fault in ("spin", "data_loader")),
]
"""Judged by the files that they leave behind."""

MORE_FILES = _drawn("wrong_size", "healthy")
