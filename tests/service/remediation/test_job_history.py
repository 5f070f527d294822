"""A job's past as the ladder gets it from the store: attempts, how long they ran well, what was done, alerts, the layout."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from analyzers.knowledge.convictions import weights
from analyzers.model.verdict import Action, Culprit, Verdict
from analyzers.remediation.ladder import JobHistory, JobLayout
from analyzers.remediation.ladder.standstill import died_by_itself
from service.packaged_knowledge import load
from service.remediation import job_history, rows
from service.store import incidents, timeline
from service.store.database import Database
from service.store.models import Attempt, Downtime, Incident
from service.store.models import Remediation as Row
from service.store.models import Verdict as VerdictRow
from tests.support.incident_rows import AT, JOB, seed, verdict
from tests.support.remediation_fleet import NODES, declare, place, plan

BOUNDS = weights(load()).ladder


@pytest.fixture
def database(sqlite: Database) -> Database:
    """Return an empty database."""
    return sqlite


def runs(database: Database, number: int, at: float, until: float, code: str | None = "a") -> None:
    """Let an attempt run from one instant to another."""
    place(database, attempt=number, at=at)
    with database.transaction() as session:
        run = session.get_one(Attempt, (JOB, number))
        run.last_seen_at, run.code_version = until, code


def fails(
    database: Database,
    id: str,
    attempt: int | None,
    at: float,
    *,
    said: Verdict | None = None,
    last_step: int | None = None,
    first_good_at: float | None = None,
    job: str = JOB,
) -> None:
    """Let an incident of an attempt open twelve seconds after its onset, and be judged."""
    seed(database, id, at=at, job=job, verdicts=(said or verdict(),))
    with database.transaction() as session:
        session.get_one(Incident, id).attempt = attempt
        cost = session.get_one(Downtime, id)
        cost.attempt, cost.last_step, cost.first_good_at = attempt, last_step, first_good_at


def closed(database: Database, id: str, at: float, **details: Any) -> None:
    """Close an incident as its happening tells it."""
    with database.transaction() as session:
        assert incidents.close(session, id, at, "it is over", recovered=bool(details.get("recovered")))
        timeline.add(session, at, "closed", id, JOB, {"because": "it is over", **details})


def did(database: Database, **more: Any) -> None:
    """Store a remediation."""
    with database.transaction() as session:
        rows.write_remediation(session, plan(status="done", began_at=AT, **more))


def past(database: Database, id: str, now: float = AT + 100.0) -> JobHistory:
    """Return the history as of an incident."""
    with database.session() as session:
        incident = session.get_one(Incident, id)
        said = replace(verdict(), job=JOB)
        return job_history.read_job_history(session, incident, said, BOUNDS, now)


def test_an_attempt_is_its_newest_failure(database: Database) -> None:
    """What passed by itself, or was closed by a person, was none; the code of each attempt is known, and its nodes."""
    for number, code in ((1, "a"), (2, "b"), (3, "b")):
        runs(database, number, AT + 100.0 * number, AT + 100.0 * number + 90.0, code)
    slow = replace(verdict(action="probe"), symptom="slow")
    fails(database, "inc-1", 1, AT + 150.0, said=slow)
    closed(database, "inc-1", AT + 160.0, recovered=True)
    fails(database, "inc-2", 2, AT + 250.0, said=slow)
    closed(database, "inc-2", AT + 260.0, recovered=False, by="ann")
    fails(database, "inc-3", 3, AT + 350.0)
    closed(database, "inc-3", AT + 360.0, recovered=False)
    fails(database, "inc-4", 3, AT + 370.0, said=slow)

    reported = past(database, "inc-4", AT + 400.0).attempts
    earlier = past(database, "inc-3", AT + 400.0).attempts

    assert [(one.number, one.symptom, one.code_version) for one in reported] == [
        (1, "", "a"),
        (2, "", "b"),
        (3, "hang", "b"),
    ]
    assert [one.number for one in earlier] == [1, 2, 3]
    assert earlier[-1].proven == ("gpu-0002",)
    assert past(database, "inc-4").nodes == NODES


def test_what_was_acted_upon_says_how_an_attempt_failed(database: Database) -> None:
    """The hang was remedied; the crash that its end looked like is not what the next failure is compared with."""
    runs(database, 1, AT, AT + 90.0)
    runs(database, 2, AT + 100.0, AT + 190.0)
    fails(database, "inc-1", 1, AT + 30.0)
    did(database, incident="inc-1")
    fails(database, "inc-2", 1, AT + 60.0, said=replace(verdict(), symptom="crash"))
    fails(database, "inc-3", 2, AT + 150.0)

    assert [one.symptom for one in past(database, "inc-3").attempts] == ["hang", "hang"]


@pytest.mark.system
@pytest.mark.parametrize(
    ("last_step", "first_good_at", "seconds"),
    [(500, None, 1_000.0 - 12.0), (500, AT + 700.0, 300.0 - 12.0), (None, AT + 700.0, 0.0), (500, AT - 500.0, 1_000.0 - 12.0)],
)  # fmt: skip
def test_good_seconds_begin_with_the_first_step(
    database: Database, last_step: int | None, first_good_at: float | None, seconds: float
) -> None:
    """From the first step after the failure before, where that is known; an attempt that did none never ran well."""
    runs(database, 1, AT - 900.0, AT - 100.0)
    fails(database, "inc-1", 1, AT - 200.0, last_step=7, first_good_at=first_good_at)
    runs(database, 2, AT, AT + 1_100.0)
    fails(database, "inc-2", 2, AT + 1_000.0, last_step=last_step)

    assert past(database, "inc-2").attempts[-1].good_seconds == pytest.approx(seconds)


@pytest.mark.parametrize("uncounted", [None, 0])
def test_uncounted_attempts_are_counted_by_their_incidents(database: Database, uncounted: int | None) -> None:
    """Nothing tells attempts apart: an eviction for the first incident is of another attempt than the second's failure."""
    place(database, attempt=0)
    fails(database, "inc-1", uncounted, AT, last_step=7, first_good_at=AT + 100.0)
    did(database, incident="inc-1", attempt=uncounted)
    fails(database, "inc-2", uncounted, AT + 2_000.0, last_step=8)

    reported = past(database, "inc-2", AT + 2_010.0)

    assert [one.number for one in reported.attempts] == [1, 2]
    assert reported.attempts[1].good_seconds == pytest.approx(1_900.0 - 12.0)
    assert [(one.kind, one.attempt, one.outcome) for one in reported.taken] == [("evict", 1, "done")]


