"""The command line of a node: settings from three places, and answers a person or Nagios can act on."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from collectors.agent import cli
from collectors.agent import settings as agent_settings
from collectors.agent.once import as_text
from collectors.agent.settings import KEYS, Misconfigured, Settings, load
from collectors.agent.status import read_status
from collectors.live import registry
from collectors.records import NOT_READ, Samples, Unread, block
from tests.support.agent_service import AgentService, agent_service
from tests.support.bounds import in_time

pytestmark = pytest.mark.system

REPOSITORY = Path(__file__).resolve().parents[3]
VERBS = ("run", "once", "check", "status", "probe")


def faulthound_agent(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the console script as an operator does."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FAULTHOUND_")}
    return subprocess.run(
        [sys.executable, "-m", "collectors.agent", *arguments],
        cwd=REPOSITORY, capture_output=True, text=True, env=clean | environment, timeout=60,
    )  # fmt: skip


def written(folder: Path, text: str) -> Path:
    """Write a configuration."""
    path = folder / "agent.toml"
    path.write_text(text)
    return path


def test_flags_beat_the_environment_and_that_the_file(tmp_path: Path) -> None:
    """Each key comes from the last of file, environment and flags that has it; roots and options come along."""
    file = written(
        tmp_path,
        'service = "http://file:1"\nnode = "file"\nship_seconds = 30\nskip = ["gpu"]\n'
        '[path]\nproc = "/host/proc"\n[collector.kernel]\nevery_seconds = 5\n',
    )
    flags = {"node": "flag", "path": ["sys=/host/sys"]}
    settings = load(file, {"FAULTHOUND_NODE": "environment", "FAULTHOUND_SERVICE": "https://environment:2/"}, flags)

    assert (settings.service, settings.node, settings.ship_seconds) == ("https://environment:2", "flag", 30.0)
    assert (settings.roots.proc, settings.roots.sys) == (Path("/host/proc"), Path("/host/sys"))
    assert settings.skip == ("gpu",)
    assert settings.options == {"kernel": {"every_seconds": 5}}
    assert settings.spool_bytes == Settings().spool_bytes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('servce = "http://x"', "agent.toml: servce is not a setting"),
        ('service = "ftp://x"', "agent.toml: service is 'ftp://x' and is not an address"),
        ('service = "http://x:p"', "agent.toml: service is 'http://x:p' and is not an address"),
        ("spool_bytes = 17", "spool_bytes is 17 and must be a number from 1,048,576"),
        ("ship_seconds = true", "ship_seconds is True and must be a number"),
        ("ship_seconds = nan", "ship_seconds is nan and must be a number"),
        ('node = "a/b"', "node is 'a/b' and must be at most 255 letters"),
        ('skip = "nobody"', "there is no collector 'nobody'"),
        ("[collector.nobody]\nx = 1", "there is no collector 'nobody'"),
        ("collector = 3", "collector must be a table"),
        ('[path]\nhome = "/x"', "home='/x' is not a root"),
        ("node = ", "cannot be read as TOML"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(tmp_path: Path, text: str, words: str) -> None:
    """A wrong key or value is an error that names the key, the value and what would do."""
    with pytest.raises(Misconfigured, match=r".") as raised:
        load(written(tmp_path, text), {}, {})

    assert words in str(raised.value)


def test_a_wrong_variable_is_named(tmp_path: Path) -> None:
    """A value of the environment that cannot be used is reported by its variable, and on the command line with exit code 2."""
    done = faulthound_agent("once", FAULTHOUND_SPOOL_BYTES="much")

    assert done.returncode == 2
    assert "FAULTHOUND_SPOOL_BYTES is 'much' and must be a number" in done.stderr


def test_the_token_never_shows(tmp_path: Path) -> None:
    """No flag takes a token, and neither the settings' text nor an error about its file holds it."""
    (tmp_path / "token").write_text("fh_secret more\n")
    settings = load(None, {"FAULTHOUND_TOKEN": "fh_secret"}, {"token_file": str(tmp_path / "token")})

    assert "fh_secret" not in repr(settings)
    assert "token" not in KEYS
    with pytest.raises(Misconfigured) as raised:
        settings.current_token()
    assert "fh_secret" not in str(raised.value)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_examples(verb: str) -> None:
    """``--help`` of every verb shows an example of its use."""
    done = faulthound_agent(verb, "--help")

    assert done.returncode == 0
    assert f"faulthound-agent {verb}" in done.stdout.partition("examples:")[2]


@pytest.mark.system
def test_once_reads_this_node(tmp_path: Path) -> None:
    """``once`` runs collectors on the real machine; its JSON lines and its block hold the same kinds of record."""
    out = tmp_path / "now.fhb"
    as_json = faulthound_agent("once", "--collectors", "host", "--json")
    as_block = faulthound_agent("once", "--collectors", "host", "--node", "gpu-0001", "--out", str(out))
    records = block.decode(out.read_bytes())

    assert as_json.returncode == as_block.returncode == 0
    reported = {json.loads(line)["kind"] for line in as_json.stdout.splitlines()}
    assert (
        reported == {msgspec.to_builtins(record, builtin_types=(bytes,))["kind"] for record in records} >= {"samples"}
    )
    assert {record.node for record in records} == {"gpu-0001"}
    nowhere = faulthound_agent("once", "--collectors", "host", "--out", str(tmp_path / "none" / "now.fhb"))
    assert (nowhere.returncode, "cannot be written (No such file or directory): name" in nowhere.stderr) == (2, True)
    assert as_block.stderr.split()[:2] == ["host", "done"]


