"""What an undo gives back in Slurm: what the service says nobody else keeps out, and only where the drain is of ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.adapters.slurm.slurm_commands import drain
from service.adapters.slurm.slurm_output import mark, marked, reason
from tests.support.slurm.trials import RAN_ON, Trial, pretending

pytestmark = pytest.mark.system


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trial]:
    """Return a service and a Slurm that is pretended, in which gpu1 is drained by one remediation after another."""
    with pretending(tmp_path, monkeypatch) as trial:
        trial.begin("evict")
        trial.adapter().once()
        yield trial


def taken_too(trial: Trial) -> str:
    """Have the same node taken out by a second remediation, of another job; return its id."""
    id = trial.shop.propose("other", ["gpu1"], ran_on=RAN_ON, kind="drain_after_job")
    trial.adapter().once()
    assert "left as it is" in trial.shop.one(id)["did"]["gpu1"]
    return id


def undo(trial: Trial, id: str) -> str:
    """Have one undone; return what became of gpu1."""
    trial.shop.ask_undo(id)
    trial.adapter().once()
    one = trial.shop.one(id)
    assert one["status"] == "undone"
    timeline = trial.shop.client.get(f"/v1/incidents/{one['incident']}/timeline").json()["items"]
    (reported,) = (entry["details"]["did"] for entry in timeline if entry["kind"] == "remediation_undone")
    return str(reported["gpu1"])


def test_a_node_that_two_took_out_comes_back_with_the_second(trial: Trial) -> None:
    """The first undo leaves it drained for the other; the other's finds the first one's reason, and gives it back."""
    other = taken_too(trial)
    assert undo(trial, trial.id) == "left as it is: another remediation has taken it out as well"
    assert trial.slurm.drained() == ["gpu1"]
    assert undo(trial, other) == "given back: idle"
    assert trial.slurm.drained() == []


def test_it_comes_back_the_other_way_round_too(trial: Trial) -> None:
    """The one that found it drained is undone first."""
    other = taken_too(trial)
    assert "another remediation" in undo(trial, other)
    assert undo(trial, trial.id) == "given back: idle"


@pytest.mark.parametrize(
    "reported", ["fan: ticket 4711", reason("inc-0123456789ab", "rem-0123456789ab", "of another service"), ""]
)
def test_a_reason_that_is_not_of_this_service_stays(trial: Trial, reported: str) -> None:
    """A person's, another service's of Faulthound, or none: the drain is left as it is."""
    trial.slurm.change(drain("gpu1", reported))
    assert undo(trial, trial.id).startswith("left as it is: ")
    assert trial.slurm.drained() == ["gpu1"]


def test_a_drain_without_a_reason_is_not_taken_over(trial: Trial) -> None:
    """Somebody took the node out and said nothing: it gets no reason of ours, so the undo does not give it back."""
    trial.slurm.change(drain("gpu2", ""))
    other = trial.shop.propose("other", ["gpu2"], ran_on=RAN_ON, kind="drain_after_job")
    trial.adapter().once()
    assert trial.shop.one(other)["did"]["gpu2"] == "left as it is: idle+drain without a reason"
    trial.shop.ask_undo(other)
    trial.adapter().once()
    assert "gpu2" in trial.slurm.drained()


@pytest.mark.parametrize(
    "text",
    ["", "fan", "faulthound", "faulthound inc-1 rem-2: x", "not faulthound inc-0123456789ab rem-0123456789ab: x"],
)
def test_whose_a_reason_is(text: str) -> None:
    """Only the whole mark at its beginning is ours."""
    assert marked(text) is None
    assert marked(mark("inc-0123456789ab", "rem-ba9876543210") + " it is stopped") == (
        "inc-0123456789ab",
        "rem-ba9876543210",
    )
