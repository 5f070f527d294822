"""Real jobs that nobody watches: the verdict that the service publishes by itself names rank and node.

Each trial here is one of the matrices of `python -m tests.acceptance.live_verdicts` and `numeric_jobs`, which bound the seconds
to the first verdict too. One job runs at a time, below one service; the next starts while the end of the one before is watched.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from tests.support.jobs import live, verdicts
from tests.support.jobs.chosen import FILES, LIVE, NUMBERS
from tests.support.jobs.judged import summary
from tests.support.jobs.scenarios import FAULTS
from tests.support.jobs.verdicts import Outcome, Trial
from tests.support.needs import needs_torch

needs_torch("real jobs cannot be started")


TOGETHER = 1


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Outcome]]]:
    """Run all trials below one service and yield what comes of each, by its job's name."""
    folder = tmp_path_factory.mktemp("verdicts")
    with (
        live.cluster(folder / "cluster", verdicts.nodes_for(TOGETHER)) as nodes,
        verdicts.side_by_side(nodes, [*LIVE, *NUMBERS], folder, TOGETHER) as futures,
    ):
        yield futures


def test_every_fault_is_tried() -> None:
    """A test run makes a trial of each fault that the matrices have: here, or in ``test_real_jobs.py``."""
    assert {trial.scenario.fault for trial in LIVE} | {scenario.fault for scenario in FILES} == set(FAULTS)


@pytest.mark.timeout(1_200)  # each wait ends as soon as what it waits for is there
@pytest.mark.parametrize("trial", [*LIVE, *NUMBERS], ids=[trial.job for trial in (*LIVE, *NUMBERS)])
def test_the_first_verdict_is_right(trial: Trial, outcomes: dict[str, Future[Outcome]]) -> None:
    """The service names culprit ranks and nodes; one incident, closed after the job; replayed the same."""
    outcome = outcomes[trial.job].result()

    wrong = verdicts.wrong(outcome)
    reported = "\n".join(f"-- version {number}\n{summary(one)}" for number, one in enumerate(outcome.documents, 1))
    assert not wrong, f"{trial.scenario.name}: first verdict after {outcome.first_seconds} s\n{reported}"
