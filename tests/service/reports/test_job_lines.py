"""How a job goes on, in sentences: what is said must agree with the steps that are shown beside it."""

from __future__ import annotations

import pytest

from service.reports.job_lines import sentences, unknown_roles, unseen_roles

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


def test_steps_without_a_loss_are_said_to_have_none() -> None:
    """A NaN in a line whose loss no reader knows opens nothing: that is said where the steps are known, and where to look."""
    known = {**UNKNOWN, "allowed_seconds": 8.0, "p99_seconds": 0.3, "intervals": 60, "silent_now_seconds": 1.0}
    known["is_outdated"] = False

    assert (
        sentences({**known, "has_loss": True})[1:]
        == sentences({**UNKNOWN, "is_outdated": True, "has_loss": False})[1:]
        == []
    )
    (said,) = sentences({**known, "has_loss": False})[1:]
    assert said.startswith("Its loss is unmeasured")
    assert "docs/formats.md" in said


def test_a_job_too_new_for_its_pace_is_not_passed_off_as_even() -> None:
    """A slowdown in its first minutes opens nothing: that is said until its pace is known."""
    known = {**UNKNOWN, "allowed_seconds": 8.0, "p99_seconds": 0.3, "intervals": 60, "silent_now_seconds": 1.0}
    known["is_outdated"] = False

    assert [said for said in sentences({**known, "has_past": False}) if "not judged yet" in said]
    assert sentences({**known, "has_past": True}) == sentences(known)
    assert "not judged yet" not in " ".join(sentences({**known, "has_past": False, "ended_at": 5.0}))


@pytest.mark.parametrize(
    ("silent", "state", "goes_on"), [(16.0, "alive", True), (16.0, "silent", False), (9.0, "alive", False)]
)
def test_steps_that_are_silent_for_long_while_the_job_works_are_no_standstill(
    silent: float, state: str, goes_on: bool
) -> None:
    """Steps that an agent reads each ten seconds look silent for longer than their own rhythm."""
    witnesses = [{"witness": "steps", "state": "silent"}, {"witness": "cpu", "state": state}]
    known = {
        "allowed_seconds": 12.0,
        "p99_seconds": 0.3,
        "intervals": 60,
        "silent_now_seconds": silent,
        "witnesses": witnesses,
        "is_outdated": False,
    }
    said = sentences({**UNKNOWN, **known})[0]
    assert ("These are as usual: its CPU time." in said) == goes_on


def test_what_agents_have_not_sent_yet_is_no_silence() -> None:
    """The newest step of an agent that sends every 10 s is older than the bound now and then: that is compared with nothing."""
    known = {**UNKNOWN, "allowed_seconds": 8.0, "p99_seconds": 1.0, "intervals": 173, "silent_now_seconds": 14.0}
    newer = sentences({**known, "is_outdated": True})[0]
    looked = sentences({**known, "is_outdated": False, "silent_now_seconds": 1.0, "by_chance_seconds": 3.0})[0]

    assert newer == (
        "Its steps went on after the engine last looked: the newest ended 14 s ago, and agents send every some seconds. Within "
        "what they have sent, 8 s are allowed now: of its 173 intervals between reports 99 % were at most 1 s."
    )
    assert looked == (
        "Within what its agents have sent, no step ended for 1 s; 8 s are allowed now: of its 173 intervals between reports 99 % "
        "were at most 1 s, its pauses 3 s at most."
    )


@pytest.mark.parametrize(
    ("how", "ends"),
    [
        ("", "UTC."),
        ("its launcher was asked to stop", "UTC: its launcher was asked to stop."),
    ],
)
def test_a_job_that_was_ended_from_outside_is_said_to_be(how: str, ends: str) -> None:
    """Who looks why it is gone reads that somebody ended it."""
    (said,) = sentences({**UNKNOWN, "ended_at": 1.0, "ended_how": how})

    assert said.startswith("Its processes have ended, the last at ")
    assert said.endswith(ends)


def test_reports_of_stragglers_are_shown_with_their_node_or_with_what_would_decide() -> None:
    """Whom a detector inside the job names, and where that runs; where the reports do not decide, what would."""
    named = {"ranks": [6], "node": "gpu-17", "why": "slow", "own": False}
    decided = {
        "shown": ["the detector names rank 6 as slow in 5 of its last 6 reports"],
        "named": [named],
        "missing": [],
    }
    open_ = {
        "shown": ["the detector names rank 2 as slow in its newest report"],
        "named": [],
        "missing": ["more reports"],
    }

    said = sentences({**UNKNOWN, "is_outdated": False, "stragglers": [decided, open_]})
    ended = sentences({**UNKNOWN, "ended_at": 1.0, "stragglers": [decided]})

    assert said[1:] == [
        "The detector names rank 6 as slow in 5 of its last 6 reports (gpu-17).",
        "The detector names rank 2 as slow in its newest report; more reports.",
    ]
    assert len(ended) == 1


def test_a_registered_role_of_which_no_agent_reports_a_rank_is_named_with_what_to_set() -> None:
    """A controller without FAULTHOUND_ROLE is no rank; without any agent nothing is missing."""
    items = [
        {"role": role, "state": state}
        for role, state in (("controller", "serving"), ("rollout", "serving"), ("tool", "left"))
    ]
    (said,) = unseen_roles(items, [{"role": "rollout", "rank": 0}, {"role": None, "rank": 1}])
    assert said == (
        "No agent reports a rank of controller: start its processes with FAULTHOUND_ROLE=controller, on a node with an agent."
    )
    assert unseen_roles(items, []) == []


def test_a_role_that_no_rule_knows_is_named_with_what_to_add() -> None:
    """Its end is noticed without a rule, a standstill is not."""
    (said,) = unknown_roles(["oracle"])
    assert said.startswith("What the role oracle is for is not known")
    assert "role_rules.toml" in said


@pytest.mark.parametrize(
    ("within", "often"), [(0, "every 150 steps"), (4, "every 146 to 154 steps"), (None, "every 150 steps")]
)
def test_how_often_a_job_pauses_is_said_as_exactly_as_it_is_known(within: int | None, often: str) -> None:
    """A log of every tenth step leaves some steps open; a document of an older engine has no such bound."""
    habit = {"period": 150, "place": 0, "seconds": 20.6} | ({} if within is None else {"within": within})

    assert sentences({**UNKNOWN, "is_outdated": False, "habits": [habit]})[1:] == [f"It pauses for 21 s {often}."]