@pytest.mark.parametrize(
    ("more", "outcome"),
    [({"status": "rejected"}, "refused"), ({"status": "failed"}, "refused"), ({"status": "undone"}, "refused"),
     ({"status": "executing"}, "pending"), ({"status": "verifying"}, "done"), ({"status": "proposed"}, None),
     ({"status": "approved"}, None), ({"status": "claimed"}, None), ({"status": "cancelled"}, None),
     ({"status": "cancelled", "cancelled_by": "engine"}, None), ({"status": "cancelled", "cancelled_by": "ann"}, "refused"),
     ({"status": "cancelled", "cancelled_by": "ann", "kind": "reset_gpu"}, "refused"),
     ({"status": "rejected", "kind": "reset_gpu"}, "refused"),
     ({"status": "expired"}, None), ({"status": "expired", "kind": "probe"}, "refused"),
     ({"kind": "drain_after_job"}, None), ({"kind": "reset_gpu"}, None)],
)  # fmt: skip
def test_what_was_done_is_told_by_how_it_ended(database: Database, more: dict[str, Any], outcome: str | None) -> None:
    """What nobody has answered is not reported: it is asked for anew; nor is what this attempt may outlive, if it was wanted."""
    runs(database, 1, AT - 900.0, AT)
    fails(database, "inc-1", 1, AT)
    with database.transaction() as session:
        rows.write_remediation(session, plan(**{"incident": "inc-1", "status": "done", **more}))

    assert [one.outcome for one in past(database, "inc-1").taken] == ([] if outcome is None else [outcome])


