"""The whole loop on a real Slurm, nobody watching: a rank is stopped, its node is drained, the job trains on the others.

More faults, propose-only, and a controller that is restarted meanwhile, are in `python -m tests.acceptance.slurm_loop`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.needs import needs_torch
from tests.support.slurm import cluster

if reason := cluster.missing():
    pytest.skip(reason, allow_module_level=True)

from tests.support.slurm.loop import killed, loop, trial

needs_torch("a real job cannot be started")
pytestmark = [pytest.mark.alone, pytest.mark.slow]


@pytest.mark.timeout(900)
def test_a_stopped_rank_costs_its_node_and_nothing_else(tmp_path: Path) -> None:
    """From the fault on nobody helps: a verdict, the policy, a drain with our reason, the job trains on other nodes."""
    with loop(tmp_path) as running:
        outcome = trial(running, "sigstop", rank=1)

    print(outcome.reported())
    assert outcome.wrong == []


@pytest.mark.acceptance
@pytest.mark.timeout(900)
def test_a_killed_rank_costs_no_node(tmp_path: Path) -> None:
    """Nothing shows who sent SIGKILL: the policy that drains by itself drains nothing."""
    with loop(tmp_path) as running:
        outcome = killed(running, rank=1)

    print(outcome.reported())
    assert outcome.wrong == []
    assert outcome.verdict_seconds is not None