@pytest.fixture
def service() -> Iterator[AgentService]:
    """A service that is there."""
    with agent_service() as one:
        yield one


@pytest.fixture
def running(tmp_path: Path, service: AgentService) -> Iterator[list[str]]:
    """A running agent; its flags."""
    flags = ["--service", service.url, "--state", str(tmp_path / "state"), "--node", "gpu-0001", "--collectors", "host"]
    with subprocess.Popen([sys.executable, "-m", "collectors.agent", "run", *flags], cwd=REPOSITORY) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "state/status.json").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        yield flags
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_check_of_a_healthy_node(running: list[str], service: AgentService) -> None:
    """A node whose agent runs and whose service answers is OK in one line within five seconds, and no batch was made."""
    began_at = time.monotonic()
    done = faulthound_agent("check", *running)

    assert in_time(time.monotonic() - began_at, 5)
    assert (done.returncode, done.stdout) == (0, "OK: gpu-0001: the agent runs and the service takes its records\n")
    assert not [key for key in service.batches if key[1] == "check"]


def test_check_beside_an_agent_asks_what_that_agent_uses(tmp_path: Path, running: list[str]) -> None:
    """With nothing but the state folder known, `check` takes service and node of the one that runs."""
    done = faulthound_agent("check", FAULTHOUND_STATE=str(tmp_path / "state"))

    assert (done.returncode, done.stdout) == (0, "OK: gpu-0001: the agent runs and the service takes its records\n")


def test_run_and_check_find_one_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's folder for who may write it, else one's own; `check` finds the system's where one has none."""
    system, own = tmp_path / "system", tmp_path / "home/.local/state/faulthound"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(agent_settings, "SYSTEM_STATE", system)

    def found() -> list[Path]:
        return [load(None, {}, {}, looking=looking).state for looking in (False, True)]

    assert found() == [system, system]  # it can be made
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert found() == [own, own]
    system.mkdir()
    assert found() == [own, system]
    own.mkdir(parents=True)
    assert found() == [own, own]
    assert load(None, {"FAULTHOUND_STATE": "/variable"}, {}).state == Path("/variable")


def test_check_reports_a_refused_token(running: list[str], service: AgentService) -> None:
    """A token that the service does not accept is CRITICAL, with the service's own words."""
    service.token = "fh_other"
    done = faulthound_agent("check", *running, FAULTHOUND_TOKEN="fh_mine")

    assert done.returncode == 2
    assert "the service does not accept the token (401 no such token)" in done.stdout
    assert "it needs the scope ingest, in the file that token_file or FAULTHOUND_TOKEN_FILE names" in done.stdout
    assert "fh_mine" not in done.stdout


def test_status_reports_the_running_agent(running: list[str]) -> None:
    """``status`` shows what the running agent wrote, for a person and as JSON."""
    text, form = faulthound_agent("status", *running), faulthound_agent("status", *running, "--json")

    assert text.returncode == form.returncode == 0
    assert "gpu-0001: agent" in text.stdout
    assert json.loads(form.stdout)["collectors"][0]["name"] == "host"


def test_check_of_a_node_without_agent(tmp_path: Path) -> None:
    """No agent, no folder, no service, all in one CRITICAL line; ``status`` says what to do."""
    flags = ["--service", "http://127.0.0.1:9", "--state", str(tmp_path / "none"), "--node", "gpu-0001"]
    done, status = faulthound_agent("check", *flags), faulthound_agent("status", *flags)

    assert done.returncode == 2
    assert done.stdout.startswith("CRITICAL: gpu-0001: ")
    assert done.stdout.count("\n") == 1
    for words in (
        "no agent runs on",
        "which does not exist: start",
        "the service cannot be reached: http://127.0.0.1:9: ",
    ):
        assert words in done.stdout
    assert status.returncode == 1
    assert "start one, or give --state" in status.stderr


def test_check_as_json(tmp_path: Path) -> None:
    """``check --json`` gives the same state and exit code as an object, with each problem and its level."""
    done = faulthound_agent(
        "check", "--json", "--service", "http://127.0.0.1:9", "--state", str(tmp_path), "--node", "gpu-0001"
    )
    form = json.loads(done.stdout)

    assert done.returncode == form["code"] == 2
    assert (form["state"], form["node"]) == ("CRITICAL", "gpu-0001")
    assert {problem["level"] for problem in form["problems"]} == {"CRITICAL"}
    assert any("no agent runs on" in problem["text"] for problem in form["problems"])


