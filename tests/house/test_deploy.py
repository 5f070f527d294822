"""What is shipped to install the agent and the service says what the programs understand."""

from __future__ import annotations

import configparser
import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from collectors.agent.agent import FIRST_TO_BE_KILLED, NICENESS
from collectors.agent.cli import _parser
from collectors.agent.settings import load

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: the manifests are not read")


def agent_arguments(arguments: list[str]) -> Any:
    """Return what the agent makes of a command line."""
    return load(None, {}, vars(_parser().parse_args(arguments)))


def test_the_unit_starts_the_agent(repository: Path) -> None:
    """The unit's command is one that the agent takes, its state folder the default, and it yields as the agent does."""
    unit = configparser.RawConfigParser(strict=False)
    unit.read(repository / "deploy/faulthound-agent.service")

    program, *arguments = unit["Service"]["ExecStart"].split()
    options = _parser().parse_args(arguments)

    assert program.endswith("/faulthound-agent")
    assert options.config == Path("/etc/faulthound/agent.toml")
    assert f"/var/lib/{unit['Service']['StateDirectory']}" == str(agent_arguments(["run"]).state)
    assert (unit["Service"]["Nice"], unit["Service"]["OOMScoreAdjust"]) == (str(NICENESS), FIRST_TO_BE_KILLED)


def test_the_unit_may_ask_another_users_job(repository: Path, tmp_path: Path) -> None:
    """With the unit's capabilities and no other, root reaches another user's socket and removes that user's file."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv: capabilities can be taken away by nobody else")
    unit = configparser.RawConfigParser(strict=False)
    unit.read(repository / "deploy/faulthound-agent.service")
    kept = [f"+{name.removeprefix('CAP_').lower()}" for name in unit["Service"]["CapabilityBoundingSet"].split()]
    program = "import os, socket; socket.socket(socket.AF_UNIX).connect('1.sock'); os.unlink('1.ring')"
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(tmp_path):
        server.bind("1.sock")
        server.listen()
        Path("1.ring").touch()
        Path("1.sock").chmod(0o755)
        for path in (".", "1.sock", "1.ring"):
            shutil.chown(path, 65534)
        Path().chmod(0o700)

        subprocess.run(
            ["setpriv", f"--bounding-set=-all,{','.join(kept)}", "--inh-caps=-all", sys.executable, "-c", program],
            check=True, timeout=60,
        )  # fmt: skip

    assert not (tmp_path / "1.ring").exists()


def test_the_example_configuration_is_taken(repository: Path) -> None:
    """The shipped file loads, and every line that is commented out is a setting that exists."""
    text = (repository / "deploy/agent.toml").read_text()
    everything = re.sub(r"^# (?=[a-z_\[])", "", text, flags=re.MULTILINE)
    everything = everything.replace('"gpu-0413"                       #', '"gpu-0413" #')
    document = tomllib.loads(everything.partition("\n")[2])

    assert load(repository / "deploy/agent.toml", {}, {}).service == "https://faulthound.example:4747"
    assert {"node", "ship_seconds", "spool_bytes", "skip"} <= set(document)


def test_the_daemon_set_starts_the_agent(repository: Path) -> None:
    """The manifest's arguments are taken, and every folder that they name is mounted."""
    manifest = yaml.safe_load((repository / "deploy/daemonset.yaml").read_text())
    pod = manifest["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounted = [mount["mountPath"] for mount in container["volumeMounts"]]

    settings = agent_arguments(container["args"])

    roots = [settings.roots.sys, settings.roots.run, settings.roots.files]
    files = [settings.token_file, settings.ca_file, settings.state]
    for path in (*roots, *files):
        assert any(path.is_relative_to(place) for place in mounted), path
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert pod["hostPID"]


def test_the_images_are_built_of_what_is_here(repository: Path) -> None:
    """Every path that is copied exists, and every extra that is installed is one of the project's."""
    text = (repository / "deploy/Containerfile").read_text()
    extras = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    copied = [name for line in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.MULTILINE) for name in line.split()]

    assert [name for name in copied if not (repository / name).exists()] == []
    assert set(re.findall(r"'\.\[(\w+)\]'", text)) <= set(extras)


def test_compose_starts_the_service(repository: Path) -> None:
    """The service's command and variables are those of `faulthound serve`, and its target is in the Containerfile."""
    from service.cli.application import command
    from service.settings import Settings

    compose = yaml.safe_load((repository / "docker-compose.yml").read_text())["services"]["service"]
    verb, *arguments = compose["command"]
    options = {option for parameter in command().commands[verb].params for option in parameter.opts}
    variables = {name.removeprefix("FAULTHOUND_").lower() for name in compose["environment"]}

    assert {argument for argument in arguments if argument.startswith("--")} <= options
    assert variables <= set(Settings.model_fields)
    assert f"AS {compose['build']['target']}\n" in (repository / compose["build"]["dockerfile"]).read_text()
