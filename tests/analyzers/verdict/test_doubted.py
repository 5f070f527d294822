"""What an action says of all machines is no surer than what the verdict names."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from analyzers.model.verdict import Action, Culprit, Root, Verdict
from analyzers.verdict.calibrated import with_doubt
from service.reports.story import headlines

SAID = "no machine is at fault: restart from the checkpoint before that step"


def named(probability: float, why: str = SAID) -> Verdict:
    """Return a verdict that names the code."""
    culprit = Culprit(root="r1", kind="code", id="code", probability=probability)
    return Verdict(
        symptom="numeric", cause="code", abstained=False, version="", knowledge="", culprits=(culprit,),
        action=Action(kind="none", why=why),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("sure", "said", "who"),
    [
        (0.9, "no machine is at fault: restart", "The code (not a machine)"),
        (0.7, "probably no machine is at fault: restart", "The code (not a machine)"),
        (0.5, "whether a machine is at fault is undecided: restart", "Perhaps the code"),
    ],
)
def test_machines_are_cleared_only_as_far_as_something_else_is_likely(sure: float, said: str, who: str) -> None:
    """At one half, "no machine is at fault" would be false every second time."""
    verdict = with_doubt(named(sure))
    assert verdict.action.why.startswith(said)
    assert headlines(verdict)[0].who == who


def test_machines_are_cleared_only_if_the_job_stands_still() -> None:
    """A program that reads the action alone must see what the headline takes for granted."""
    assumed = Root(root="r1", cause="code", fault_class="same_stack", assumes="whether the job stands still")
    verdict = with_doubt(replace(named(0.9, f"the code is the cause: {SAID}"), roots=(assumed,)))
    assert verdict.action.why.startswith(
        "if the job stands still, the code is the cause: no machine is at fault: restart"
    )


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("no machine is at fault as far as is seen: look", "no machine is at fault as far as is seen: look"),
        ("the code is the cause: no machine is at fault", "whether a machine is at fault is undecided"),
        ("killed: no machine of the job is at fault", "killed: whether a machine is at fault is undecided"),
        ("the proof is not enough to evict", "the proof is not enough to evict"),
    ],
)
def test_what_is_in_doubt_already_stays(why: str, said: str) -> None:
    """Other reasons, and those that leave it open, are as they were."""
    assert with_doubt(named(0.5, why)).action.why == said
