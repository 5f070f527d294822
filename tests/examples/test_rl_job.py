"""The example of reinforcement learning: it survives the loss of a rollout, a trainer and the reward, and loses no trajectory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.needs import needs_torch
from tests.support.rl.journal import commits, entries, kill
from tests.support.served import REPOSITORY, serving

needs_torch("the job cannot be started")

pytestmark = [pytest.mark.system, pytest.mark.alone, pytest.mark.slow]
STEPS, QUESTIONS = 15, 16
WAITED_SECONDS = 300.0


def wait(holds: Callable[[], bool], launcher: subprocess.Popen[str]) -> None:
    """Wait until something holds, as long as the job runs."""
    deadline = time.monotonic() + WAITED_SECONDS
    while not holds():
        assert launcher.poll() is None, "the job has ended before"
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "more", [pytest.param((), marks=pytest.mark.acceptance), ("--off-policy",)], ids=["on_policy", "one_step_behind"]
)
def test_a_lost_role_costs_no_trajectory_and_no_step(tmp_path: Path, more: tuple[str, ...]) -> None:
    """Every question is answered once and every step done once, with the same weights on both trainers."""
    folder = tmp_path / "rl"
    with serving(tmp_path / "service", {"FAULTHOUND_ENGINE": "false"}) as (url, _service):
        command = [sys.executable, "examples/rl_job/launch.py", "--folder", str(folder), "--steps", str(STEPS), *more]
        launcher = subprocess.Popen(
            command, cwd=REPOSITORY, env=os.environ | {"FAULTHOUND_SERVICE": url}, stdout=subprocess.PIPE, text=True
        )
        try:
            for number, (script, variable) in enumerate(
                [("rollout.py", "RANK=2"), ("trainer.py", "RANK=1"), ("reward.py", "RANK=0")], start=1
            ):
                wait(lambda least=3 * number: len(commits(folder)) >= least, launcher)  # type: ignore[misc]
                kill(folder, script, variable)
            output, _ = launcher.communicate(timeout=WAITED_SECONDS)
        finally:
            launcher.kill()

    assert launcher.returncode == 0, output
    assert all(f"{role} ended with -9: restarted" in output for role in ("rollout 2", "trainer 1", "reward 0"))
    done = commits(folder)
    questions = [entry["question"] for entry in entries(folder) if "question" in entry]
    assert [entry["commit"] for entry in done] == list(range(STEPS))
    assert sorted(questions)[: STEPS * QUESTIONS] == list(range(STEPS * QUESTIONS))
    assert len(set(questions)) == len(questions)
    assert all(len(set(entry["fingerprints"].values())) == 1 for entry in done)
    assert len(json.loads((folder / "rewards.json").read_text())) == STEPS
