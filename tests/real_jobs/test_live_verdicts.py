"""Real jobs that nobody watches: the verdict that the service publishes by itself names rank and node.

Each trial here is one of the matrices of `python -m tests.acceptance.live_verdicts` and `numeric_jobs`, which bound the seconds
to the first verdict too. One job runs at a time, below one service; the next starts while the end of the one before is watched.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from tests.support.jobs import live, verdicts
from tests.support.jobs.chosen import FILES, LIVE, MORE_LIVE, NUMBERS
from tests.support.jobs.judged import complaints, complaints_about_nodes, summary, verdict_of
from tests.support.jobs.scenarios import FAULTS, Fault
from tests.support.jobs.verdicts import Outcome, Trial
from tests.support.needs import needs_torch

needs_torch("real jobs cannot be started")


TOGETHER = 1
TRIALS = [*LIVE, *NUMBERS, *MORE_LIVE]
TEST = "test_the_first_verdict_is_right"


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Outcome]]]:
    """Run the trials that are asked for below one service and yield what comes of each, by its job's name."""
    asked = {item.name for item in request.session.items if item.path == request.path}
    folder = tmp_path_factory.mktemp("verdicts")
    with (
        live.cluster(folder / "cluster", verdicts.nodes_for(TOGETHER)) as nodes,
        verdicts.side_by_side(
            nodes, [trial for trial in TRIALS if f"{TEST}[{trial.job}]" in asked], folder, TOGETHER
        ) as futures,
    ):
        yield futures


def asked_verdict(fault: Fault) -> tuple[str, str, tuple[str, ...]]:
    """Return what a verdict must say of a fault."""
    return fault.symptom, fault.cause, fault.classes


def test_every_verdict_is_tried() -> None:
    """A test run makes a trial for each verdict that the matrices' faults ask for: here, or in ``test_real_jobs.py``."""
    tried = [*(trial.scenario for trial in LIVE), *FILES]
    assert {asked_verdict(scenario.truth) for scenario in tried} == set(map(asked_verdict, FAULTS.values()))


@pytest.mark.slow
@pytest.mark.timeout(1_200)  # each wait ends as soon as what it waits for is there
@pytest.mark.parametrize(
    "trial",
    [pytest.param(one, marks=pytest.mark.acceptance if one in MORE_LIVE else ()) for one in TRIALS],
    ids=[trial.job for trial in TRIALS],
)
def test_the_first_verdict_is_right(trial: Trial, outcomes: dict[str, Future[Outcome]]) -> None:
    """The service and an export name culprit ranks and nodes; one incident, closed after the job; replayed the same."""
    outcome = outcomes[trial.job].result()

    wrong = verdicts.wrong(outcome)
    reported = "\n".join(f"-- version {number}\n{summary(one)}" for number, one in enumerate(outcome.documents, 1))
    assert not wrong, f"{trial.scenario.name}: first verdict after {outcome.first_seconds} s\n{reported}"
    if outcome.exported is not None:
        exported = verdict_of(outcome.exported)
        again = complaints(trial.scenario, exported) + complaints_about_nodes(trial.scenario, exported)
        assert not again, summary(exported)
