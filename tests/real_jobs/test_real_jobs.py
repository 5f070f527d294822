"""Real torch.distributed jobs are broken on purpose; the verdict on what they leave names what was done to them.

Some of the matrix that `python -m tests.acceptance.real_jobs` runs at least five times (`tests/support/jobs/chosen.py`); the
other faults strike below agents in `test_live_verdicts.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.jobs import driver
from tests.support.jobs.chosen import FILES, MORE_FILES
from tests.support.jobs.job import Job
from tests.support.jobs.judged import complaints, complaints_about_set, dumps_alone, summary, verdict_of
from tests.support.jobs.scenarios import Scenario
from tests.support.needs import needs_torch

needs_torch("real jobs cannot be started")


UNDECIDED_BY_DUMPS = ("spin", "data_loader")  # in a pipeline on gloo, which records no send and no receive


@pytest.mark.slow  # all of them together
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "scenario",
    [*FILES, *(pytest.param(one, marks=pytest.mark.acceptance) for one in MORE_FILES)],
    ids=lambda scenario: scenario.key,
)
def test_the_verdict_names_what_was_done(scenario: Scenario, tmp_path: Path) -> None:
    """The culprit ranks, the cause and the symptom are the injected ones, and no innocent machine is evicted."""
    folder = driver.run(scenario, tmp_path / "files")

    verdict = verdict_of(folder)

    assert not complaints(scenario, verdict), f"{scenario.name}\n{summary(verdict)}"
    if scenario.topology == "pipeline" and scenario.fault in UNDECIDED_BY_DUMPS:
        from_dumps = verdict_of(dumps_alone(folder, tmp_path / "dumps"))
        assert not complaints_about_set(scenario, from_dumps), f"{scenario.name}, dumps alone\n{summary(from_dumps)}"


def test_a_job_that_does_not_come_up_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the fault is not reached in time, every process and the private folder are gone and the logs are quoted."""
    monkeypatch.setattr(driver, "START_SECONDS", 0.5)
    started: list[Job] = []
    monkeypatch.setattr(Job, "start_ranks", _noting(Job.start_ranks, started))

    with pytest.raises(driver.JobFailed, match=r"no fault within 0 s"):
        driver.run(Scenario.draw("spin", "ddp", 0), tmp_path / "files")

    assert len(started[0].processes) == 4
    assert all(process.poll() is not None for process in started[0].processes)
    assert not started[0].private.exists()


def _noting(start: object, started: list[Job]) -> object:
    def wrapped(job: Job, evidence: object) -> None:
        started.append(job)
        start(job, evidence)  # type: ignore[operator]

    return wrapped


def test_the_shipped_incident_is_a_data_loader_on_rank_3(repository: Path) -> None:
    """The recorded incident that `make run` shows gets the verdict that its README states."""
    verdict = verdict_of(repository / "examples" / "hung_job")

    scenario = Scenario("data_loader", "pipeline", 9, (3,), 35)
    assert not complaints(scenario, verdict), summary(verdict)


def test_the_shipped_incident_holds_no_private_path(repository: Path) -> None:
    """No file of the recorded incident has the path of a checkout, a home or a temporary folder in it."""
    folder = repository / "examples" / "hung_job"
    private = (str(repository), str(Path.home()), "/root", "/home/", "/tmp", os.uname().nodename + ":")

    found = [(path.name, word) for path in folder.iterdir() for word in private if word in path.read_text()]

    assert len(list(folder.iterdir())) == 26
    assert not found
