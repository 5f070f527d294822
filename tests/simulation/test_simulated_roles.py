"""Simulated jobs of several roles: what they state is lawful, faults are found in them, and both controls lose."""

from __future__ import annotations

from collections import defaultdict

import pytest

from simulation.roles import FAULTS, TAIL_SECONDS, RlJob
from tests.support.simulated_roles import Watched, job_of, summary, watch

GPUS = 64


def test_a_job_is_the_same_each_time() -> None:
    """One seed is one job."""
    one, other = (list(RlJob(3, GPUS, "dead_engine").readings(900.0)) for _ in range(2))
    assert one == other


def test_counters_of_a_healthy_job_never_go_back() -> None:
    """Tokens, calls and scores only grow, over several steps with tails."""
    job, last = RlJob(1, GPUS), defaultdict[tuple[str, str, str], int](int)
    for tick in range(300):
        for one in job.readings(10.0 * tick):
            for name in ("tokens_total", "steps_total"):
                if (value := getattr(one, name)) is not None:
                    seat = (one.role or "", one.instance, name)
                    assert value >= last[seat], (tick, seat)
                    last[seat] = value
    assert len(job.steps) > 1
    assert all(float(step.finish.max()) - step.begin <= TAIL_SECONDS for step in job.steps)


@pytest.mark.system
@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_is_found_in_its_role(kind: str) -> None:
    """The role is named, and where one instance is at fault that one, before anything innocent.

    A trainer that rests while the others use their processors may wait for one of them: without stacks its role is named alone.
    """
    said = watch(kind, GPUS, 0)
    assert said.role_right, said
    if kind == "hung_trainer":
        assert said.named == [("trainer", (), "")], said
    else:
        assert said.machine_right is not False, said
    assert said.false_restarts == 0, said


@pytest.mark.system
def test_both_controls_restart_a_healthy_job() -> None:
    """An hour of long tails: the rules say nothing, peers and silence do."""
    said = watch("healthy", GPUS, 1, seconds=3_600.0)
    assert (said.false_restarts, said.false_names) == (0, 0), said
    assert said.peers.wrong > 0
    assert said.silence.wrong > 0


def test_every_fifth_job_has_no_client_and_another_no_agents() -> None:
    """What sources a job has is drawn with it."""
    assert [(job_of("healthy", GPUS, seed).heard, job_of("healthy", GPUS, seed).followed) for seed in (2, 3, 4)] == [
        (True, True), (False, True), (True, False),
    ]  # fmt: skip


def test_a_summary_counts_faults_and_days() -> None:
    """Shares are of the jobs that have a fault; days are all that was watched."""
    found = summary([
        Watched("dead_engine", GPUS, 0, seconds=70.0, role_right=True, machine_right=True, days=0.1),
        Watched("stuck_tool", GPUS, 1, days=0.2), Watched("healthy", GPUS, 2, false_restarts=1, days=0.7),
    ])  # fmt: skip
    assert (found["faults"], found["role_right"], found["not_found"]) == (2, 1, 1)
    assert (found["job_days"], found["false_restarts"]) == (1.0, 1)
