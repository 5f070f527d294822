"""What `pip install` puts on a machine works there, without a checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.support.bounds import ENFORCED, in_time

REPOSITORY = Path(__file__).resolve().parents[2]
INSTALLED_SECONDS = 600
FIRST_SECONDS = 60.0  # of `make run`, its installation included
pytestmark = [pytest.mark.slow, pytest.mark.alone]

Ran = subprocess.CompletedProcess[str]


def ran(*command: str | Path, cwd: Path, timeout: float = 120, **variables: str) -> Ran:
    """Run a command to its end, with none of the variables that would make it read the checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("FAULTHOUND_", "PYTHON"))}
    return subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=kept | variables,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy what git tracks, but for tests and docs."""
    tree = tmp_path_factory.mktemp("tree")
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout
    for name in filter(None, tracked.split("\0")):
        if not name.startswith(("tests/", "docs/")) and (REPOSITORY / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(REPOSITORY / name, tree / name)
    return tree


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of what git tracks."""
    wheels = tmp_path_factory.mktemp("wheels")
    pip = [sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, "."]
    done = ran(*pip, cwd=tree, timeout=INSTALLED_SECONDS)
    assert done.returncode == 0, done.stderr
    (built,) = wheels.glob("faulthound-*.whl")
    return built


