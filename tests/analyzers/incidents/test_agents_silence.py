"""An agent that stood for some seconds, and then sends what it reads one after the other: its silence is not the job's."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from analyzers.incidents.detectors import find_symptoms
from analyzers.incidents.job_views import JobView
from analyzers.incidents.messages import Received
from collectors.records import CollectorReport, Coverage, Samples, Steps
from tests.support.symptoms_shown import names
from tests.support.watched_jobs import START, WatchedJob, ring_record, step_record


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


def read_logs(at: float) -> Samples:
    """What a reader of logs sends when it has read all that they held."""
    ticks = array("d", [START + at]).tobytes()
    return Samples(
        source="steps", scope="log", type="<i8", devices=("",), metrics=("files",), at=START + at, ticks=ticks,
        monotonic_ticks=ticks, values=array("q", [1]).tobytes(),
    )  # fmt: skip


def with_slow_reader(job: WatchedJob, slow: list[tuple[float, float]], until: float) -> Iterator[Received]:
    """A job's batches: all come in time but what the reader of the logs gives, who in these spans ends no run."""
    at, kept = 10.0, []
    while at < until:
        whole = job.batch(0, at)
        kept += [record for record in whole.records if isinstance(record, Steps)]
        others = tuple(record for record in whole.records if not isinstance(record, Steps))
        if any(begin <= at < end for begin, end in slow):
            yield replace(whole, records=others)
        else:
            yield replace(whole, records=(*others, *kept, read_logs(at - 2.0)))
            kept = []
        at += 10.0


@pytest.mark.parametrize("seconds", [12.0, 25.0, 55.0, 95.0])
@pytest.mark.parametrize("every", [0.35, 1.0, 3.0])
def test_a_reader_of_logs_that_a_busy_node_delays_opens_nothing(seconds: float, every: float) -> None:
    """Processes are read in time, the logs long after: the job printed its steps all along."""
    job = WatchedJob(nodes=1, law=lambda _step, _noise: every)
    slow = [(191.0, 191.0 + seconds), (391.0, 391.0 + seconds)]

    assert symptoms_of(with_slow_reader(job, slow, 600.0)) == []


def test_a_hang_is_found_as_fast_as_the_reader_of_logs_is() -> None:
    """One that reads in time delays nothing; what a delayed one teaches is not the log's lateness."""
    job = WatchedJob(nodes=1, stopped_at=300.0)
    at_once = symptoms_of(with_slow_reader(job, [], 400.0))
    after_a_delay = symptoms_of(with_slow_reader(WatchedJob(nodes=1, stopped_at=300.0), [(191.0, 240.0)], 400.0))
    during_one = symptoms_of(with_slow_reader(WatchedJob(nodes=1, stopped_at=300.0), [(291.0, 340.0)], 400.0))

    assert at_once[0][0] <= 322.0
    assert after_a_delay[0][0] == at_once[0][0]
    assert during_one[0][0] <= 342.0


def test_a_reader_of_logs_that_never_comes_back_is_not_waited_for() -> None:
    """An older agent took over, or no file is left: after two minutes its node's other reports count."""
    job = WatchedJob(nodes=1, stopped_at=195.0)

    assert symptoms_of(with_slow_reader(job, [(191.0, 900.0)], 600.0))[0][0] <= 330.0


@pytest.mark.parametrize("seconds", [22.0, 45.0])
def test_rings_that_are_read_late_are_no_silence(seconds: float) -> None:
    """The probe's steps are known up to when its ring was read, and not up to the node's newest report."""
    job = WatchedJob(nodes=1, told_by="probe", law=lambda _step, _noise: 0.35)
    view, found, kept = JobView("run", 0), [], list[Steps]()
    for turn in range(1, 40):
        whole = job.batch(0, at := 10.0 * turn)
        kept += [record for record in whole.records if isinstance(record, Steps)]
        others = tuple(record for record in whole.records if not isinstance(record, Steps))
        late = 191.0 <= at < 191.0 + seconds
        ring = ring_record(0, START + at - 2.0, [("all_reduce", turn, START + at - 3.0, START + at - 2.9)], 4)
        batch = replace(whole, records=others if late else (*others, ring, *kept))
        kept = kept if late else []
        view.take(batch, batch.records)
        found += names(find_symptoms(view, batch.received_at))

    assert found == []
