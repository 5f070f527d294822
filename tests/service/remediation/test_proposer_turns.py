"""A proposer's turns: what breaks one, what a kill costs, and what is noted of saves, attempts and the policy's file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import func, select

from analyzers.incidents.memory import observe_batch
from analyzers.incidents.messages import Received
from analyzers.remediation.checkpoint_saves import LONGEST_SECONDS
from analyzers.remediation.messages import Approve, Reject
from service.remediation import proposals
from service.remediation import proposer as proposer_module
from service.remediation.policy_file import PolicyFile
from service.store import timeline
from service.store.database import Database
from service.store.leases import LeaseLost
from service.store.models import Cursor, Incident, Job, TimelineEntry
from service.store.models import Lease as LeaseRow
from tests.support.incident_rows import AT, JOB, verdict
from tests.support.proposer_at_work import Care
from tests.support.remediation_fleet import INCIDENT, NODES, hung, let, place
from tests.support.watched_jobs import ring_record


def test_a_verdict_that_breaks_the_plan_is_left_out_alone(care: Care, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried with the others, then alone, then passed by; the engine hears nothing of it but a count."""
    real = proposals.build_proposal

    def broken(session: Any, incident: Incident, *rest: Any) -> Any:
        if incident.verdict_version == 2:
            raise RuntimeError("no plan for this one")
        return real(session, incident, *rest)

    monkeypatch.setattr(proposer_module, "build_proposal", broken)
    for _ in range(8):
        care.turn()
    failures = care.counts.failures
    care.publish(verdict())
    care.turn()

    assert failures >= 2
    assert care.counts.failures == failures
    assert care.only().verdict_version == 3


