"""Which trials of the acceptance matrices every test run makes: each fault once at least, in whole runs of many seconds."""

from __future__ import annotations

from tests.support.jobs.scenarios import FAULTS, Scenario
from tests.support.jobs.verdicts import Trial

LIVE = [
    Trial.draw("spin", "ddp", 0),
    Trial.draw("sigstop", "pipeline", 3, probe=True),
    Trial.draw("sigkill", "ddp", 4),
    Trial.draw("exception", "pipeline", 5),
    Trial.draw("two_culprits", "pipeline", 10, probe=True),
    Trial.draw("healthy", "pipeline", 11),
]
"""Below agents and a service, judged by the service itself."""

NUMBERS = [Trial.draw("nan_first", "numbers", 1)]
"""Judged by the service, too: a job that runs on while its numbers are wrong."""

_SEEDS = {fault: seed for seed, fault in enumerate(FAULTS)}  # every form of the files occurs
FILES = [
    *(
        Scenario.draw(fault, "ddp", _SEEDS[fault])
        for fault in ("gil", "same_exception", "wrong_collective", "wrong_size", "opposite", "healthy")
    ),
    *(Scenario.draw(fault, "pipeline", _SEEDS[fault] + 1) for fault in ("spin", "data_loader")),
]
"""Judged by the files that they leave behind."""
