"""Where the service's data is: a flag, a variable, then one documented place."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from service.engine.supervision import _variables
from service.settings import load
from tests.support.sources import REPOSITORY


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home folder, with another folder as the current one and no variable set."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("FAULTHOUND_DATA", "FAULTHOUND_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


def test_a_flag_wins_over_a_variable_and_that_over_the_place(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the three is used where those before it are not given, whatever the current folder is."""
    place = home / ".local/share/faulthound"

    assert (load().data, load().is_placed) == (place, False)
    assert load().url() == f"sqlite:///{place}/faulthound.db"
    monkeypatch.setenv("FAULTHOUND_DATA", "~/variable")
    assert (load().data, load().is_placed) == (home / "variable", True)
    assert load({"data": "/flag"}).data == Path("/flag")


def test_what_an_earlier_version_keeps_is_not_left_behind(home: Path) -> None:
    """A database in ./faulthound-data is used as long as the place has none; a folder without one is nothing."""
    Path("faulthound-data").mkdir()
    assert load().data == home / ".local/share/faulthound"
    Path("faulthound-data/faulthound.db").touch()
    assert load().file == Path.cwd() / "faulthound-data/faulthound.db"
    (home / ".local/share/faulthound").mkdir(parents=True)
    (home / ".local/share/faulthound/faulthound.db").touch()
    assert load().data == home / ".local/share/faulthound"


def test_the_engine_has_the_same_database(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's process is given the place that its service has found."""
    settings = load()
    for name, value in _variables(settings).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(home / "other"))

    assert load().url() == settings.url()


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        ({}, "http://127.0.0.1:4747"),
        ({"FAULTHOUND_PORT": "4848"}, "http://127.0.0.1:4848"),
        ({"FAULTHOUND_PORT": "4848", "FAULTHOUND_SERVICE": "https://fh:1"}, "https://fh:1"),
    ],
)
def test_make_agent_reports_where_make_serve_listens(settings: dict[str, str], address: str) -> None:
    """A port or a service that the environment names holds for both."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("FAULTHOUND_", "MAKE"))}
    made = subprocess.run(
        ["make", "-n", "agent"], cwd=REPOSITORY, env=own | settings, capture_output=True, text=True, check=True
    )

    assert made.stdout.splitlines()[-1].split()[-2:] == ["--service", address]


def test_make_uses_the_same_places() -> None:
    """`make serve` and `make agent` name no place of their own: the verbs beside them look in the same ones."""
    recipes = (REPOSITORY / "Makefile").read_text(encoding="utf-8")

    assert "\t.venv/bin/faulthound serve\n" in recipes
    assert "\t.venv/bin/faulthound-agent run --service $(FAULTHOUND_SERVICE)\n" in recipes
    assert "run: .venv/installed-service " in recipes  # and so `faulthound serve` has its packages
