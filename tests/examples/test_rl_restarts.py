"""The example survives the loss of a rollout, a trainer and the reward through Faulthound alone, and loses no trajectory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.needs import needs_torch
from tests.support.rl.journal import commits, entries, kill
from tests.support.rl_restarts import rl_job

needs_torch("the job cannot be started")

pytestmark = [pytest.mark.system, pytest.mark.alone, pytest.mark.slow]
STEPS, QUESTIONS = 36, 16
LOSSES = (("rollout", "2"), ("trainer", "1"), ("reward", "0"))


@pytest.mark.timeout(600)
def test_a_lost_role_comes_back_through_faulthound_alone(tmp_path: Path) -> None:
    """Claimed after a signed push, fenced, restarted under a higher epoch, verified; nothing is lost or done twice."""
    # The delay of the tool sets the pace, not the machine: three cures take about 50 s, 23 steps.
    with rl_job(tmp_path, STEPS, "--off-policy", "--tool-seconds", "0.3") as job:
        for number, (role, instance) in enumerate(LOSSES, start=1):
            job.wait(lambda least=5 * number: len(commits(job.folder)) >= least)  # type: ignore[misc]
            before = job.directory()
            kill(job.folder, f"{role}.py", f"RANK={instance}")
            id = job.restart(role, instance)
            job.wait(lambda named=id: job.remediation(named)["status"] == "done")  # type: ignore[misc]
            after = job.directory()
            grouped = {"trainer 0", "trainer 1"} if role == "trainer" else {f"{role} {instance}"}
            assert {name for name in before if after[name]["epoch"] > before[name]["epoch"]} == grouped
        assert job.launcher.wait(300) == 0
        outcomes = [job.remediation(id)["outcome"] for id in job.asked]

    assert outcomes == ["cured"] * 3
    done = commits(job.folder)
    questions = [entry["question"] for entry in entries(job.folder) if "question" in entry]
    assert [entry["commit"] for entry in done] == list(range(STEPS))
    assert sorted(questions)[: STEPS * QUESTIONS] == list(range(STEPS * QUESTIONS))
    assert len(set(questions)) == len(questions)
    assert all(len(set(entry["fingerprints"].values())) == 1 for entry in done)
    assert len(json.loads((job.folder / "rewards.json").read_text())) == STEPS
