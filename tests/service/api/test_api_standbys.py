"""How many nodes should stand by: from the fleet's own failures as the store has seen them, each once, and the guilty only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import event

from analyzers.remediation.node_history import DAY_SECONDS
from analyzers.remediation.standbys import count_standbys, estimate_rate
from service.clock import now
from service.remediation import fleet_history, rows
from service.remediation.fleet_history import FailureHistory
from service.store.database import Database
from service.store.models import Attempt, Execution, Feedback, Incident, Job, Node, Placement, Verdict
from tests.support.incident_rows import JOB, seed, verdict
from tests.support.remediation_fleet import place, plan
from tests.support.served import Client, served

NOW = 1_795_230_847.0
SINCE = NOW - 90 * DAY_SECONDS


def named(database: Database, number: int, days_ago: float, node: str = "gpu-0002", **more: Any) -> str:
    """Store an incident that closed, whose verdict would take a node out; return its id."""
    at = NOW - days_ago * DAY_SECONDS
    reported: dict[str, Any] = {"closed_at": at + 600, "verdicts": [verdict(node=node)]} | more
    return seed(database, f"inc-{number:012x}", at=at, **reported)


def taken_out(database: Database, number: int, days_ago: float, node: str = "gpu-0002", **more: Any) -> None:
    """Store that a node was taken out for an incident, and what came of it."""
    at = NOW - days_ago * DAY_SECONDS
    id, incident = f"rem-{number:012x}", f"inc-{number:012x}"
    reported = {"status": "done", "outcome": "cured", "began_at": at, "changed_at": at + 60, "out": (node,)} | more
    with database.transaction() as session:
        rows.write_remediation(
            session, replace(plan(id=id, incident=incident, nodes=(node,), proposed_at=at), **reported)
        )
        session.add(Execution(remediation=id, at=at, nodes=[node]))


def history(database: Database) -> FailureHistory:
    """Return what the fleet's history tells of ninety days."""
    with database.session() as session:
        return fleet_history.read_failures(session, SINCE, NOW)


@pytest.mark.system
def test_a_failure_is_counted_once(database: Database) -> None:
    """Named, taken out for it an hour later, and named again within the day: one failure; a week later it is another."""
    named(database, 1, days_ago=10)
    taken_out(database, 1, days_ago=10 - 1 / 24)
    named(database, 2, days_ago=9.5)
    assert (history(database).failures, history(database).executions) == (1, 1)

    named(database, 3, days_ago=3)
    named(database, 4, days_ago=3, node="gpu-0003")
    assert (history(database).failures, history(database).executions) == (3, 1)


@pytest.mark.parametrize("ended", [{"outcome": "not_cured"}, {"status": "undone", "outcome": None}])
def test_a_node_that_was_not_it_has_not_failed(database: Database, ended: dict[str, Any]) -> None:
    """What cured nothing, and what a person took back, is no failure, though the incident's verdict names the node."""
    named(database, 1, days_ago=10)
    taken_out(database, 1, days_ago=10, **ended)

    assert history(database).failures == 0


def test_what_proves_no_machine_is_no_failure(database: Database) -> None:
    """An open incident, one that abstained, one of the code, one that an outage explains, and one before the window: none."""
    named(database, 1, days_ago=10, closed_at=None)
    named(database, 2, days_ago=11, verdicts=[replace(verdict(), abstained=True)])
    named(database, 3, days_ago=12, verdicts=[replace(verdict(), cause="code")])
    named(database, 4, days_ago=13, verdicts=[verdict(action="probe")])
    outage = named(database, 5, days_ago=14)
    with database.transaction() as session:
        session.get_one(Incident, outage).merged_into = "inc-ffffffffffff"
    named(database, 6, days_ago=91)

    assert history(database).failures == 0


def test_a_person_who_says_wrong_is_heard(database: Database) -> None:
    """Feedback that the verdict was wrong takes the failure back."""
    id = named(database, 1, days_ago=10)
    assert history(database).failures == 1
    with database.transaction() as session:
        session.add(Feedback(incident=id, verdict_version=1, at=NOW, by="ann", judgement="wrong", text=""))

    assert history(database).failures == 0


@pytest.mark.parametrize(
    ("document", "failures"),
    [(b'{"symptom": 7, "action": {"nodes": ["gpu-0002"]}}', 0), (b'{"action": 7}', 1), (b"\xff", 1)],
)
def test_a_verdict_of_another_program_breaks_nothing(database: Database, document: bytes, failures: int) -> None:
    """Of a verdict that was wrong only its nodes are asked for; where it does not say them it takes nothing back."""
    id = named(database, 1, days_ago=10)
    with database.transaction() as session:
        session.add(Feedback(incident=id, verdict_version=1, at=NOW, by="ann", judgement="wrong", text=""))
        session.get_one(Verdict, (id, 1)).document = document

    assert history(database).failures == failures


