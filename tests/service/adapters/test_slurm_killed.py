"""The adapter is killed, or one of Slurm's commands hangs, at every moment: the job is restarted once, or nothing more is done.

Slurm is pretended, its clock far from the service's; service and claims are real.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from analyzers.remediation.messages import RemediationTick
from service.clock import now
from tests.support.slurm.pretended import Killed, hangs, kills
from tests.support.slurm.trials import Trial, pretending

pytestmark = pytest.mark.system


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trial]:
    """Return a service and a Slurm that is pretended."""
    with pretending(tmp_path, monkeypatch) as trial:
        yield trial


@pytest.mark.parametrize("kind", ["evict", pytest.param("restart_job", marks=pytest.mark.acceptance)])
def test_whenever_it_is_killed_the_job_is_restarted_once(trial: Trial, kind: str) -> None:
    """Before any command, and after any change: the next adapter finishes, and nothing is done twice."""
    moments = trial.undisturbed(kind)
    for number, when in moments:
        trial.begin(kind, kills(number, when))
        with pytest.raises(Killed):
            trial.adapter().once()
        trial.slurm.goes_on()
        successor = trial.adapter()
        successor.resume()
        successor.once()
        assert trial.is_right(kind), (number, when)
    print(f"killed at {len(moments)} moments")


def test_whichever_command_hangs_the_job_is_restarted_once(trial: Trial) -> None:
    """Twenty seconds without an answer, with and without the effect that nobody heard of: it is looked at, not done again."""
    for number, when in trial.undisturbed("evict"):
        trial.begin("evict", hangs(trial.time, number, when))
        adapter = trial.adapter()
        adapter.once()
        adapter.once()  # what hung before it was claimed
        assert trial.is_right("evict"), (number, when)


def test_a_job_that_slurm_puts_back_by_itself_is_not_put_back_again(trial: Trial) -> None:
    """Before any command of ours, the requeue itself the last: it is restarted once, without the node."""
    trial.undisturbed("evict")
    (requeue,) = (number for number, what in trial.slurm.changes.items() if what.startswith("requeue"))
    for number in range(1, requeue + 1):

        def itself(at: int, when: str, number: int = number) -> None:
            if (at, when) == (number, "before"):
                trial.slurm.put_back()

        trial.begin("evict", itself)
        trial.adapter().once()
        assert trial.is_right("evict"), number
        assert trial.slurm.runs_on() == ("gpu0", "gpu2", "gpu3")


def test_a_lease_that_runs_out_while_a_command_hangs_ends_the_work(trial: Trial) -> None:
    """The service has given the claim up meanwhile: not one command more, and what was done can be undone."""
    stopped_at = 0

    def expires() -> None:
        nonlocal stopped_at
        trial.shop.client.service.remedies.handle(RemediationTick(), now() + 61)
        stopped_at = trial.slurm.commands

    for number, when in trial.undisturbed("evict"):
        trial.begin("evict", hangs(trial.time, number, when, expires))
        trial.adapter().once()

        one = trial.shop.one(trial.id)
        assert one["claims"] == 0 or trial.slurm.commands == stopped_at, (number, when, trial.slurm.changes)
        assert one["status"] == ("approved" if one["began_at"] is None else "failed"), (number, when)
        if one["began_at"] is not None:
            trial.shop.ask_undo(trial.id)
            trial.adapter().once()
            assert (trial.status(), trial.slurm.drained()) == ("undone", []), (number, when)
