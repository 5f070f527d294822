"""``POST /v1/jobs/{job}/ending`` and ``faulthound jobs ending``: a person says beforehand that a job is being stopped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import select

from service.clock import now
from service.store import endings
from service.store.database import Database
from service.store.models import AuditEvent
from tests.support.incident_rows import JOB
from tests.support.remediation_fleet import place
from tests.support.served import Client, served

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Return a client of a service without an engine, which knows one job."""
    with served(tmp_path_factory.mktemp("service"), engine=False) as client:
        place(client.service.database, at=now())
        yield client


def stored(service: Client) -> Database:
    """Return its database."""
    return service.service.database


def test_it_is_stored_with_its_author_and_expires(service: Client) -> None:
    """The engine reads it from the timeline, the audit log has it, and after its time it holds no more."""
    answer = service.post(f"/v1/jobs/{JOB}/ending", json={"reason": "a new learning rate", "seconds": 60})
    said = answer.json()

    with stored(service).session() as session:
        active = endings.active(session, said["at"] + 59.0)
        later = endings.active(session, said["at"] + 61.0)
        audited = session.scalars(select(AuditEvent).where(AuditEvent.kind == "job_ending")).all()
    assert answer.status_code == 201
    assert (said["job"], said["reason"], said["until"] - said["at"]) == (JOB, "a new learning rate", 60.0)
    assert (list(active), list(later)) == ([JOB], [])
    assert [one.subject for one in audited] == [JOB]


def test_an_unknown_job_is_refused(service: Client) -> None:
    """A misspelt name would let the real job's end be a crash."""
    assert service.post("/v1/jobs/no-such-job/ending", json={}).status_code == 404
