"""`faulthound serve` as a process, and the verbs that ask it: what they print, and how they end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest

from collectors.records import CommandResult, KernelEvent, Members, Placement, block
from service.cli import jobs
from service.cli.speech import Speech
from service.cli.times import instant
from service.client import Connection, Unreachable, UserError
from tests.support import command_line
from tests.support.bounds import in_time
from tests.support.command_line import Done
from tests.support.served import BLOCK_TYPE, serving

pytestmark = pytest.mark.system


REPOSITORY = Path(__file__).resolve().parents[3]
JOB = "llama-405b"
NOW = 1_795_270_517.0
NO_ENGINE = {"FAULTHOUND_ENGINE": "false"}


def faulthound(*arguments: str, **environment: str) -> Done:
    """Run the command line with this environment and no other."""
    alone = {"PATH": os.environ["PATH"], "COLUMNS": "200", **environment}
    with patch.dict(os.environ, alone, clear=True):
        return command_line.faulthound(*arguments)


def serve(**environment: str) -> Done:
    """Run `serve` where it is refused; its log would be this process's, and is not begun."""
    with patch("structlog.configure"), patch("logging.basicConfig"):
        return faulthound("serve", **environment)


def in_a_process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a fresh interpreter."""
    return subprocess.run(
        [sys.executable, "-c", "from service.cli import main; main()", *arguments],
        cwd=REPOSITORY, env={"PATH": os.environ["PATH"], "COLUMNS": "100", **environment},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def ship(url: str, node: str, records: list[object], batch: str = "b1", token: str = "") -> httpx.Response:
    """Send records as an agent does."""
    headers = {"Content-Type": BLOCK_TYPE, "Faulthound-Node": node, "Faulthound-Batch": batch}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.post(f"{url}/v1/records", content=block.encode(records, pack=True), headers=headers)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a service that knows a job on two nodes, one of them with a dead GPU."""
    with serving(tmp_path_factory.mktemp("service"), NO_ENGINE) as (url, _process):
        for number, ranks in ((1, (0, 1)), (2, (2, 3))):
            node = f"gpu-000{number}"
            placement = Placement(
                job=JOB, attempt=0, node=node, ranks=Members.of(ranks), nodes=(node,) * 2, world_size=4
            )
            ship(url, node, [placement])
        ship(url, "gpu-0002", [KernelEvent(event="xid", code=79, node="gpu-0002", at=NOW)], "b2")
        deadline = time.monotonic() + 60
        while len(httpx.get(f"{url}/v1/nodes").json()["items"]) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        yield url


def test_lists_and_what_they_list(url: str) -> None:
    """Jobs and nodes are listed and shown as tables, and as the service's own JSON."""
    jobs, shown = (in_a_process("jobs", *verb, "--service", url) for verb in (("list",), ("show", JOB)))

    assert jobs.stdout.splitlines()[1].split()[0] == JOB
    assert "gpu-0002  2-3" in shown.stdout
    asked = {"role": "rollout", "instance": "3", "process": "a", "phase": "generate"}
    assert httpx.put(f"{url}/v1/jobs/{JOB}/roles", json=asked).status_code == 200
    roles = faulthound("jobs", "show", JOB, "--service", url).stdout.partition("roles: 1 instance")[2]
    assert roles.split()[9:12] == ["rollout", "3", "generate"]
    ranks = json.loads(faulthound("jobs", "show", JOB, "--json", "--service", url).stdout)["ranks"]
    assert [row["node"] for row in ranks] == ["gpu-0001"] * 2 + ["gpu-0002"] * 2
    nodes = json.loads(faulthound("nodes", "list", "--since", "1h", "--json", "--service", url).stdout)
    assert [row["name"] for row in nodes] == ["gpu-0001", "gpu-0002"]
    assert faulthound("nodes", "show", "gpu-0001", "--service", url).stdout.startswith("gpu-0001: last seen 20")


def test_an_export_is_diagnosed(url: str, tmp_path: Path) -> None:
    """What `export` writes is one file, and `diagnose` of it names the node with the dead GPU."""
    file = tmp_path / "bundle.fhz"

    done = faulthound("export", JOB, "--since", "10m", str(file), "--service", url)
    verdict = json.loads(faulthound("diagnose", str(file), "--json").stdout)

    assert (done.returncode, done.stdout) == (0, "")
    assert [one["id"] for one in verdict["culprits"]] == ["gpu-0002"]
    assert [path.name for path in tmp_path.iterdir()] == ["bundle.fhz"]
    again = faulthound("export", JOB, str(file), "--service", url)
    assert (again.returncode, "exists already" in again.stderr) == (2, True)
    reported = json.loads(faulthound("export", JOB, str(file), "--force", "--json", "--service", url).stdout)
    assert (reported["job"], reported["nodes"], reported["missing"]) == (JOB, ["gpu-0001", "gpu-0002"], [])


