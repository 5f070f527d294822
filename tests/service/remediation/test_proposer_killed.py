"""An engine that is killed at any moment, and what becomes of its proposals: each is made, and made once.

Real processes and real leases: the few seconds are theirs.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import select

from service.clock import now
from service.remediation.proposer import READER
from service.store.database import Database
from service.store.models import AuditEvent, Cursor, Remediation, TimelineEntry
from tests.service.engine.test_engine_process import engine, until, works
from tests.support.postgres import SQLITE_FIRST
from tests.support.remediation_fleet import place
from tests.support.scripted_engine import Fleet

pytestmark = pytest.mark.system

JOBS = 4
WAIT_SECONDS = 120.0  # at most: every start of an engine is a process on what may be a busy machine


def proposed(database: Database) -> dict[str, str]:
    """Return the status of each job's remediation."""
    with database.session() as session:
        return {row.job: row.status for row in session.execute(select(Remediation.job, Remediation.status))}


def begun(database: Database) -> bool:
    """Return whether a proposer has taken its place in the stream."""
    with database.session() as session:
        return session.get(Cursor, READER) is not None


@pytest.mark.parametrize("url", SQLITE_FIRST, indirect=True)
def test_kills_neither_lose_nor_double_a_proposal(url: str, database: Database, tmp_path: Path) -> None:
    """Four jobs hang while the engine is killed four times: each has one remediation, reported once on stream and audit log."""
    fleet, dice = Fleet(database, now), random.Random(5)
    jobs = [f"hung-{number}" for number in range(JOBS)]
    with engine(url, tmp_path):
        until(
            partial(begun, database), "nobody looks at the stream", WAIT_SECONDS
        )  # what comes from here on is its own
    for number, job in enumerate(jobs):
        place(database, [f"node-of-{job}", f"other-of-{job}"], job=job, at=now())
        fleet.run(job, [f"node-of-{job}", f"other-of-{job}"])
        with engine(url, tmp_path) as process:
            until(partial(works, tmp_path, number + 2), "the engine does not work", WAIT_SECONDS)
            time.sleep(dice.uniform(0.5, 2.5))  # seen, asked about, judged, published, proposed: somewhere in between
            process.kill()
    with engine(url, tmp_path):
        until(lambda: len(proposed(database)) == JOBS, "not every verdict was proposed", WAIT_SECONDS)
        time.sleep(1.0)  # for a second proposal, if there is one to come

    with database.session() as session:
        stream = session.scalars(select(TimelineEntry.job).where(TimelineEntry.kind == "remediation_proposed")).all()
        audit = session.scalars(select(AuditEvent.subject).where(AuditEvent.kind == "remediation_proposed")).all()
    assert proposed(database) == dict.fromkeys(jobs, "proposed")
    assert Counter(stream) == Counter(jobs)
    assert len(set(audit)) == len(audit) == JOBS
