"""Engines as processes: killed at any moment, two on one database, a database that goes away, a service that dies.

Two dozen real processes are started, and leases have to run out: nothing here sleeps for anything else.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil  # type: ignore[import-untyped]
import pytest
from sqlalchemy import select

from service.clock import now
from service.store.database import Database
from service.store.models import Incident as IncidentRow
from service.store.models import Lease, TimelineEntry
from service.store.models import Verdict as VerdictRow
from tests.support.bounds import in_time
from tests.support.postgres import SQLITE_FIRST, Server
from tests.support.scripted_engine import REPOSITORY, Fleet
from tests.support.served import serving

pytestmark = pytest.mark.system


HELD_SECONDS = 3.0
WAIT_SECONDS = 120.0
Process = subprocess.Popen[bytes]


@contextmanager
def engine(url: str, folder: Path, owner: str = "a") -> Iterator[Process]:
    """Run a scripted engine; its log is in the folder."""
    environment = os.environ | {"FAULTHOUND_DATABASE_URL": url, "FAULTHOUND_LOG_LEVEL": "info"}
    command = [sys.executable, "-m", "tests.support.scripted_engine", owner, str(HELD_SECONDS)]
    with (folder / f"{owner}.log").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=REPOSITORY, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.close()


def until(holds: Callable[[], Any], what: str, seconds: float = WAIT_SECONDS) -> Any:
    """Wait until something holds; return what it is."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return found


def works(folder: Path, times: int) -> bool:
    """Return whether an engine has taken up its work so many times."""
    return (folder / "a.log").read_text().count("engine_works") >= times


def published(database: Database) -> dict[str, int]:
    """Return the newest version of each job's verdict."""
    with database.session() as session:
        rows = session.execute(select(IncidentRow.job, IncidentRow.verdict_version)).all()
    return {row.job: row.verdict_version for row in rows if row.verdict_version}


def check_once(database: Database, jobs: list[str]) -> None:
    """Each job has one incident with one verdict that names its own node, and each was reported once."""
    with database.session() as session:
        incidents = session.scalars(select(IncidentRow)).all()
        verdicts = session.scalars(select(VerdictRow)).all()
        reported = session.execute(select(TimelineEntry.incident, TimelineEntry.kind)).all()
    assert sorted(one.job or "" for one in incidents) == sorted(jobs)
    assert {one.incident: one.version for one in verdicts} == {one.id: 1 for one in incidents}
    for one in incidents:
        assert [culprit["id"] for culprit in one.culprits] == [f"node-of-{one.job}"]
        for kind in ("opened", "published"):
            assert sum(tuple(row) == (one.id, kind) for row in reported) == 1, (one.job, kind)


@pytest.mark.parametrize("url", SQLITE_FIRST, indirect=True)
def test_an_engine_that_is_killed_goes_on_where_it_was(database: Database, url: str, tmp_path: Path) -> None:
    """Killed five times while four jobs begin to hang: each gets one incident and one verdict, the right one."""
    dice = random.Random(8)
    fleet = Fleet(database, now)
    jobs = [f"hung-{number}" for number in range(4)]
    for number in range(5):
        for job in jobs[number : number + 1]:
            fleet.run(job, [f"node-of-{job}"])
        with engine(url, tmp_path) as process:
            until(partial(works, tmp_path, number + 1), "the engine does not work")
            time.sleep(dice.uniform(0.0, 1.0))  # a job is seen, asked about, judged and reported in this time
            process.kill()
    with engine(url, tmp_path):
        until(lambda: len(published(database)) == len(jobs), "not every job was judged")

    check_once(database, jobs)


def test_a_second_engine_takes_over(postgres: Server, tmp_path: Path) -> None:
    """Two on one PostgreSQL: one works and the other waits; when the first is killed the other does the rest, once."""
    database = Database(postgres.new_migrated())
    url = database.engine.url.render_as_string(hide_password=False)
    fleet = Fleet(database, now)

    def holder() -> str:
        with database.session() as session:
            row = session.get(Lease, "engine")
        return row.owner if row is not None and row.until > now() else ""

    with engine(url, tmp_path, "a") as first, engine(url, tmp_path, "b") as second:
        until(holder, "nobody took the lease")
        processes = {"a": first, "b": second}
        working = holder()
        fleet.run("hung-1", ["node-of-hung-1"])
        until(lambda: published(database) == {"hung-1": 1}, "the first job was not judged")
        fleet.run("hung-2", ["node-of-hung-2"])
        time.sleep(0.3)
        processes[working].kill()
        killed_at = time.monotonic()
        until(lambda: holder() not in ("", working), "nobody took over")
        took_seconds = time.monotonic() - killed_at
        until(lambda: len(published(database)) == 2, "the second job was not judged")

    assert in_time(took_seconds, HELD_SECONDS + 5)
    check_once(database, ["hung-1", "hung-2"])
    database.close()