def test_agents_are_asked_and_awaited(url: str) -> None:
    """`jobs collect` asks the agents of the ranks, waits for their results, and leaves with 1 where one does not come."""

    def agent() -> None:
        path = f"{url}/v1/nodes/gpu-0001/commands/take?wait_seconds=15"
        for command in httpx.post(path, timeout=30).json()["commands"]:
            result = CommandResult(node="gpu-0001", command=command["id"], verb=command["verb"], text="2 processes")
            ship(url, "gpu-0001", [result], command["id"])

    thread = threading.Thread(target=agent)
    thread.start()
    good = faulthound("jobs", "collect", JOB, "stacks", "--ranks", "0-1", "--service", url, "--wait", "20")
    thread.join(timeout=30)
    bad = faulthound(
        "jobs", "collect", JOB, "stacks", "recorders", "--ranks", "3", "--service", url, "--wait", "0", "--json"
    )

    assert good.returncode == 0, good.stderr
    assert good.stdout.splitlines()[1].split() == ["gpu-0001", "stacks", "done", "2", "processes"]
    assert bad.returncode == 1
    assert [(row["node"], row["verb"], row["outcome"]) for row in json.loads(bad.stdout)] == [
        ("gpu-0002", "recorders", None), ("gpu-0002", "stacks", None)
    ]  # fmt: skip
    assert "0 of 2 answered" in bad.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("jobs", "show", "none"), 5, "job none is unknown: `faulthound jobs list` lists"),
        (("nodes", "show", "../x"), 5, "does not exist"),
        (("jobs", "list", "--since", "yesterday"), 2, "write 10m, 2h ago, now or"),
        (("jobs", "collect", JOB, "--ranks", "3-1"), 2, "is no rank"),
        (("jobs", "collect", JOB, "shells"), 2, "shells"),
        (("export", JOB, "/nowhere/x.fhz"), 2, "make it first"),
        (("export", JOB, "x.fhz", "--since", "1m", "--until", "2m"), 2, "is not before --until 2m (2"),
        (("tokens", "create", "x", "--scope", "read", "--node", "n"), 5, "the scope ingest and no other"),
        (("tokens", "create", "x", "--scope", "read", "--expires", "soon"), 2, "write 12h or 90d"),
        (("tokens", "revoke", "none"), 5, "token none is unknown"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_refusals_have_a_code_and_a_sentence(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int, said: str
) -> None:
    """What is wrong on this side leaves with 2, what the service refuses with 5, and each says what to do."""
    monkeypatch.chdir(tmp_path)

    done = faulthound(*arguments, FAULTHOUND_SERVICE=url)

    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_service_that_is_not_there() -> None:
    """Where nothing listens, or something else does, a verb leaves with 4 and names the address."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        closed = socket.create_server(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        closed.close()
        absent = faulthound("jobs", "list", "--service", f"http://127.0.0.1:{port}")

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(9999)
                connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno")

        thread = threading.Thread(target=answer)
        thread.start()
        strange = faulthound("jobs", "list", "--service", f"http://127.0.0.1:{other.getsockname()[1]}")
        thread.join(timeout=60)

    assert (absent.returncode, strange.returncode) == (4, 4)
    assert f"127.0.0.1:{port} does not answer" in absent.stderr
    assert "not as Faulthound does" in strange.stderr
    assert faulthound("jobs", "list", "--service", "here").returncode == 2


def test_the_first_token_opens_the_way(tmp_path: Path) -> None:
    """Beyond loopback it is refused without a token, under whatever name; with one made locally it serves, and only with it."""
    data = {"FAULTHOUND_DATA": str(tmp_path / "data")}
    for host in ("0.0.0.0", "", "::", "0"):
        refused = serve(FAULTHOUND_HOST=host, FAULTHOUND_PORT="0", **data)
        assert (refused.returncode, "there is no token" in refused.stderr) == (2, True), f"{host!r}: {refused.stderr}"
    token = faulthound("tokens", "create", "ops", "--scope", "admin", "--local", **data).stdout.strip()

    with serving(tmp_path, {"FAULTHOUND_HOST": "0.0.0.0", **NO_ENGINE}) as (bound, _process):
        url = bound.replace("0.0.0.0", "127.0.0.1")
        without = faulthound("nodes", "list", FAULTHOUND_SERVICE=url)
        assert (without.returncode, "name its file with --token-file" in without.stderr) == (5, True)
        assert faulthound("nodes", "list", FAULTHOUND_SERVICE=url, FAULTHOUND_TOKEN=token).returncode == 0
        (tmp_path / "token").write_text(f"{token}\n")
        own = {"FAULTHOUND_SERVICE": url, "FAULTHOUND_TOKEN_FILE": str(tmp_path / "token")}
        agent = faulthound("tokens", "create", "agent", "--scope", "ingest", "--node", "gpu-0001", **own).stdout.strip()
        assert ship(url, "gpu-0001", [], token=agent).status_code == 202
        listed = json.loads(faulthound("tokens", "list", "--json", **own).stdout)
        (id,) = (row["id"] for row in listed if row["node"])
        assert faulthound("tokens", "revoke", id, **own).returncode == 0
        assert ship(url, "gpu-0001", [], "b2", token=agent).status_code == 401
    log = (tmp_path / "service.log").read_text()
    assert token not in log
    assert agent not in log


def test_a_first_start_says_what_comes_next(tmp_path: Path) -> None:
    """It prints where it listens, where its data is, and three commands; once an agent has reported, only the first two."""
    for batch, lines in (("b1", 6), ("b2", 2)):
        with serving(tmp_path, NO_ENGINE) as (url, process):
            assert ship(url, "gpu-0001", [], batch).status_code == 202
            deadline = time.monotonic() + 60
            while not httpx.get(f"{url}/v1/nodes").json()["items"] and time.monotonic() < deadline:
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            assert process.stdout is not None
            said = ["", *process.stdout.read().splitlines()]

        assert said[1] == f"Its data is in {tmp_path / 'data'}"
        assert len(said) == lines
        if lines > 2:
            commands = [line.split("    ")[0].split() for line in said[3:]]
            assert [" ".join(words[:2]).rpartition("/")[2] for words in commands] == [
                "faulthound-agent run", "faulthound status", "faulthound watch",
            ]  # fmt: skip
            assert all(words[-2:] == ["--service", url] for words in commands)


def test_sigterm_drains(tmp_path: Path) -> None:
    """SIGTERM ends waiting polls at once, the process leaves with 0 within seconds, and what was acknowledged is there."""
    with serving(tmp_path) as (url, process):
        assert ship(url, "gpu-0001", [KernelEvent(event="xid", code=79)]).status_code == 202
        answers: list[int] = []
        path = f"{url}/v1/nodes/gpu-0001/commands/take?wait_seconds=30"
        thread = threading.Thread(target=lambda: answers.append(httpx.post(path, timeout=40).status_code))
        thread.start()
        time.sleep(0.5)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=20)
        took = time.monotonic() - began
        thread.join(timeout=60)

    assert (code, answers) == (0, [200])
    assert in_time(took, 10)
    with serving(tmp_path, NO_ENGINE) as (url, _process):
        assert [one["name"] for one in httpx.get(f"{url}/v1/nodes").json()["items"]] == ["gpu-0001"]


def test_tls_with_a_house_authority(tmp_path: Path) -> None:
    """With a certificate the service speaks TLS; a client without the CA file is refused, one with it is served."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: no certificate can be made")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=faulthound", "-keyout", key,
         "-out", certificate, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True,
    )  # fmt: skip
    variables = {"FAULTHOUND_TLS_CERTIFICATE": str(certificate), "FAULTHOUND_TLS_KEY": str(key), **NO_ENGINE}

    with serving(tmp_path, variables) as (url, _process):
        assert url.startswith("https://")
        stranger = faulthound("jobs", "list", "--service", url)
        friend = faulthound("jobs", "list", "--service", url, "--ca-file", str(certificate))
        plain = faulthound("jobs", "list", "--service", url.replace("https", "http"))

    assert (stranger.returncode, plain.returncode, friend.returncode) == (4, 4, 0)
    assert "name its authority with --ca-file" in stranger.stderr
    assert "then write https://" in plain.stderr
    half = serve(FAULTHOUND_TLS_KEY=str(key))
    assert (half.returncode, "TLS needs both" in half.stderr) == (2, True)
    swapped = {"FAULTHOUND_TLS_CERTIFICATE": str(certificate), "FAULTHOUND_TLS_KEY": str(certificate)}
    no_key = serve(**swapped)
    assert (no_key.returncode, "give a PEM certificate and its own key" in no_key.stderr) == (2, True), no_key.stderr
    assert "Traceback" not in no_key.stderr


