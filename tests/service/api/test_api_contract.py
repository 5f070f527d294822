"""The API as a contract: committed, documented, one shape for every error, and no input that makes it fail."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from sqlalchemy.exc import OperationalError

from service.api.app import create_app
from service.api.problems import TABLE
from service.settings import Settings
from tests.support.served import Client, an_event, served

REPOSITORY = Path(__file__).resolve().parents[3]
JSON = {"Content-Type": "application/json"}
EXAMPLES = [
    3,
    pytest.param(12, marks=pytest.mark.acceptance),
]  # of each operation: its own bounds and types, broken and kept


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Return a client of a service that knows a node and a job, and has the small bounds of a test."""
    with served(tmp_path_factory.mktemp("contract"), node_batches_burst=100_000) as client:
        client.ship("gpu-0001", [an_event()])
        client.put("/v1/jobs/j", json={"world_size": 2, "nodes": ["gpu-0001"] * 2})
        yield client


def test_the_committed_contract_is_the_real_one(rewrite: bool) -> None:
    """docs/openapi.json is what the application says of itself; `pytest --rewrite` brings it up to date, for review."""
    path = REPOSITORY / "docs" / "openapi.json"
    real = json.dumps(create_app(Settings()).openapi(), indent=1, ensure_ascii=False) + "\n"

    if rewrite:
        path.write_text(real, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == real


def test_every_problem_is_documented() -> None:
    """docs/rest.md has a heading for every kind of problem, with its status, and for no other."""
    page = (REPOSITORY / "docs" / "rest.md").read_text(encoding="utf-8")

    assert dict(re.findall(r"^### (\S+)\n\n(\d+)\.", page, re.MULTILINE)) == {
        kind: str(status) for kind, (status, _title) in TABLE.items()
    }


def test_operations_have_names_for_generated_clients() -> None:
    """Operations have short ids of their own."""
    paths = create_app(Settings()).openapi()["paths"]

    assert {known["operationId"] for path in paths.values() for known in path.values()} >= {
        "send_records",
        "export_job",
    }


def test_every_failure_has_one_shape(client: Client) -> None:
    """Whatever refuses a request, handler, framework or bound, the body is a problem of the table."""
    answers: dict[str, httpx.Response] = {
        "no such address": client.get("/v1/nothing"),
        "no such thing": client.get("/v1/nodes/none"),
        "wrong method": client.delete("/v1/jobs"),
        "wrong parameter": client.get("/v1/jobs?limit=0"),
        "not JSON": client.post("/v1/pins", content=b"{", headers=JSON),
        "deep JSON": client.post("/v1/pins", content=b"[" * 10_000, headers=JSON),
        "no body": client.post("/v1/tokens"),
        "wrong type": client.post("/v1/records", content=b"", headers={"Content-Type": "text/html"}),
        "large body": client.post("/v1/pins", content=b" " * (5 << 20)),
        "large chunks": client.post("/v1/pins", content=iter([b" " * (1 << 20)] * 5), headers=JSON),
        "no tag": client.put("/v1/jobs/j", json={"world_size": 2}),
        "old tag": client.put("/v1/jobs/j", json={"world_size": 2}, headers={"If-Match": '"x"'}),
        "another machine": client.get_from("10.0.0.7", "/v1/jobs"),
    }  # fmt: skip

    for what, answer in answers.items():
        assert answer.headers["Content-Type"] == "application/problem+json", what
        document = answer.json()
        kind = document["type"].removeprefix("/docs/rest.md#")
        assert TABLE[kind] == (answer.status_code, document["title"]), what
        assert document["status"] == answer.status_code
        assert document["detail"], what
        assert document["request_id"] == answer.headers["Faulthound-Request"], what
    assert {answer.status_code for answer in answers.values()} >= {400, 401, 404, 405, 412, 413, 415, 422, 428}


def test_a_bug_has_the_shape_too(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a handler breaks, the answer is the problem `internal`, and nothing of the error's text is in it."""

    def broken(*_: object) -> object:
        raise RuntimeError("secret of the house")

    monkeypatch.setattr(client.service.commands, "get", broken)

    answer = client.get("/v1/commands/x")

    assert answer.status_code == 500
    assert answer.json()["type"] == "/docs/rest.md#internal"
    assert "secret" not in answer.text


def test_a_database_that_is_away_is_no_bug(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the database does not answer, the answer is 503 with Retry-After."""

    def away(*_: object) -> object:
        raise OperationalError("SELECT 1", {}, Exception("connection refused"))

    monkeypatch.setattr(client.service.commands, "get", away)

    answer = client.as_("").get("/v1/commands/x")  # after a bug the server closes the connection that it was on

    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert "SELECT" not in answer.text


@pytest.mark.system
@pytest.mark.parametrize("examples", EXAMPLES)
def test_no_generated_request_makes_it_fail(client: Client, examples: int) -> None:
    """Requests that schemathesis makes of the contract, valid and broken, are never answered with 500."""
    import schemathesis  # a second to import

    schema = schemathesis.openapi.from_dict(create_app(Settings()).openapi())
    schema.config.base_url = client.url
    statuses: dict[str, set[int]] = {}
    for operation in (result.ok() for result in schema.get_all_operations()):
        for mode in schemathesis.GenerationMode:
            _try(operation.as_strategy(generation_mode=mode), examples, statuses.setdefault(operation.label, set()))

    assert len(statuses) > 20
    assert {label for label, seen in statuses.items() if 500 in seen} == set()
    assert {status for seen in statuses.values() for status in seen} >= {200, 404, 422}


def _try(strategy: Any, examples: int, seen: set[int]) -> None:
    from schemathesis.checks import not_a_server_error

    @settings(max_examples=examples, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(case=strategy)
    def one(case: Any) -> None:
        if "wait_seconds" in (case.query or {}) or case.path.endswith("/stream"):
            case.query = {"wait_seconds": 0}  # a wait says nothing about inputs, and takes its time
        answer = case.call(timeout=20)
        seen.add(answer.status_code)
        case.validate_response(answer, checks=[not_a_server_error])

    with suppress(Unsatisfiable):  # an operation without parameters cannot be asked wrongly
        one()
