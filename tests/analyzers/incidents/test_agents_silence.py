"""An agent that stood for some seconds, and then sends what it reads one after the other: its silence is not the job's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from analyzers.incidents.detectors import find_symptoms
from analyzers.incidents.job_views import JobView
from analyzers.incidents.messages import Received
from collectors.records import CollectorReport, Coverage, Steps
from tests.support.symptoms_shown import names
from tests.support.watched_jobs import START, WatchedJob, step_record


def with_silences(
    job: WatchedJob, silences: list[tuple[float, float]], until: float, logs_late: float = 3.0
) -> Iterator[Received]:
    """A job's batches; in each silence the agent stands. After it the processes are read first, the logs later."""
    at = 10.0
    while at < until:
        silence = next((one for one in silences if one[0] <= at < one[1]), None)
        if silence is None:
            yield job.batch(0, at)
        else:
            whole = job.batch(0, at := silence[1])
            steps = tuple(record for record in whole.records if isinstance(record, Steps))
            yield replace(whole, records=tuple(one for one in whole.records if one not in steps))
            job.sequence += 1
            now = START + at + logs_late
            yield Received(sequence=job.sequence, received_at=now + 0.05, sent_at=now, node="n0", records=steps)
        at += 10.0


def symptoms_of(batches: Iterator[Received]) -> list[tuple[float, str]]:
    """When which detector had a symptom."""
    view, found = JobView("run", 0), []
    for batch in batches:
        view.take(batch, batch.records)
        found += [(batch.received_at - START, name) for _, name in names(find_symptoms(view, batch.received_at))]
    return found


@pytest.mark.parametrize("seconds", [18.0, 25.0, 43.0, 44.5])
@pytest.mark.parametrize("every", [0.2, 1.0, 3.0])
def test_an_agent_that_stood_for_a_while_opens_nothing(seconds: float, every: float) -> None:
    """The first batch after its silence has states of processes of now, and no line of its logs: the job ran on."""
    job = WatchedJob(nodes=1, law=lambda _step, _noise: every)

    assert symptoms_of(with_silences(job, [(191.0, 190.0 + seconds)], 400.0)) == []


@pytest.mark.parametrize("begins", [193.0, 220.0, 233.0, 236.0])
def test_a_stop_in_or_after_the_silence_is_found(begins: float) -> None:
    """A job that stops while its agent stands, or just after, is found within half a minute of the first sight of it."""
    job = WatchedJob(nodes=1, stopped_at=begins)
    found = symptoms_of(with_silences(job, [(191.0, 233.0)], 400.0))

    assert found
    assert found[0][1] == "no_progress"
    assert found[0][0] <= max(begins, 233.0) + 32.0


def test_a_stop_at_the_begin_of_the_silence_is_found() -> None:
    """No line comes any more that would show that the logs were read: it is taken to be so after ten seconds."""
    job = WatchedJob(nodes=1, stopped_at=189.0)
    found = symptoms_of(with_silences(job, [(191.0, 233.0)], 400.0))

    assert found
    assert found[0][0] <= 233.0 + 20.0


def test_silences_are_not_learned_as_lateness_of_the_log() -> None:
    """After three silences of its agent a job that stops is found as fast as before."""
    job = WatchedJob(nodes=1, stopped_at=500.0)
    silences = [(100.0, 143.0), (191.0, 233.0), (300.0, 343.0)]
    found = symptoms_of(with_silences(job, silences, 700.0))

    assert found
    assert 500.0 < found[0][0] <= 532.0


def test_logs_that_were_not_read_stay_unread() -> None:
    """Where the agent's account says that no run of the logs' reader ended well, ten seconds more prove nothing."""
    job = WatchedJob(nodes=1)
    batches = list(with_silences(job, [(191.0, 233.0)], 234.0))[:-1]
    view = JobView("run", 0)
    unread = Coverage(at=START + 243.0, collectors=(CollectorReport(name="steps", every_seconds=5.0, overran=1),))
    for turn, (at, records) in enumerate([(243.0, (unread,)), (248.0, ())]):
        batches.append(
            Received(sequence=900 + turn, received_at=START + at, sent_at=START + at, node="n0", records=records)
        )
    for batch in batches:
        view.take(batch, batch.records)
        assert find_symptoms(view, batch.received_at) == []


def test_lines_from_before_the_silence_prove_nothing() -> None:
    """What was read before the agent stood comes with the first batch after it: the logs have not been read since."""
    job = WatchedJob(nodes=1)
    view = JobView("run", 0)
    for batch in with_silences(job, [(191.0, 233.0)], 234.0):
        if batch.received_at > START + 233.0 and batch.received_at < START + 234.0:
            early = step_record([(190, START + 190.0), (191, START + 190.8)], at=START + 190.9)
            view.take(batch, (*batch.records, early))
            assert find_symptoms(view, batch.received_at) == []