class Restarting(Connection):
    """A service that is away at every second look, and that knows of one more outcome at each of the others."""

    def __init__(self) -> None:
        self.looks: list[list[str]] = []

    def get(self, path: str, **parameters: Any) -> Any:
        """Return the commands that were asked for, the first of them done."""
        self.looks.append(parameters["id"])
        if len(self.looks) % 2:
            raise Unreachable("it starts again")
        done = {"node": "gpu-0001", "verb": "stacks", "outcome": "done"}
        first, *others = parameters["id"]
        return {"items": [{"id": first, **done}, *({"id": id, **done, "outcome": None} for id in others)]}


def test_a_service_that_restarts_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for answers waits through a restart of the service, and asks again only for what has not come."""
    monkeypatch.setattr(jobs, "POLL_SECONDS", 0.0)
    asked = [{"id": id, "node": "gpu-0001", "verb": "stacks", "outcome": None} for id in ("a", "b")]
    service = Restarting()

    ended = jobs._awaited(service, asked, 30.0, Speech())

    assert [one["outcome"] for one in ended] == ["done", "done"]
    assert service.looks == [["a", "b"], ["a", "b"], ["b"], ["b"]]
    with pytest.raises(Unreachable):
        jobs._awaited(Restarting(), asked, 0.0, Speech())


@pytest.mark.parametrize(
    ("variable", "value"),
    [("PORT", "x"), ("COMMIT_SECONDS", "9"), ("LOG_LEVEL", "loud"), ("TLS_KEY", "/nowhere"), ("DATABASE_URL", "mysql://x/y"),
     ("DATABASE_URL", "postgresql://u:hidden@h:port/x"),
     ("HOST", "no.such.host.invalid")],
)  # fmt: skip
def test_a_wrong_setting_is_named(tmp_path: Path, variable: str, value: str) -> None:
    """A setting outside its bound ends `serve` with 2 before it listens, and the message says which and what to do."""
    own = {"FAULTHOUND_DATA": str(tmp_path), "FAULTHOUND_PORT": "0", f"FAULTHOUND_{variable}": value}

    done = serve(**own)

    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert value in done.stderr or variable in done.stderr
    assert "Traceback" not in done.stderr
    assert "hidden" not in done.stderr


def test_knowledge_that_the_engine_cannot_read_is_refused(tmp_path: Path) -> None:
    """A service whose engine would end at each start does not begin: it leaves with 2 and names the variable and the file."""
    (tmp_path / "crash.toml").write_text("xx = [")
    data = str(tmp_path / "data")
    refused = serve(FAULTHOUND_KNOWLEDGE=str(tmp_path), FAULTHOUND_DATA=data, FAULTHOUND_PORT="0")

    assert refused.returncode == 2
    assert "FAULTHOUND_KNOWLEDGE" in refused.stderr
    assert "crash.toml cannot be read as TOML" in refused.stderr


def test_two_services_on_one_port(url: str, tmp_path: Path) -> None:
    """A port that is taken is said to be, and the process leaves with 2."""
    done = in_a_process("serve", FAULTHOUND_DATA=str(tmp_path), FAULTHOUND_PORT=url.rpartition(":")[2])

    assert done.returncode == 2
    assert "choose another host or port" in done.stderr


def test_instants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans count back from now, RFC 3339 is taken with its offset, and without one as UTC everywhere; the rest is refused."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    assert instant("--since", "10m", NOW) == NOW - 600
    assert instant("--since", "2h ago", NOW) == NOW - 7_200
    assert instant("--since", "now", NOW) == NOW
    assert instant("--since", None, NOW) is None
    assert instant("--since", "2026-11-21T14:15:17Z", NOW) == 1_795_270_517.0
    assert instant("--since", "2026-11-21T15:15:17+01:00", NOW) == 1_795_270_517.0
    assert instant("--since", "2026-11-21T14:15:17", NOW) == 1_795_270_517.0
    assert instant("--since", "2026-11-21 14:15:17", NOW) == 1_795_270_517.0
    assert instant("--since", "2026-11-21", NOW) == 1_795_219_200.0
    monkeypatch.undo()
    time.tzset()
    for wrong in ("", "ten minutes", "10", "-5m", "10m 5s", "1969-01-01T00:00:00Z"):
        with pytest.raises(UserError, match="is no instant"):
            instant("--since", wrong, NOW)


def test_a_missing_extra_is_named() -> None:
    """Where the web packages are not installed, `serve` says which extra to install, and `diagnose` does not miss them."""
    block_them = (
        "import sys\n"
        "class No:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name.partition('.')[0] in ('fastapi', 'sqlalchemy', 'uvicorn', 'pydantic', 'pydantic_settings'):\n"
        "            raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, No())\n"
        "from service.cli import main; main()"
    )
    for verb, code in (("serve", 2), ("formats", 0)):
        command = [sys.executable, "-c", block_them, verb]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == code, done.stderr
        assert ("pip install 'faulthound[service]'" in done.stderr) == (code == 2)
