"""A stack from before a job stopped or died says nothing of why: one rank computes while its peers wait at most moments."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from analyzers.incidents.cuts import make_cut
from analyzers.incidents.job_views import JobView
from analyzers.incidents.judgement import judge_cut
from analyzers.incidents.messages import Judge
from analyzers.incidents.state import EngineState
from analyzers.knowledge import Knowledge
from analyzers.model.incident import Incident, Symptom, VersionClaim
from collectors.records import FlightRecorderDump, StackDump
from service.packaged_knowledge import load
from tests.support.live_hangs import Hang

RECORDS = [record for record in Hang().records() if not isinstance(record, FlightRecorderDump)]
TAKEN_AT = max(record.at or 0.0 for record in RECORDS if isinstance(record, StackDump))
FIRST_AT = min(record.at or 0.0 for record in RECORDS if isinstance(record, StackDump))


def died(at: float) -> Symptom:
    """Ranks have ended, and how was not seen."""
    return Symptom(kind="crash", detector="rank_dead", at=at, text="rank 2 has ended", nodes=("node-1",))


def stood(at: float) -> Symptom:
    """No step came after this instant."""
    return Symptom(kind="hang", detector="no_progress", at=at, text="no step")


def incident(*symptoms: Symptom, opened_at: float) -> Incident:
    """Return an incident with these symptoms, in the order in which they were seen."""
    return Incident(
        id="inc-1", kind=symptoms[0].kind, job="llama", attempt=1, opened_at=opened_at, onset_at=symptoms[0].at, after=0,
        symptoms=symptoms, answered=2,
    )  # fmt: skip


def named(about: Incident, state: EngineState | None = None) -> bool:
    """Whether the rank that computed is named."""
    cut = make_cut(state or EngineState(Knowledge(), now=TAKEN_AT + 60.0), about)
    verdict = judge_cut(Judge(incident="inc-1", cut=cut, records=RECORDS, attempt=1), load()).verdict
    return any(one.ranks == (2,) for one in verdict.culprits)


@pytest.mark.parametrize(("seconds_before", "is_named"), [(3.0, False), (40.0, False), (-3.0, True)])
def test_a_stack_from_before_the_end_says_not_why_the_job_ended(seconds_before: float, is_named: bool) -> None:
    """Only where it stands afterwards counts."""
    left_at = TAKEN_AT + seconds_before

    assert named(incident(died(left_at), opened_at=left_at + 2.0)) is is_named


@pytest.mark.parametrize("seconds_before", [1.0, 3.0, 8.0])
@pytest.mark.parametrize("first", ["the deaths", "the standstill"])
def test_nor_where_its_peers_hang_since(first: str, seconds_before: float) -> None:
    """The others wait for the dead: whichever is seen first, the job ran until a rank died."""
    died_at = TAKEN_AT + seconds_before
    symptoms = [died(died_at), stood(died_at - 0.5)]

    about = incident(*(symptoms if first == "the deaths" else symptoms[::-1]), opened_at=died_at + 8.0)
    assert not named(about)


@pytest.mark.parametrize("kind", ["hang", "silence"])
def test_a_rank_that_held_its_peers_up_before_they_died_stays_named(kind: str) -> None:
    """The launcher ends all of them after the watchdog's timeout: the incident was open by then."""
    hung = replace(stood(FIRST_AT - 20.0), kind=kind)
    about = incident(hung, opened_at=FIRST_AT - 5.0)

    assert named(about)
    assert named(replace(about, symptoms=(hung, died(TAKEN_AT + 3.0))))


def test_a_rank_that_a_verdict_named_stays_named_in_an_incident_of_a_device() -> None:
    """It was opened by the device's error, and judged as a hang before the ranks died."""
    error = Symptom(kind="hardware", detector="hardware_event", at=FIRST_AT - 20.0, text="Xid 79")
    about = incident(error, stood(FIRST_AT - 20.0), died(TAKEN_AT + 3.0), opened_at=FIRST_AT - 19.0)

    assert not named(about)
    assert named(replace(about, claims=(VersionClaim(at=TAKEN_AT + 1.0, symptom="hang", cause="machine"),)))


def test_a_job_that_moved_after_its_standstill_ran_until_it_died() -> None:
    """The standstill was over, and its incident not closed yet."""
    view = JobView("llama", 1)
    view.progress.at, view.progress.step = TAKEN_AT + 1.0, 31
    state = EngineState(Knowledge(), now=TAKEN_AT + 60.0)
    state.jobs["llama", 1] = view
    about = incident(stood(FIRST_AT - 20.0), died(TAKEN_AT + 3.0), opened_at=FIRST_AT - 5.0)

    assert named(about)
    assert not named(about, state)


@pytest.mark.parametrize(
    "before",
    [
        Symptom(kind="hardware", detector="hardware_event", at=FIRST_AT - 200.0, text="Xid 94"),
        Symptom(kind="numeric", detector="nan", at=FIRST_AT - 200.0, text="the loss is NaN"),
    ],
    ids=["an error of a device", "a NaN"],
)
def test_a_standstill_begins_when_the_job_stops_not_with_what_was_seen_before(before: Symptom) -> None:
    """A job may run for minutes after an error of a device, or a NaN, and then stop."""
    assert not named(incident(before, stood(TAKEN_AT + 15.0), opened_at=FIRST_AT - 199.0))
    assert named(incident(before, stood(FIRST_AT - 5.0), opened_at=FIRST_AT - 199.0))
