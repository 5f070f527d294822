"""Real jobs with an agent a node and a service: the exported bundle, given to `faulthound diagnose`, names rank and node.

Two of the matrix that `python -m tests.acceptance.live_jobs` goes through; second proofs: `test_live_verdicts.py` gives
`faulthound diagnose` the export of a stopped rank's job, too, beside what the service says by itself.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.jobs import live
from tests.support.jobs.judged import complaints, complaints_about_nodes, summary, verdict_of
from tests.support.jobs.scenarios import Scenario
from tests.support.needs import needs_torch

needs_torch("real jobs cannot be started")


RUNS = [
    (Scenario.draw("sigstop", "pipeline", 2), True),
    (Scenario.draw("healthy", "ddp", 0), False),
]


@pytest.mark.acceptance
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("scenario", "probe"),
    RUNS,
    ids=[f"{scenario.key}{'-probe' * probe}" for scenario, probe in RUNS],
)
def test_the_bundle_names_rank_and_node(scenario: Scenario, probe: bool, tmp_path: Path) -> None:
    """What the agents saw is enough: culprit ranks, their nodes, the cause and the symptom are those injected."""
    bundle = live.run(scenario, tmp_path / "live", probe=probe)

    verdict = verdict_of(bundle)

    wrong = complaints(scenario, verdict) + complaints_about_nodes(scenario, verdict)
    assert not wrong, f"{scenario.name}\n{summary(verdict)}\n{live.summary(bundle)}"