def test_one_failure_of_a_link_is_one_alert(database: Database) -> None:
    """Two jobs see it within seconds: one alert. A minute later it is another; whoever is not of the job is nobody's."""
    runs(database, 1, AT - 900.0, AT)
    place(database, job="other", at=AT)
    link = Verdict(
        symptom="hardware", cause="network", abstained=False,
        culprits=(Culprit(root="r1", kind="link", id="gpu-0002/mlx5_0"), Culprit(root="r2", kind="node", id="elsewhere")),
        action=Action(kind="probe"),
    )  # fmt: skip
    fails(database, "inc-1", 1, AT, said=link)
    fails(database, "inc-2", 1, AT + 3.0, said=link, job="other")
    once = past(database, "inc-1").alerts
    fails(database, "inc-3", 1, AT + 60.0, said=link, job="other")

    assert [(one.node, one.at) for one in once] == [("gpu-0002", AT - 12.0)]
    assert [one.node for one in past(database, "inc-1").alerts] == ["gpu-0002"] * 2
    assert past(database, "inc-1", AT + 400.0).alerts == ()


@pytest.mark.parametrize(
    ("sizes", "nodes", "gpus", "expected"),
    [
        ({"tp": 8, "pp": 4, "dp": 6}, 24, 8, JobLayout(pipeline_nodes=4, data_parallel=6)),
        ({"tp": 8, "pp": 4, "cp": 2}, 24, 8, JobLayout(pipeline_nodes=8, data_parallel=3)),
        ({"tp": 2, "dp": 32}, 8, 8, JobLayout(pipeline_nodes=1, data_parallel=8)),
        ({"dp": 64}, 8, 8, JobLayout(pipeline_nodes=1, data_parallel=8)),
        ({"tp": 8, "pp": 3}, 8, 8, None),  # a pipeline of three of eight nodes
        ({"tp": 3}, 8, 8, None),  # a pipeline that ends amid a node
        ({"tp": 8, "pp": 2}, 0, 8, None),
        ({}, 8, 8, None),
    ],
)
def test_a_layout_is_what_the_job_declares(
    database: Database, sizes: dict[str, int], nodes: int, gpus: int, expected: JobLayout | None
) -> None:
    """Ranks of a pipeline by the GPUs of a node; several pipelines on a node count as one; what does not divide is none."""
    place(database)
    declare(database, parallel=sizes)

    with database.session() as session:
        assert job_history.read_layout(session, JOB, nodes, gpus) == expected


def test_a_verdict_of_a_newer_program_is_passed_over(database: Database) -> None:
    """A document that nobody can read costs what it says, and not the proposal."""
    runs(database, 1, AT - 900.0, AT - 100.0)
    runs(database, 2, AT, AT + 90.0)
    fails(database, "inc-1", 1, AT - 200.0)
    fails(database, "inc-2", 2, AT)
    with database.transaction() as session:
        session.get_one(VerdictRow, ("inc-1", 1)).document = b'{"symptom": 7}'

    assert [one.symptom for one in past(database, "inc-2").attempts] == ["", "hang"]


@pytest.mark.parametrize(
    ("because", "expected"),
    [("all 2 processes that were seen of the job have ended: 1 by signal 6, 1 by signal 15", True),
     ("all 1 processes that were seen of the job have ended: 1 with exit code 1", True),
     ("all 2 processes that were seen of the job have ended: 2 with exit code 143", False),
     ("nothing was reported of job signal 6 for an hour", False), ("attempt 3 runs", False), ("", False)],
)  # fmt: skip
def test_who_died_is_told_by_how(because: str, expected: bool) -> None:
    """By a signal that ends no job in order, or with an error; it is asked only of those whose processes have ended."""
    assert died_by_itself(because) is expected


def test_a_remediation_of_before_is_read(database: Database) -> None:
    """One that was stored before there were replays is a remediation as ever."""
    with database.transaction() as session:
        rows.write_remediation(session, plan())
        row = session.get_one(Row, plan().id)
        row.document = {name: value for name, value in row.document.items() if name != "replay"}
        session.flush()
        found = rows.read_one(session, plan().id)

    assert found == plan()
