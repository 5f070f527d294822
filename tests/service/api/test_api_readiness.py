"""/readyz is about commits: it fails while none succeeds, and recovers without a sender."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import event, text

from collectors.records import KernelEvent
from service.api.state import Service
from service.store import appender
from tests.support.postgres import postgres, url
from tests.support.served import Client, an_event, served

__all__ = ["postgres", "url"]  # fixtures
LARGE = [
    KernelEvent(event="xid", code=79, node="gpu-0001", text=random.Random(seed).randbytes(400).hex())
    for seed in range(1_000)
]


@contextmanager
def full_disk(service: Service) -> Iterator[None]:
    """Let the database take no more: SQLite may have no further page, PostgreSQL raises its own error of a full disk."""
    if service.database.is_sqlite:
        with _no_page_left(service):
            yield
        return
    with service.database.transaction() as session:
        session.execute(
            text(
                "CREATE FUNCTION disk_full() RETURNS trigger LANGUAGE plpgsql AS "
                "$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$"
            )
        )
        session.execute(
            text("CREATE TRIGGER full_disk BEFORE INSERT ON batches FOR EACH ROW EXECUTE FUNCTION disk_full()")
        )
    yield
    with service.database.transaction() as session:
        session.execute(text("DROP TRIGGER full_disk ON batches"))


@contextmanager
def _no_page_left(service: Service) -> Iterator[None]:
    bound = 1  # SQLite raises it to the pages that there are

    def bind(connection: Any, *_: object) -> None:
        connection.execute(f"PRAGMA max_page_count = {bound}")

    event.listen(service.database.engine, "checkout", bind)
    yield
    bound = 1 << 30


def wait(client: Client, holds: Callable[[httpx.Response], bool]) -> httpx.Response:
    """Return the first answer of /readyz that holds."""
    deadline = time.monotonic() + 60
    while not holds(answer := client.get("/readyz")):
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.02)
    return answer


def test_a_service_whose_commits_fail_is_not_ready(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a full disk /readyz is 503 and names it; with room again it is 200, though no sender has come back."""
    monkeypatch.setattr(appender, "RETRY_SECONDS", 0.05)
    with served(tmp_path, database_url=url) as client:
        assert client.get("/readyz").status_code == 200
        with full_disk(client.service):
            refused = client.ship("gpu-0001", LARGE, "b1")
            answer = client.get("/readyz")
            still = [client.get("/readyz").status_code for _ in range(20)]

        assert (refused.status_code, answer.status_code, set(still)) == (503, 503, {503})
        (error,) = answer.json()["errors"]
        assert error["pointer"] == "log"
        assert "full" in error["detail"] or "extend" in error["detail"]
        wait(client, lambda answer: answer.status_code == 200)
        again = client.ship("gpu-0001", LARGE, "b1").json()
        assert again["duplicate"], "what was tried again is the sender's own batch"


def test_a_commit_that_does_not_end_is_no_readiness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that answers nothing fails no commit; the service is not ready all the same."""
    with served(tmp_path) as client:
        monkeypatch.setattr(type(client.service.appender), "commit_age_seconds", 16.0)

        assert "a commit has lasted 16 s" in client.get("/readyz").json()["detail"]


def test_a_commit_that_succeeds_ends_the_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another sender's batch is proof enough; what had failed is forgotten."""
    monkeypatch.setattr(appender, "RETRY_SECONDS", 60.0)
    with served(tmp_path) as client:
        with full_disk(client.service):
            assert client.ship("gpu-0001", LARGE).status_code == 503
            assert client.get("/readyz").status_code == 503
        assert client.ship("gpu-0002", [an_event("gpu-0002")]).status_code == 202
        assert client.get("/readyz").status_code == 200
        assert client.service.appender._failed is None