@pytest.mark.system
def test_after_one_that_is_left_out_many_are_taken_up_at_once_again(
    care: Care, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A happening that breaks is followed by hundreds, and more come with each look: all are taken up within 20 looks."""
    real = proposals.build_proposal

    def broken(session: Any, incident: Incident, *rest: Any) -> Any:
        if incident.id == INCIDENT:
            raise RuntimeError("no plan for this one")
        return real(session, incident, *rest)

    monkeypatch.setattr(proposer_module, "build_proposal", broken)
    for _ in range(600):
        care.tell("noted")
    for _ in range(20):
        care.turn(0.6)
        for _ in range(3):
            care.tell("noted")
    with care.database.session() as session:
        newest = session.scalar(select(func.max(TimelineEntry.sequence))) or 0
        behind = newest - session.get_one(Cursor, proposer_module.READER).sequence

    assert care.counts.failures >= 2
    assert behind <= 3


def test_a_proposer_whose_lease_was_taken_writes_nothing(care: Care) -> None:
    """Another engine has taken over: the pass raises Lost and no proposal is there."""
    with care.database.transaction() as session:
        session.get_one(LeaseRow, "engine").token = 99
    with pytest.raises(LeaseLost):
        care.turn()
    assert care.all() == []


def test_a_kill_before_the_commit_loses_nothing(care: Care, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass dies after its last write: neither proposal nor place is stored, and the next process proposes once."""

    def killed(*_arguments: Any) -> None:
        raise SystemExit(9)

    with monkeypatch.context() as patch:
        patch.setattr(timeline, "add", killed)
        with pytest.raises(SystemExit):
            care.turn()
    assert care.all() == []
    care.begin()
    care.turn()
    care.turn()
    assert care.only().version == 1


def test_what_was_before_the_first_engine_is_nobodys_plan(database: Database) -> None:
    """A proposer that begins beside an old incident proposes nothing for it."""
    hung(database)
    care = Care(database)
    care.turn()
    care.turn()
    assert care.all() == []


def test_a_save_is_noted_before_a_policy_can_act(care: Care) -> None:
    """A rank's probe is in the phase "checkpoint": the job's row says since when, and at its end when it was made."""
    care.ring("checkpoint")
    care.turn()
    with care.database.session() as session:
        since = session.get_one(Job, JOB).saving_since
    care.state.evidence.clear()
    care.turn()
    with care.database.session() as session:
        row = session.get_one(Job, JOB)

    assert since == pytest.approx(AT + 15.0)
    assert (row.saving_since, row.last_checkpoint_at) == (None, care.now)


def test_the_end_of_a_save_is_noted_when_it_ends(care: Care) -> None:
    """Nothing waits for the job any more: the save's end is noted at that moment, and not when the next verdict comes."""
    care.ring("checkpoint")
    care.turn()
    let(care.remedies, Reject(id=care.only().id, by="ann", reason="not now"), now=care.now)
    care.state.evidence.clear()
    care.turn()
    ended_at = care.now
    care.turn(3_600.0)
    with care.database.session() as session:
        row = session.get_one(Job, JOB)

    assert (row.saving_since, row.last_checkpoint_at) == (None, ended_at)
    assert row.save_seconds == pytest.approx(ended_at - AT - 15.0)


def test_a_save_in_which_the_job_hangs_makes_no_checkpoint(care: Care) -> None:
    """The hang began within the save: its end is noted, no checkpoint is, nor that saves take so long."""
    care.ring("checkpoint")
    care.turn()
    with care.database.transaction() as session:
        session.get_one(Incident, INCIDENT).onset_at = AT + 16.0
    care.state.evidence.clear()
    care.turn()
    with care.database.session() as session:
        row = session.get_one(Job, JOB)

    assert (row.saving_since, row.last_checkpoint_at, row.save_seconds) == (None, None, None)


def test_the_end_of_a_very_long_save_says_no_more_than_the_longest_wait(care: Care) -> None:
    """A rank whose clock was wrong said that it saves for a day: how long saves take stays within what is waited for."""
    care.ring("checkpoint")
    care.turn()
    with care.database.transaction() as session:
        session.get_one(Job, JOB).saving_since = AT - 86_400.0
    care.state.evidence.clear()
    with care.database.transaction() as session:
        session.get_one(Incident, INCIDENT).onset_at = AT - 90_000.0
    care.turn()
    with care.database.session() as session:
        assert session.get_one(Job, JOB).save_seconds == LONGEST_SECONDS


@pytest.mark.parametrize("ahead", [-4_000.0, 4_000.0])
def test_a_save_is_dated_by_the_clock_of_its_node(care: Care, ahead: float) -> None:
    """The node's clock is an hour wrong, and its batches show it: its save is seen, and since when by our clock."""
    at = care.now
    ring = ring_record(0, at + ahead, [("barrier", 1, at + ahead - 9.0, at + ahead - 8.0)], 2)
    record = replace(ring, job=JOB, attempt=1, phase="checkpoint")
    batch = Received(sequence=9, received_at=at, node="gpu-0001", records=(record,), sent_at=at + ahead)
    observe_batch(care.state, batch)
    care.turn()
    with care.database.session() as session:
        assert session.get_one(Job, JOB).saving_since == pytest.approx(at - 8.0)


def test_an_attempt_that_one_node_alone_tells_of_cancels_nothing(care: Care) -> None:
    """What was approved stays, and is found where it runs, until a second of the job's three nodes tells of the attempt."""
    care.turn()
    let(care.remedies, Approve(id=care.only().id, by="ann"), now=care.now)
    place(care.database, ("gpu-0003",), attempt=(1 << 31) - 1, at=care.now)
    care.turn()
    alone, book = care.only().status, care.remedies.state(care.now)
    place(care.database, NODES[:2], attempt=2, at=care.now)
    care.turn()

    assert alone == "approved"
    assert (book.facts.jobs[JOB].attempt, book.facts.jobs[JOB].nodes) == (1, NODES)
    assert care.all() == []


def test_a_policy_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    """A rule appears, a typo takes all rules away and leaves the limits, and its correction brings them back."""
    path = tmp_path / "policy.toml"
    path.write_text("[limits]\nevictions_an_hour = 2\n")
    policy = PolicyFile(path)
    assert (policy().rules, policy().limits.evictions_an_hour) == ((), 2)
    path.write_text('[limits]\nevictions_an_hour = 1\n[[rules]]\nname = "hangs"\nmode = "shadow"\n')
    assert [rule.name for rule in policy().rules] == ["hangs"]
    path.write_text("[[rules]]\nmode = 7\n")
    assert (policy().rules, policy().limits.evictions_an_hour) == ((), 1)
    assert "mode" in (policy.problem or "")
    path.write_text('[[rules]]\nname = "hangs"\n')
    assert ([rule.name for rule in policy().rules], policy.problem) == (["hangs"], None)
    path.unlink()
    assert policy().rules == ()