def installed(python: Path | str, wheel: Path, folder: Path) -> Path:
    """Make an environment, run `pip install faulthound` in it, and return its programs' folder."""
    made = ran(python, "-m", "venv", folder, cwd=wheel.parent)
    assert made.returncode == 0, made.stderr
    done = ran(
        folder / "bin/python", "-m", "pip", "install", "-qq", "--no-compile",
        "--constraint", REPOSITORY / "constraints.txt", wheel, cwd=folder, timeout=INSTALLED_SECONDS,
    )  # fmt: skip
    if done.returncode != 0 and "Could not find a version" in done.stderr:
        pytest.skip(f"a package cannot be had here: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return folder / "bin"


def interpreter(version: str) -> Path | None:
    """Return the program of this version of Python: on PATH, or among those that pyenv keeps."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    on_path = shutil.which(f"python{version}")
    places = [*sorted(pyenv.glob(f"{version}.*/bin/python")), *([Path(on_path)] if on_path else [])]
    return next(
        (place for place in places if ran(place, "-c", "import venv, ensurepip", cwd=Path("/")).returncode == 0), None
    )


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the programs' folder of an environment in which `pip install faulthound` alone ran."""
    return installed(sys.executable, wheel, tmp_path_factory.mktemp("base"))


@pytest.mark.timeout(900)
def test_the_first_command_prepares_the_second(tree: Path, tmp_path: Path) -> None:
    """`make run` in a new checkout reports the recorded incident within a minute, and `faulthound serve` then lacks nothing."""
    checkout = tmp_path / "a checkout"
    shutil.copytree(tree, checkout, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    began_at = time.monotonic()
    quick = {} if ENFORCED else {"PIP_NO_COMPILE": "1"}  # to compile what no test imports is half of an installation
    done = ran("make", f"PYTHON={sys.executable}", "run", cwd=checkout, timeout=INSTALLED_SECONDS, **quick)
    took_seconds = time.monotonic() - began_at
    if done.returncode != 0 and "Could not find a version" in done.stderr:
        pytest.skip(f"a package cannot be had here: {done.stderr.strip().splitlines()[-1]}")
    print(f"make run: {took_seconds:.1f} s")

    assert done.returncode == 0, done.stderr
    assert "Rank 3 (node gpu-0001) hangs the job" in done.stdout
    assert in_time(took_seconds, FIRST_SECONDS)
    # The port is no number of this machine's: it is refused by the settings, which only an installed service reads.
    serve = ran(checkout / ".venv/bin/faulthound", "serve", cwd=checkout, FAULTHOUND_PORT="none")
    assert (serve.returncode, "FAULTHOUND_PORT" in serve.stderr) == (2, True), serve.stderr


def test_the_base_diagnoses(base: Path, tmp_path: Path) -> None:
    """`faulthound diagnose` works in an empty folder with the base installation, as a script and as a module."""
    for command in ([base / "faulthound"], [base / "python", "-m", "faulthound"]):
        done = ran(*command, "diagnose", REPOSITORY / "examples/hung_job", "--json", "--quiet", cwd=tmp_path)

        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["schema"].startswith("faulthound.verdict/")


@pytest.mark.parametrize("version", [pytest.param("3.12", marks=pytest.mark.acceptance), "3.13", "3.14"])
def test_other_interpreters_diagnose(wheel: Path, version: str, tmp_path: Path) -> None:
    """The base installation diagnoses, and the agent reads its node, with every declared Python that is on this machine."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"Python {version} is not on this machine")
    bin = installed(python, wheel, tmp_path / "environment")

    done = ran(bin / "faulthound", "diagnose", REPOSITORY / "examples/hung_job", "--json", "--quiet", cwd=tmp_path)
    read = ran(bin / "faulthound-agent", "once", "--collectors", "host", cwd=tmp_path)

    assert done.returncode == read.returncode == 0, done.stderr + read.stderr
    assert json.loads(done.stdout)["schema"].startswith("faulthound.verdict/")


def test_the_base_has_the_agent(base: Path, tmp_path: Path) -> None:
    """The agent works with the base installation; its process loads neither numpy nor the command line's libraries."""
    program = (
        "import json, sys, collectors.agent.agent, collectors.agent.cli, collectors.live\ncollectors.live.registry()\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )

    helped = ran(base / "faulthound-agent", "once", "--help", cwd=tmp_path)
    listed = ran(base / "faulthound-agent", "once", "--collectors", "host,gpu", "--json", cwd=tmp_path)
    loaded = ran(base / "python", "-c", program, cwd=tmp_path)

    assert helped.returncode == listed.returncode == loaded.returncode == 0, listed.stderr + loaded.stderr
    assert listed.stdout
    assert not set(json.loads(loaded.stdout)) & {"numpy", "typer", "rich", "jinja2", "pynvml"}


def test_what_the_base_lacks_is_named(base: Path, tmp_path: Path) -> None:
    """A verb of the service says which extra to install, and does not end in a traceback."""
    for verb in (["serve"], ["tokens", "create", "ops", "--scope", "admin", "--local"]):
        done = ran(base / "faulthound", *verb, cwd=tmp_path)

        assert done.returncode == 2
        assert "pip install 'faulthound[service]'" in done.stderr
        assert "Traceback" not in done.stderr


def test_every_verb_has_help_with_the_base(base: Path, tmp_path: Path) -> None:
    """Help needs no extra."""
    done = ran(base / "faulthound", "--help", cwd=tmp_path)

    assert done.returncode == 0, done.stderr


def test_uvx_runs_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """`uvx faulthound diagnose DIR` diagnoses, where uv is installed."""
    uvx = shutil.which("uvx") or shutil.which("uvx", path=str(Path(sys.executable).parent))
    if uvx is None:
        pytest.skip("uv is not installed: pip install uv")
    done = ran(
        uvx, "--python", sys.executable, "--from", wheel, "faulthound", "diagnose", REPOSITORY / "examples/hung_job",
        "--json", "--quiet", cwd=tmp_path, timeout=INSTALLED_SECONDS, UV_CACHE_DIR=str(tmp_path / "cache"),
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["schema"].startswith("faulthound.verdict/")


def test_every_package_is_typed(wheel: Path) -> None:
    """A type checker reads the annotations of each installed package: py.typed is in it."""
    names = zipfile.ZipFile(wheel).namelist()
    packages = {name.partition("/")[0] for name in names if name.count("/") == 1 and name.endswith("/__init__.py")}

    assert {"faulthound", "collectors", "analyzers", "service", "simulation"} == packages
    assert {name.partition("/")[0] for name in names if name.endswith("/py.typed")} == packages


def test_declared_interpreters_are_those_of_the_classifiers() -> None:
    """The oldest Python that is declared by a classifier is the one that the installation requires."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    declared = [line.rpartition(" ")[2] for line in project["classifiers"] if " :: 3." in line]

    assert declared == ["3.11", "3.12", "3.13", "3.14"]
    assert project["requires-python"] == f">={declared[0]}"
