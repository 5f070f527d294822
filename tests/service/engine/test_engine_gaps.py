"""Gaps in the engine's time: a clock that is set forward, a machine that was suspended, a service that was down."""

from __future__ import annotations

import pytest

from analyzers.incidents.awaited import GRACE_SECONDS
from service.store.database import Database
from service.store.models import Incident as IncidentRow
from tests.support.engine_bench import NODES, Bench
from tests.support.scripted_engine import script

GAPS = [600.0, 7_200.0, 20 * 86_400.0]
pytestmark = pytest.mark.system


@pytest.fixture
def bench(database: Database, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Return an engine with scripted detectors, on SQLite and on PostgreSQL."""
    return Bench(database, script(monkeypatch))


def reported(bench: Bench, seconds: float, nodes: tuple[str, ...] = NODES) -> None:
    """Let time pass while the job's nodes report every ten seconds."""
    for _ in range(int(seconds // 10)):
        bench.fleet.run("hung", nodes)
        bench.turns(1, 10.0)


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("restarted", [False, True])
def test_an_incident_goes_on_after_a_gap(bench: Bench, gap: float, *, restarted: bool) -> None:
    """The same incident is open after it: nobody could report, and that is no sign that the job has left."""
    bench.hang()
    before = bench.one(IncidentRow).id
    bench.clock.at += gap
    if restarted:
        bench.begin()
    bench.turns(3)
    reported(bench, 2 * GRACE_SECONDS)

    row = bench.one(IncidentRow)
    assert (row.id, row.closed_at) == (before, None)


def test_a_job_that_does_not_come_back_has_left(bench: Bench) -> None:
    """Once agents could report again, an incident of a job that none reports is closed, as without a gap."""
    bench.hang()
    bench.clock.at += 7_200.0
    bench.turns(3)
    assert bench.one(IncidentRow).closed_at is None
    bench.turns(int(GRACE_SECONDS))

    assert bench.one(IncidentRow).closed_at is not None


def test_a_log_that_goes_on_is_no_gap(bench: Bench) -> None:
    """An engine that was away while the service took batches decides as it reads, without a pause."""
    bench.fleet.run("healthy", NODES)
    bench.turns(1)
    for _ in range(100):
        bench.clock.at += 10.0
        bench.fleet.run("healthy", NODES)
    bench.fleet.run("hung", NODES)
    bench.begin()
    bench.turns(2)

    assert [row.job for row in bench.all(IncidentRow)] == ["hung"]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_job_whose_agents_report_again_is_decided_on_at_once(bench: Bench, *, restarted: bool) -> None:
    """After ten minutes without the service a fault that stands is reported when its nodes are heard, and no minute later."""
    bench.fleet.run("healthy", NODES)
    bench.turns(3)
    bench.clock.at += 600.0
    if restarted:
        bench.begin()
    bench.turns(2)
    bench.fleet.run("hung", NODES)
    bench.turns(3)

    assert [row.job for row in bench.all(IncidentRow)] == ["hung"]