def test_check_of_a_service_that_hangs(tmp_path: Path) -> None:
    """A service that takes the connection and never answers is reported within five seconds."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        began_at = time.monotonic()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        done = faulthound_agent("check", "--service", url, "--state", str(tmp_path))

    assert in_time(time.monotonic() - began_at, 5)
    assert done.returncode == 2
    assert f"the service cannot be reached: {url}: TimeoutError" in done.stdout


def test_wrong_settings_are_unknown_to_nagios(tmp_path: Path) -> None:
    """``check`` with settings that cannot be used exits 3 and says UNKNOWN on stdout, which is what Nagios reads."""
    done = faulthound_agent("check", "--config", str(tmp_path / "none.toml"))

    assert (done.returncode, done.stdout.startswith("UNKNOWN: "), done.stderr) == (3, True, "")


def test_who_may_not_look_is_not_reported_that_no_agent_runs(tmp_path: Path) -> None:
    """Where the state folder is another user's, ``check`` and ``status`` say so: the agent may be well."""
    settings = Settings(state=tmp_path / "state")
    settings.state.mkdir(mode=0)
    uid = os.geteuid()
    if uid == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(Misconfigured, match="is another user's: ask as root"):
            read_status(settings)
    finally:
        os.seteuid(uid)
        settings.state.chmod(0o700)
    assert read_status(settings) is None


def test_what_is_printed_of_samples_and_of_what_was_not_read() -> None:
    """A line a device has its newest readings and no missing one; why something was not read is not cut."""
    samples = Samples(
        source="host", scope="disk", type="<i8", devices=("sda", ""), metrics=("reads_total", "writes_total"),
        ticks=array("d", (1.0, 2.0)).tobytes(),
        values=array("q", (1, 20_000_000_000, 3, 4, 5, 6, 7, NOT_READ)).tobytes(),
    )  # fmt: skip
    unread = Unread(source="/proc/PID/environ", reason="x" * 200 + ": run the agent as root")

    assert as_text(samples).splitlines() == [
        "samples          disk sda reads_total=20000000000 writes_total=4",
        "samples          disk reads_total=6",
    ]
    assert as_text(unread).endswith("run the agent as root")


def test_probe_is_copied(tmp_path: Path) -> None:
    """``probe --write`` copies the probe, byte for byte, and says where; settings that its user may not use do not matter."""
    source = REPOSITORY / "collectors/faulthound_probe.py"
    done = faulthound_agent("probe", "--write", str(tmp_path / "training"), FAULTHOUND_SPOOL_BYTES="much")

    assert done.returncode == 0
    assert (tmp_path / "training/faulthound_probe.py").read_bytes() == source.read_bytes()
    assert str(tmp_path / "training/faulthound_probe.py") in done.stdout


def test_every_collector_has_a_row_and_every_setting_a_place() -> None:
    """docs/agent.md has a row for every collector and a line for every setting, and for none that does not exist."""
    page = (REPOSITORY / "docs/agent.md").read_text()
    collectors = _rows(page, "## Collectors")
    settings = set(
        re.findall(r"^- `([^`]+)`: ", page.partition("## Settings\n")[2].partition("\n## ")[0], re.MULTILINE)
    )

    assert collectors == set(registry())
    assert settings == {*KEYS, "[path]", "[collector.NAME]"}


def test_the_agent_is_small() -> None:
    """The agent and all its collectors load without numpy, an HTTP library, a web framework, a database or PyTorch."""
    program = (
        "import json, sys\nimport collectors.agent.agent, collectors.agent.cli, collectors.live\n"
        "collectors.live.registry()\nprint(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))

    assert "msgspec" in loaded
    assert not loaded & {
        "httpx",
        "prometheus_client",
        "rich",
        "numpy",
        "typer",
        "pydantic",
        "fastapi",
        "sqlalchemy",
        "torch",
        "pynvml",
        "psutil",
    }


def _rows(page: str, heading: str) -> set[str]:
    section = page.partition(f"{heading}\n")[2].partition("\n## ")[0]
    return {line.split("`")[1] for line in section.splitlines() if line.startswith("| `")}


@pytest.mark.parametrize(
    ("process", "also"),
    [
        ("collectors.files.parsers.__main__", "collectors.files.parsers.stacks, collectors.files.parsers.steps"),
        ("collectors.agent.worker_child", "collectors.live.gpu"),
    ],
)
def test_the_agents_children_load_no_openssl(process: str, also: str) -> None:
    """What a child speaks through is a pipe: OpenSSL would be 3.5 MB in each, and typing_extensions 2 MB."""
    program = (
        f"import sys, faulthound\nfaulthound.import_msgspec()\nimport {process}, {also}\n"
        "print(sorted({'_hashlib', '_ssl', 'typing_extensions'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_the_agents_log_is_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an exception says may be a process's words: in the agent's log they steer no terminal."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    cli.write_logs("INFO")
    try:
        raise ValueError("\x1b[2J\u202e")
    except ValueError:
        logging.getLogger("faulthound.agent").exception("round_failed")

    assert "ValueError: \\x1b[2J\\u202e" in stream.getvalue()
    assert not set(stream.getvalue()) & set("\x1b\u202e")
