"""What the engine has learned of a job's rhythm outlives it, and anybody may read it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from analyzers.incidents.hosting import Hosting
from analyzers.incidents.job_views import JobView
from analyzers.incidents.state import EngineState
from collectors.records import Members, Placement
from service.api.job_rows import current_attempts
from service.api.resources.job_progress import newest_progress
from service.cli.jobs import print_progress
from service.engine import learned
from service.packaged_knowledge import load
from service.store.database import Database
from service.store.models import Attempt, Job
from service.store.window.steps import JobSteps
from tests.support.watched_jobs import START, WatchedJob, watched


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """A database of its own."""
    found = Database(f"sqlite:///{tmp_path / 'store.db'}")
    found.migrate()
    yield found
    found.close()


def with_checkpoints() -> JobView:
    """A job that has saved every 500 steps for an hour and a half."""
    return watched(WatchedJob(law=lambda step, _: 61.0 if step % 500 == 0 else 1.0), 5_300.0)


def after_a_restart(database: Database, seconds: float = 5_300.0) -> JobView:
    """Its view in the next engine, which reads the newest ten minutes of the log again."""
    job = WatchedJob(law=lambda step, _: 61.0 if step % 500 == 0 else 1.0)
    for _ in job.batches(0.0, seconds - 600.0):
        pass
    view = watched(job, seconds, since=seconds - 600.0)
    with database.session() as session:
        known = learned.read(session, START + seconds)
    view.restore(known["run", 0])
    return view


def test_a_bound_is_the_same_after_a_restart(database: Database) -> None:
    """The checkpoint's place, the habit and its length are there again."""
    state = EngineState(load())
    state.jobs["run", 0] = before = with_checkpoints()
    with database.transaction() as session:
        learned.write(session, learned.Learned().due(state, START + 5_300.0))
    after = after_a_restart(database)

    for step in (5_100, 5_499, 5_999):
        assert after.progress.rhythm.allowed_seconds(step) == pytest.approx(
            before.progress.rhythm.allowed_seconds(step)
        )
    assert before.progress.rhythm.allowed_seconds(5_499) > 60.0


def test_an_attempt_is_written_now_and_then(database: Database) -> None:
    """Not at each tick, again after the span, and an attempt without a number too."""
    state, kept = EngineState(load()), learned.Learned()
    state.jobs["run", None] = watched(WatchedJob(), 100.0)
    assert len(kept.due(state, START)) == 1
    assert kept.due(state, START + learned.EVERY_SECONDS / 2) == []
    rows = kept.due(state, START + learned.EVERY_SECONDS)
    with database.transaction() as session:
        learned.write(session, rows)
        learned.write(session, rows)
        assert set(learned.read(session, START)) == {("run", None)}


@pytest.mark.parametrize(
    ("end", "how"), [((100.0, None, 15), "its processes were sent SIGTERM"), ((100.0, 0, None), "")]
)
def test_an_end_that_is_known_after_a_writing_is_written_at_once(
    end: tuple[float, int | None, int | None], how: str
) -> None:
    """The ends come seconds after they happened: the row that was written in between says nothing of them."""
    job = WatchedJob(nodes=1, ended=dict.fromkeys(range(4), end))
    state, kept = EngineState(load()), learned.Learned()
    state.jobs["run", 0] = view = watched(job, 100.0)
    assert "ended_at" not in kept.due_of_new(state, START + 102.0)[0]["document"]
    state.jobs["run", 0] = watched(job, 104.0, view, 100.0)
    (row,) = kept.due_of_new(state, START + 104.0)

    assert row["document"]["ended_at"] == pytest.approx(START + 100.0)
    assert row["document"]["ended_how"] == how
    assert kept.due_of_new(state, START + 105.0) == []


def test_what_cannot_be_read_costs_itself() -> None:
    """A document of another shape is left out, and the job is judged without it."""
    from analyzers.incidents.memory import take_learned

    state = EngineState(load())
    state.jobs["run", 0] = JobView("run", 0)
    state.learned["run", 0] = {"progress": {"standstills": [{"key": 7}], "rows": "x"}}
    take_learned(state, ("run", 0))

    assert (state.failed, state.learned) == (1, {})


@pytest.mark.parametrize("ends", [True, False])
def test_a_job_that_has_ended_has_no_bound(database: Database, capsys: pytest.CaptureFixture[str], ends: bool) -> None:
    """Nobody waits for its next step; what was learned of it stays."""
    job = WatchedJob(ended=dict.fromkeys(range(8), (100.0, 0, None)) if ends else {}, stopped_at=100.0)
    state = EngineState(load())
    state.jobs["run", 0] = watched(job, 130.0)
    with database.transaction() as session:
        learned.write(session, learned.Learned().due(state, START + 130.0))
        shown = newest_progress(session, "run", None)
        assert shown is not None
        newer = newest_progress(session, "run", JobSteps(attempt=0, step=131, at=shown.as_of + 1.0, recent_seconds=()))
    print_progress(msgspec.to_builtins(shown))

    assert (shown.allowed_seconds is None, shown.ended_at == pytest.approx(START + 100.0)) == (ends, ends)
    assert shown.p99_seconds is not None
    assert (shown.is_outdated, shown.silent_now_seconds) == (False, shown.silent_seconds)
    assert newer is not None
    assert newer.is_outdated
    assert newer.silent_now_seconds > newer.silent_seconds
    assert ("allowed now" in (said := capsys.readouterr().out), "have ended" in said) == (not ends, ends)