def test_many_incidents_are_one_question(database: Database) -> None:
    """As many queries are asked for forty incidents as for one."""

    def asked() -> int:
        statements: list[str] = []
        with database.session() as session:
            engine = session.get_bind()
            note = lambda _c, _u, statement, *_: statements.append(statement)  # noqa: E731 - listened to by its name
            event.listen(engine, "before_cursor_execute", note)
            fleet_history.read_failures(session, SINCE, NOW)
            event.remove(engine, "before_cursor_execute", note)
        return len(statements)

    named(database, 1, days_ago=10)
    alone = asked()
    for number in range(2, 41):
        named(database, number, days_ago=10)

    assert asked() == alone


def test_node_days_are_those_in_which_nodes_reported(database: Database) -> None:
    """A node of a hundred days counts ninety, one that came ten days ago ten, one that has long gone nothing."""
    spans = {"old": (100.0, 0.0), "new": (10.0, 0.0), "gone": (200.0, 95.0)}
    with database.transaction() as session:
        for name, (first, last) in spans.items():
            seen = {"first_seen_at": NOW - first * DAY_SECONDS, "last_seen_at": NOW - last * DAY_SECONDS}
            session.add(Node(name=name, **seen))

    assert history(database).node_days == pytest.approx(100.0)


# --- over REST


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Return a client of a service with a job on three nodes that has one spare declared."""
    with served(tmp_path_factory.mktemp("service"), engine=False) as client:
        place(client.service.database, at=now())
        with client.service.database.transaction() as session:
            session.get_one(Job, JOB).declared = {"spares": 1}
        yield client


def test_a_young_fleet_has_the_believed_rate(client: Client) -> None:
    """Without a history the prior is all there is, and the sentence says so; the sizes of the paper's table are there."""
    found = client.get("/v1/fleet/standbys").json()
    prior = client.service.weights().rate
    rate = estimate_rate(0, found["rate"]["node_days"], prior)

    assert found["nodes"] == 3
    assert found["rate"]["per_node_day"] == pytest.approx(1 / 264, rel=1e-3)
    assert "mostly the rate that is believed of any fleet" in found["why"]
    assert {one["nodes"]: one["standbys"] for one in found["sizes"]} == {
        size: count_standbys(size, rate.per_node_day) for size in (3, 128, 256, 512, 1_024)
    }
    (job,) = found["jobs"]
    assert (job["job"], job["nodes"], job["spares"], job["missing"]) == (JOB, 3, 1, 0)


def test_a_fleet_that_nobody_has_seen_is_given_no_number(tmp_path: Path) -> None:
    """Without any node there is nothing to count by, and the sentence says so instead of a share of nothing."""
    with served(tmp_path) as client:
        assert client.get("/v1/fleet/standbys").json()["why"].startswith("no node has reported lately")


def test_a_job_that_has_ended_needs_no_standbys(client: Client) -> None:
    """A job that no agent has seen for some minutes is not compared with its spares."""
    with client.service.database.transaction() as session:
        ended = Job(name="ended", first_seen_at=now() - 7_200, last_seen_at=now() - 3_600, declared={}, version=1)
        session.add(ended)
        session.flush()
        session.add(
            Attempt(job="ended", number=0, first_seen_at=now() - 7_200, last_seen_at=now() - 3_600, world_size=1)
        )
        session.add(
            Placement(
                job="ended", attempt=0, rank=0, node="n0", first_seen_at=now() - 7_200, last_seen_at=now() - 3_600
            )
        )

    assert [one["job"] for one in client.get("/v1/fleet/standbys").json()["jobs"]] == [JOB]


def test_failures_raise_the_number(client: Client) -> None:
    """With ten failures the rate, its interval and the standbys are those of the functions, and higher than before."""
    before = client.get("/v1/fleet/standbys", params={"nodes": 512}).json()
    at = now()
    for number in range(10):
        seed(client.service.database, f"inc-{number:012x}", at=at - number * 2 * DAY_SECONDS - 60, closed_at=at,
             verdicts=[verdict()])  # fmt: skip
    found = client.get("/v1/fleet/standbys", params={"nodes": 512}).json()
    rate = estimate_rate(10, found["rate"]["node_days"], client.service.weights().rate)

    assert found["rate"]["failures"] == 10
    assert [found["rate"][name] for name in ("per_node_day", "low", "high")] == pytest.approx(
        [rate.per_node_day, rate.low, rate.high], rel=1e-3
    )
    assert found["standbys"] == count_standbys(512, rate.per_node_day) > before["standbys"]
    assert found["standbys_low"] < found["standbys"] < found["standbys_high"]
    assert "10 failures in" in found["why"]


@pytest.mark.parametrize("nodes", ["0", "-1", "100001", "many"])
def test_nodes_that_cannot_be_are_refused(client: Client, nodes: str) -> None:
    """No node, fewer, more than a fleet has, and a word: 422, and nothing is computed."""
    assert client.get("/v1/fleet/standbys", params={"nodes": nodes}).status_code == 422


def test_the_largest_fleet_is_answered(client: Client) -> None:
    """A hundred thousand nodes are no work for anybody."""
    assert client.get("/v1/fleet/standbys", params={"nodes": 100_000}).json()["standbys"] > 100
