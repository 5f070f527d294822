"""A job that ends with its fault: what its verdict asks for is proposed, however late it is read."""

from __future__ import annotations

import pytest

from service.store.database import Database
from tests.support.incident_rows import verdict
from tests.support.proposer_at_work import Care
from tests.support.remediation_fleet import hung


@pytest.fixture
def care(database: Database) -> Care:
    """Return a proposer that has read nothing of a hang yet that was judged."""
    care = Care(database)
    care.turn(0.0)
    hung(database)
    return care


def test_a_verdict_that_is_read_with_the_end_of_its_job_is_proposed(care: Care) -> None:
    """All processes ended between the verdict and the next look: the node is as bad as before, and the job does not run."""
    care.close("all 6 processes have ended", recovered=False)
    care.turn()

    one = care.only()
    assert (one.kind, one.nodes, one.status) == ("evict", ("gpu-0002",), "proposed")


def test_a_verdict_that_is_read_with_the_recovery_of_its_job_is_not(care: Care) -> None:
    """The job went on by itself in the meantime: nothing is proposed."""
    care.close("the job moves again", recovered=True)
    care.turn()

    assert care.all() == []


def test_a_person_who_says_wrong_in_the_meantime_is_heard(care: Care) -> None:
    """Judged, ended, and called wrong before anybody looked: the node that was named stays."""
    care.publish(verdict())
    care.say("wrong")
    care.close("all 6 processes have ended", recovered=False)
    care.turn()

    assert [one for one in care.all() if one.nodes] == []
