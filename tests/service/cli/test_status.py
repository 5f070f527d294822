"""`faulthound status`: one screen of what works, what is wrong and what is not measured; and of a service that is down."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from collectors.records import block
from service.cli.status import _status, engine_line, not_measured, screen
from service.client import Connection, Unreachable
from service.store.database import Database
from service.store.models import Alarm, Node
from tests.support import incident_rows
from tests.support.command_line import Done, faulthound
from tests.support.live_records import minute
from tests.support.served import BLOCK_TYPE, serving

pytestmark = pytest.mark.system  # a service runs
ENGINE = {"standing": "working", "lag_batches": 0, "lag_seconds": 0.0}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a service without an engine that sees a job, a silent node, an alarm and an incident."""
    at, folder = time.time(), tmp_path_factory.mktemp("status")
    with serving(folder, {"FAULTHOUND_ENGINE": "false"}) as (url, _):
        database = Database(f"sqlite:///{folder / 'data' / 'faulthound.db'}")
        incident_rows.seed(database, job="llama-8b")
        with database.transaction() as session:
            session.add(Node(name="gpu-0009", first_seen_at=at - 900, last_seen_at=at - 800))
            session.add(Alarm(kind="coverage", job="llama-8b", text="40 % seen", nodes=[], raised_at=at, over_at=None))
        database.close()
        own = {"Content-Type": BLOCK_TYPE, "Faulthound-Node": "gpu-0001", "Faulthound-Batch": "b1"}
        httpx.post(f"{url}/v1/records", content=block.encode(minute("gpu-0001", [0, 1], at), pack=True), headers=own)
        deadline = time.monotonic() + 60
        while not any(job["step"] for job in httpx.get(f"{url}/v1/now").json()["jobs"]):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield url


def run(url: str, *arguments: str) -> Done:
    """Run `status` against the service."""
    return faulthound("status", *arguments, "--service", url)


def test_one_screen_has_it_all(url: str) -> None:
    """The service, an engine that does not work, agents, the job's step, the incident, and each thing that is not measured."""
    done = run(url)
    lines = done.stdout.splitlines()

    assert done.returncode == 0
    assert len(lines) <= 24
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == [
        "service", "engine", "agents", "jobs", "incidents", "unmeasured",
    ]  # fmt: skip
    for part in (
        url,
        "NONE",
        "1 of 2 nodes report; 1 SILENT",
        "llama-8b: 8 ranks; step 42 ",
        "inc-0123456789ab",
    ):
        assert part in done.stdout
    unmeasured = done.stdout.partition("unmeasured")[2]
    for part in ("no engine works", "gpu-0009", "40 % seen"):
        assert part in unmeasured


def test_as_json(url: str) -> None:
    """The same as a document: the service, everything at a glance, and what is not measured."""
    found = json.loads(run(url, "--json").stdout)

    assert found["service"] | {"url": ""} == {"url": "", "answers": True, "ready": True, "why": "", "next": ""}
    assert found["now"]["jobs"][0]["step"] == 42
    assert len(found["unmeasured"]) == 3


def test_a_service_that_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reports so with the next step and where the data is, exits with 4, and says that nothing is measured."""
    monkeypatch.setenv("FAULTHOUND_DATA", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    text, form = (faulthound("status", *more, "--service", f"http://127.0.0.1:{port}") for more in ((), ("--json",)))
    found = json.loads(form.stdout)

    assert (text.returncode, form.returncode) == (4, 4)
    assert "does not answer" in text.stdout
    assert "`faulthound serve`" in text.stdout
    assert str(tmp_path) in text.stdout
    assert (found["service"]["answers"], found["now"]) == (False, None)
    assert found["unmeasured"]


def now_document(**fields: Any) -> dict[str, Any]:
    """Return the document of a service that sees nothing."""
    sight = {"nodes": 0, "reporting": 0, "silent": []}
    return {"at": 0.0, "engine": ENGINE, "open": 0, "incidents": [], "jobs": [], "sight": sight, "alarms": []} | fields


def test_nothing_is_said_to_be_unmeasured_that_is_measured() -> None:
    """A job with steps, an engine that follows and no alarm: nothing; each of the others is named."""
    job = {
        "name": "j",
        "world_size": 2,
        "step": 3,
        "step_at": 0.0,
        "step_seconds": 0.5,
        "last_seen_at": 0.0,
        "runs": True,
        "state": "running",
        "incidents": [],
    }

    assert list(not_measured(now_document(jobs=[job]))) == []
    assert len(list(not_measured(now_document(jobs=[job | {"step": None}])))) == 1
    assert list(not_measured(now_document(jobs=[job | {"step": None, "runs": False}]))) == []  # it has ended, it seems
    assert len(list(not_measured(now_document(engine=ENGINE | {"lag_seconds": 99.0})))) == 1
    assert len(list(not_measured(now_document(engine=ENGINE | {"standing": "down"})))) == 1


def test_many_of_a_kind_stay_one_screen() -> None:
    """A hundred jobs and incidents are some of each, how many more, and where they are listed; no agent: how to start one."""
    jobs = [
        {
            "name": f"j{n}",
            "world_size": None,
            "step": None,
            "last_seen_at": -900.0,
            "runs": False,
            "state": "not_seen",
            "incidents": [],
        }
        for n in range(100)
    ]
    service = {"url": "http://127.0.0.1:4747", "ready": False, "why": "the disk is full"}

    lines = list(screen(service, now_document(jobs=jobs), ["x"] * 100))

    assert len(lines) < 30
    assert "the disk is full" in lines[0]
    assert sum("more: faulthound " in line for line in lines) == 2
    assert any("faulthound-agent run --service" in line for line in lines)
    assert any("not seen for 15 min" in line for line in lines)


def test_what_runs_and_what_has_incidents_comes_before_what_ended() -> None:
    """Of more jobs than are shown, those not seen for minutes give way, in whatever order the service lists them."""

    def job(name: str, seen: float, *incidents: str) -> dict[str, Any]:
        own = {"last_seen_at": seen, "runs": seen > 0.0, "state": "ended", "incidents": list(incidents)}
        return {"name": name, "world_size": None, "step": None, **own}

    service = {"url": "http://127.0.0.1:4747", "ready": True, "why": ""}
    ended = [job(f"a{n}", 0.0) for n in range(9)]
    jobs = [*ended, job("running", 900.0), job("troubled", 0.0, "inc-1")]

    lines = list(screen(service, now_document(at=900.0, jobs=jobs), []))

    shown = [line.split(":")[0].strip() for line in lines if line.startswith("            ")]
    assert shown[1:3] == ["troubled", "running"]  # the first says how to start an agent


@pytest.mark.parametrize("standing", ["working", "standby", "silent", "none", "down", "of a later version"])
def test_every_standing_of_the_engine_has_words(standing: str) -> None:
    """Also one that this version does not know."""
    assert engine_line(ENGINE | {"standing": standing}).endswith("0 s behind what agents have sent")


class NotReady(Connection):
    """A service that answers and cannot store records."""

    def __init__(self) -> None:
        self.url = "http://127.0.0.1:4747"

    def get(self, path: str, **_: Any) -> Any:
        """Return everything at a glance; of the readiness what is wrong."""
        if path == "/readyz":
            raise Unreachable(f"the service at {self.url} failed: the disk is full")
        return now_document()


def test_a_service_that_stores_nothing_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    """It answers, and what is wrong is named once; the exit code is that of a service that does not answer."""
    answer = _status(NotReady())
    answer.show()

    assert answer.code == 4
    assert "answers, and is not ready: the disk is full" in capsys.readouterr().out
    assert answer.document["service"]["ready"] is False
