"""Real jobs are stopped, killed and interrupted while their agents are restarted: the small member of two matrices.

`python -m tests.acceptance.interrupted_jobs` has every output and ten minutes without a service, `tests.acceptance.soak` an hour.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.needs import needs_torch
from tests.support.soak import report, schedule, soak_judge, soak_matrix

needs_torch("real jobs cannot be started")


@pytest.mark.acceptance
@pytest.mark.timeout(600)
def test_an_agent_restarted_in_the_middle_changes_no_answer(tmp_path: Path) -> None:
    """A stop is reported and named, the two ends open nothing that stays, and no machine is proposed for any of it."""
    soak_matrix.played(schedule.interrupted_briefly(0), tmp_path / "soak")

    result = soak_matrix.result_of(tmp_path / "soak")

    assert soak_judge.holds(result), report.table(result)