def test_an_engine_that_stood_still_writes_nothing_more(postgres: Server, tmp_path: Path) -> None:
    """One that is stopped until another has its lease finds, when it goes on, that it is another's."""
    database = Database(postgres.new_migrated())
    url = database.engine.url.render_as_string(hide_password=False)
    fleet = Fleet(database, now)

    with engine(url, tmp_path, "a") as first:
        fleet.run("hung-1", ["node-of-hung-1"])
        until(lambda: "hung-1" in published(database), "the first job was not judged")
        first.send_signal(signal.SIGSTOP)
        with engine(url, tmp_path, "b"):
            fleet.run("hung-2", ["node-of-hung-2"])
            until(lambda: len(published(database)) == 2, "the second job was not judged")
            first.send_signal(signal.SIGCONT)
            until(lambda: "engine_lost" in (tmp_path / "a.log").read_text(), "the first did not notice")
            fleet.run("hung-3", ["node-of-hung-3"])
            until(lambda: len(published(database)) == 3, "the third job was not judged")

    check_once(database, ["hung-1", "hung-2", "hung-3"])
    database.close()


def test_a_database_that_crashes_is_waited_for(postgres: Server, tmp_path: Path) -> None:
    """PostgreSQL crashes in the middle of a judgement and is missed: the same engine goes on, nothing comes twice."""
    database = Database(postgres.new_migrated())
    url = database.engine.url.render_as_string(hide_password=False)
    fleet = Fleet(database, now)

    with engine(url, tmp_path) as process:
        fleet.run("hung-1", ["node-of-hung-1"])
        until(lambda: _has_incident(database), "no incident was opened")
        postgres.stop("immediate")
        try:
            until(lambda: "engine_waits" in (tmp_path / "a.log").read_text(), "the engine did not miss it")
        finally:
            postgres.start()
        until(lambda: _quietly(lambda: published(database)) == {"hung-1": 1}, "the job was not judged")
        assert process.poll() is None

    check_once(database, ["hung-1"])
    database.close()


def _has_incident(database: Database) -> bool:
    with database.session() as session:
        return session.scalar(select(IncidentRow.id)) is not None


def _quietly(ask: Callable[[], Mapping[str, int]]) -> Mapping[str, int]:
    """Return nothing where the test's own connection broke, too."""
    from sqlalchemy.exc import OperationalError

    try:
        return ask()
    except OperationalError:
        return {}


def test_the_service_keeps_an_engine_running(tmp_path: Path) -> None:
    """/readyz says that it works; killed, it is started again; killed with the service, it ends by itself."""
    with ExitStack() as stack:
        url, service = stack.enter_context(serving(tmp_path))
        children = psutil.Process(service.pid).children
        until(lambda: standing(url) == "working", "the engine does not work")
        (first,) = children()
        first.kill()
        until(lambda: {one.pid for one in children()} - {first.pid}, "no engine was started again")
        until(lambda: standing(url) == "working", "the new engine does not work")
        metrics = httpx.get(f"{url}/metrics").text
        (second,) = children()
        service.kill()
        service.wait()
        gone, _alive = psutil.wait_procs([second], timeout=60)

    assert "faulthound_engine_starts_total 2.0" in metrics
    assert "faulthound_engine_working 1.0" in metrics
    assert gone == [second] or not second.is_running()


def test_a_service_that_ends_gives_the_lease_back(tmp_path: Path) -> None:
    """After SIGTERM no engine is left, and the next service's need not wait for the lease."""
    with serving(tmp_path) as (url, service):
        until(lambda: standing(url) == "working", "the engine does not work")
        (child,) = psutil.Process(service.pid).children()
        service.terminate()
        service.wait(timeout=30)

    database = Database(f"sqlite:///{tmp_path / 'data' / 'faulthound.db'}")
    with database.session() as session:
        lease = session.get(Lease, "engine")
    assert lease is not None
    assert lease.until == 0.0
    assert not child.is_running()
    database.close()


def test_a_service_may_run_without_an_engine(tmp_path: Path) -> None:
    """FAULTHOUND_ENGINE=false is an API alone: no process is started, and /readyz says so."""
    with serving(tmp_path, {"FAULTHOUND_ENGINE": "false"}) as (url, service):
        assert standing(url) == "none"
        assert psutil.Process(service.pid).children() == []
        assert "engine_up" not in httpx.get(f"{url}/metrics").text


def standing(url: str) -> str:
    """Return what /readyz says of the engine."""
    answer = httpx.get(f"{url}/readyz", timeout=10)
    return str(answer.json().get("engine", "?"))
