"""Shadow mode: what a rule would have done, and what it is worth."""

from __future__ import annotations

from service.remediation.words import Policy, Rule
from service.store.database import Database
from tests.caretaking import Care
from tests.postgres import database, postgres, url
from tests.remediation_fleet import hung

__all__ = ["database", "postgres", "url"]  # fixtures


SHADOW = Policy(rules=(Rule(name="hangs", mode="shadow", symptom="hang"),))


def test_shadow_mode_is_judged_by_what_people_say(database: Database) -> None:
    """What the rule would have done is a case; it counts once the incident is closed, as the newest feedback says."""
    care = Care(database, SHADOW)
    care.turn(0.0)
    hung(database)
    care.turn()
    care.turn()
    care.say("right")
    care.close("all 6 processes have ended", recovered=False)
    care.turn()

    (case,) = care.cases()
    assert (case.correct, case.closed_at is not None) == (True, True)
    assert case.document["rule"] == "hangs"
    assert care.remedies.book(care.now).tallies["hangs"].right == 1


def test_what_goes_on_by_itself_speaks_against_the_rule(database: Database) -> None:
    """The rule would have evicted, and nothing was needed: that is a wrong case."""
    care = Care(database, SHADOW)
    care.turn(0.0)
    hung(database)
    care.turn()
    care.turn()
    care.close("the job moves again", recovered=True)
    care.turn()
    assert [case.correct for case in care.cases()] == [False]


def test_nobody_knows_counts_for_nothing(database: Database) -> None:
    """A closed incident of which nobody says anything is no case for or against."""
    care = Care(database, SHADOW)
    care.turn(0.0)
    hung(database)
    care.turn()
    care.turn()
    care.close("all 6 processes have ended", recovered=False)
    care.turn()
    assert care.remedies.book(care.now).tallies["hangs"].seen == 0
