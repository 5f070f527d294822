"""How a job goes on, in sentences: what is said must agree with the steps that are shown beside it."""

from __future__ import annotations

import pytest

from service.reports.job_lines import sentences

UNKNOWN = {"allowed_seconds": None, "p99_seconds": None, "ended_at": None, "slowdown": None, "habits": []}


@pytest.mark.parametrize(
    ("is_outdated", "said"),
    [
        (False, "There is no bound on its silence: it reports no steps."),
        (True, "There is no bound on its silence yet: its first steps have just been reported."),
    ],
)
def test_a_job_whose_first_steps_have_just_come_is_not_said_to_report_none(is_outdated: bool, said: str) -> None:
    """The engine's last look may be from before the job's first step, which is shown above the sentence."""
    assert sentences({**UNKNOWN, "is_outdated": is_outdated}) == [said]
