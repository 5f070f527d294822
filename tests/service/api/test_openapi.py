"""The OpenAPI document is valid, complete, and enough for a client that is generated from it."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.api.app import create_app
from service.settings import Settings
from tests.support.incident_rows import seed
from tests.support.served import Client

REPOSITORY = Path(__file__).resolve().parents[3]
DOCUMENT = REPOSITORY / "docs" / "openapi.json"
GENERATOR_VERSION = "openapi-python-client==0.29.1"
GENERATOR = """
project_name_override: faulthound-client
package_name_override: faulthound_client
post_hooks: []
content_type_overrides:
  application/vnd.faulthound.block: application/octet-stream
  application/vnd.faulthound.bundle: application/octet-stream
  application/problem+json: application/json
"""


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """Return the document of the application."""
    return create_app(Settings()).openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each operation with its method and path."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def references(value: Any) -> Iterator[str]:
    """Yield all references in a value."""
    if isinstance(value, dict):
        yield from [found for key, found in value.items() if key == "$ref"]
        for one in value.values():
            yield from references(one)
    elif isinstance(value, list):
        for one in value:
            yield from references(one)


def test_the_document_is_valid(document: dict[str, Any]) -> None:
    """It is valid OpenAPI 3.1, and every reference and every schema is used."""
    from openapi_spec_validator import validate  # no other worker that collects this needs it

    validate(document)

    schemas = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(references(document)) == schemas


def test_everything_is_described(document: dict[str, Any]) -> None:
    """Every property of every schema has a description, as has every schema, operation and parameter."""
    schemas = document["components"]["schemas"]
    undescribed = [
        f"{name}.{field}"
        for name, schema in schemas.items()
        for field, known in schema.get("properties", {}).items()
        if not known.get("description")
    ]
    undescribed += [
        name for name, schema in schemas.items() if schema.get("type") == "object" and not schema.get("description")
    ]
    undescribed += [label for label, operation in operations(document) if not operation.get("description")]
    undescribed += [
        f"{label} {parameter['name']}"
        for label, operation in operations(document)
        for parameter in operation.get("parameters", ())
        if not parameter.get("description")
    ]

    assert undescribed == []


def test_the_verdict_has_a_schema(document: dict[str, Any]) -> None:
    """The verdict of an incident is answered as the schema of the verdict document."""
    answer = document["paths"]["/v1/incidents/{id}/verdict"]["get"]["responses"]["200"]

    assert answer["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Verdict"}
    fields = document["components"]["schemas"]["Verdict"]["properties"]
    assert fields["culprits"]["items"] == {"$ref": "#/components/schemas/Culprit"}
    assert "class" in document["components"]["schemas"]["Root"]["properties"]


def test_an_unknown_query_parameter_is_refused(client: Client, document: dict[str, Any]) -> None:
    """Every operation of /v1 answers 400 to a query parameter that it does not have, and names it and those it has."""
    for label, operation in operations(document):
        if " /v1/" not in label:
            continue
        method, _, path = label.partition(" ")
        for name in ("id", "node", "job"):
            path = path.replace(f"{{{name}}}", "1")

        answer = client.request(method, path, params={"jbo": "j"})

        assert (answer.status_code, answer.headers["Content-Type"]) == (400, "application/problem+json"), label
        problem = answer.json()
        assert problem["errors"][0]["pointer"] == "jbo", label
        for parameter in operation.get("parameters", ()):
            assert parameter["in"] != "query" or parameter["name"] in problem["detail"], label


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_a_probe_may_carry_any_query_parameter(client: Client, path: str) -> None:
    """The addresses of probes and scrapes answer as always to a query parameter that they do not know."""
    assert client.get(path, params={"collect[]": "x", "from": "probe"}).status_code == 200


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a client that openapi-python-client generates from the committed document."""
    # It wants an older typer than ours, so uv installs it apart.
    uvx = shutil.which("uvx") or shutil.which("uvx", path=str(Path(sys.executable).parent))
    tool = [str(uvx), "--python", sys.executable, "--from", GENERATOR_VERSION, "openapi-python-client"]
    if uvx is None or subprocess.run([*tool, "--version"], capture_output=True, timeout=300).returncode:
        pytest.skip(f"uvx cannot install {GENERATOR_VERSION} here: no client is generated")
    folder = tmp_path_factory.mktemp("client")
    (folder / "config.yaml").write_text(GENERATOR, encoding="utf-8")
    command = [
        *tool, "generate", "--path", str(DOCUMENT), "--meta", "none",
        "--output-path", str(folder / "faulthound_client"), "--config", str(folder / "config.yaml"), "--fail-on-warning",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.system
def test_a_generated_client_reads_incidents(client: Client, generated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is generated without a warning lists the incidents of a real service, and reads a verdict."""
    seed(client.service.database)
    monkeypatch.syspath_prepend(generated)
    package = importlib.import_module("faulthound_client")
    api = "faulthound_client.api.incidents"
    with package.Client(base_url=client.url) as made:
        listed = importlib.import_module(f"{api}.list_incidents").sync(client=made)
        verdict = importlib.import_module(f"{api}.get_verdict").sync(listed.items[0].id, client=made)
        unknown = importlib.import_module(f"{api}.get_incident").sync("none", client=made)

    assert [one.to_dict() for one in listed.items] == client.get("/v1/incidents").json()["items"]
    assert verdict.to_dict() == client.get(f"/v1/incidents/{listed.items[0].id}/verdict").json()
    assert (unknown.status, unknown.title) == (404, "Not found")