def test_who_joined_late_is_named_with_what_confirms_it(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    """A rollout that was added while the job trains is in no verdict: over REST, in `jobs show` and on the page it says so."""
    state = EngineState(load())
    state.jobs["run", 0] = watched(WatchedJob(), 100.0)
    hosting = state.hosting["run"] = Hosting()
    hosting.take("n0", [Placement(job="run", attempt=0, ranks=Members.of([0]), world_size=1)], START)
    late = Placement(job="run", attempt=0, ranks=Members.of([0]), roles=("rollout",))
    hosting.take("gpu-0413", [late], START + 500.0)
    with database.transaction() as session:
        learned.write(session, learned.Learned().due(state, START + 530.0))
        shown = newest_progress(session, "run", None)
    assert shown is not None
    print_progress(msgspec.to_builtins(shown))

    assert shown.unconfirmed == ("gpu-0413",)
    said = " ".join(capsys.readouterr().out.split())
    assert "What gpu-0413 reports of it is left out" in said
    assert "PUT /v1/jobs/JOB" in said


def test_a_slowdown_is_shown_with_the_job(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    """Since when its steps take longer, and by how much, is in the document and in `jobs show`; a next engine knows it too."""
    state = EngineState(load())
    state.jobs["run", 0] = watched(WatchedJob(law=lambda step, _noise: 1.5 if step > 900 else 1.0), 1_500.0)
    with database.transaction() as session:
        learned.write(session, learned.Learned().due(state, START + 1_500.0))
        shown = newest_progress(session, "run", None)
        kept = learned.read(session, START + 1_500.0)
    assert shown is not None
    assert shown.slowdown is not None
    assert (shown.slowdown.before_seconds, shown.slowdown.seconds) == pytest.approx((1.0, 1.5), rel=0.01)
    assert shown.slowdown.since == pytest.approx(START + 900.0, abs=12.0)

    print_progress(msgspec.to_builtins(shown))
    view = JobView("run", 0)
    view.restore(kept["run", 0])

    assert "50 % longer than before (1 s)" in capsys.readouterr().out
    assert view.progress.slowdown == state.jobs["run", 0].progress.slowdown


ATTEMPTS = [
    ({0: (100.0, 100.0), 1: (130.0, None)}, 1),  # restarted by its launcher
    ({0: (100.0, 100.0), 1: (130.0, 131.0)}, 1),  # and ended
    ({0: (100.0, None), 1: (130.0, 131.0)}, 1),  # nobody saw how the first one ended
    ({0: (200.0, None), 2: (130.0, 131.0)}, 0),  # started again by hand
    ({0: (200.0, 201.0), 2: (130.0, 131.0)}, 0),
]


@pytest.mark.parametrize(("attempts", "current"), ATTEMPTS)
@pytest.mark.parametrize("first", [0, -1])
def test_a_job_is_in_the_attempt_that_lived_last(
    database: Database, attempts: dict[int, tuple[float, float | None]], current: int, first: int
) -> None:
    """Whichever row the engine wrote last: every half a minute it writes each of them again."""
    order = sorted(attempts, reverse=first != 0)
    with database.transaction() as session:
        session.add(Job(name="run", first_seen_at=0.0, last_seen_at=300.0))
        session.flush()
        for turn, number in enumerate(order):
            seen, ended = attempts[number]
            session.add(Attempt(job="run", number=number, first_seen_at=0.0, last_seen_at=seen))
            document = JobView("run", number).document(300.0) | ({} if ended is None else {"ended_at": ended})
            learned.write(session, [{"job": "run", "attempt": number, "at": 300.0 + turn, "document": document}])
        session.flush()
        found = current_attempts(session, ["run"])["run"]
        shown = newest_progress(session, "run", None)

    assert shown is not None
    assert (found.number, shown.attempt) == (current, current)
    assert (found.over_at is None, shown.ended_at) == (attempts[current][1] is None, attempts[current][1])


def test_an_attempt_that_is_started_again_says_since_when(database: Database) -> None:
    """Its steps are then those of the newest run, in the next engine too."""
    view = JobView("run", 0)
    view.run_began_at = 500.0
    with database.transaction() as session:
        learned.write(session, [{"job": "run", "attempt": 0, "at": 600.0, "document": view.document(600.0)}])
        session.flush()
        found = current_attempts(session, ["run"])["run"]
        next_one = JobView("run", 0)
        next_one.restore(learned.read(session, 600.0)["run", 0])

    assert (found.began_at, next_one.run_began_at) == (500.0, 500.0)


def test_a_job_that_counts_from_its_first_attempt_again_is_at_that(database: Database) -> None:
    """Its earlier, higher attempt has ended; the row of the attempts still shows when the first one was seen before."""
    with database.transaction() as session:
        session.add(Job(name="run", first_seen_at=0.0, last_seen_at=400.0))
        session.flush()
        for number, seen_at in ((0, 100.0), (2, 400.0)):
            session.add(Attempt(job="run", number=number, first_seen_at=0.0, last_seen_at=seen_at))
        documents = {0: {"run_began_at": 420.0}, 2: {"ended_at": 400.0}}
        for number, more in documents.items():
            document = JobView("run", number).document(430.0) | more
            learned.write(session, [{"job": "run", "attempt": number, "at": 430.0, "document": document}])
        session.flush()
        found = current_attempts(session, ["run"])["run"]

    assert found.number == 0


def test_what_begins_or_ends_is_written_at_once() -> None:
    """And else twice a minute: a person asks for a job that has just begun."""
    state, kept = EngineState(load()), learned.Learned()
    state.jobs["run", 0] = view = JobView("run", 0)
    assert [row["attempt"] for row in kept.due_of_new(state, START)] == [0]
    assert not kept.due_of_new(state, START + 1.0)
    view.run_began_at = START + 5.0
    assert [row["document"]["run_began_at"] for row in kept.due_of_new(state, START + 6.0)] == [START + 5.0]
    assert not kept.due_of_new(state, START + 7.0)
