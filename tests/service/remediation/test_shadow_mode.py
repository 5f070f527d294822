"""Shadow mode: what a rule would have done, and what it is worth."""

from __future__ import annotations

import pytest

from analyzers.remediation.types import Policy, Rule
from service.store.database import Database
from tests.support.incident_rows import verdict
from tests.support.proposer_at_work import Care
from tests.support.remediation_fleet import hung

SHADOW = Policy(rules=(Rule(name="hangs", mode="shadow", symptom="hang"),))


@pytest.fixture
def care(database: Database) -> Care:
    """Return a proposer under a rule in shadow mode, and a hang that was judged."""
    care = Care(database, SHADOW)
    care.turn(0.0)
    hung(database)
    return care


def test_shadow_mode_is_judged_by_what_people_say(care: Care) -> None:
    """What the rule would have done is a case; it counts once the incident is closed, as the newest feedback says."""
    care.turn()
    care.turn()
    care.say("right")
    care.close("all 6 processes have ended", recovered=False)
    care.turn()

    (case,) = care.cases()
    assert (case.correct, case.closed_at is not None) == (True, True)
    assert case.document["rule"] == "hangs"
    assert care.remedies.state(care.now).tallies["hangs"].right == 1


def test_what_goes_on_by_itself_speaks_against_the_rule(care: Care) -> None:
    """The rule would have evicted, and nothing was needed: that is a wrong case."""
    care.turn()
    care.turn()
    care.close("the job moves again", recovered=True)
    care.turn()
    assert [case.correct for case in care.cases()] == [False]


def test_nobody_knows_counts_for_nothing(care: Care) -> None:
    """A closed incident of which nobody says anything is no case for or against."""
    care.turn()
    care.turn()
    care.close("all 6 processes have ended", recovered=False)
    care.turn()
    assert care.remedies.state(care.now).tallies["hangs"].seen == 0


def test_a_word_on_a_later_version_counts_for_the_same_plan(care: Care) -> None:
    """Version 3 names the same node as version 2 and a person says that it is right: the rule was right."""
    care.turn()
    care.turn()
    care.publish(verdict())
    care.turn()
    care.say("right")
    care.turn()
    assert [case.correct for case in care.cases()] == [True]


def test_what_a_right_verdict_has_withdrawn_speaks_against_the_rule(care: Care) -> None:
    """Version 2 would have evicted a node at once, version 3 only wants it looked at, and is right: a wrong case."""
    care.turn()
    care.turn()
    care.publish(verdict(action="probe"))
    care.turn()
    care.say("right")
    care.turn()
    assert [case.correct for case in care.cases()] == [False]


def test_what_would_have_been_done_before_the_cure_was_wrong(care: Care) -> None:
    """The rule would have evicted one node; a later version named another, which a person let go, and that was the cure."""
    care.turn()
    care.turn()
    first = care.only().id
    care.publish(verdict("gpu-0003"))
    care.completed()
    care.steps(care.now + 1.0, 12)
    care.turn(120.0)
    care.turn()
    assert {case.remediation == first: case.correct for case in care.cases()} == {True: False, False: True}
