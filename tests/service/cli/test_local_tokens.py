"""`tokens create --local` beside a service: the token is one that the service knows, or none is made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from service.store.database import Database
from service.store.tokens import Tokens
from tests.support.command_line import faulthound
from tests.support.served import serving

pytestmark = pytest.mark.system
CREATE = ("tokens", "create", "ops", "--scope", "read", "--local")
PLACE = ".local/share/faulthound"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home folder, and nothing that names the data."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("FAULTHOUND_DATA", "FAULTHOUND_DATABASE_URL", "FAULTHOUND_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


def tokens(database: Path) -> list[str]:
    """Return the names of the tokens in a database."""
    store = Database(f"sqlite:///{database}")
    found = [token.name for token in Tokens(store).all()]
    store.close()
    return found


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a service whose data is in a folder that nothing names."""
    with serving(tmp_path_factory.mktemp("elsewhere"), {"FAULTHOUND_ENGINE": "false"}) as (url, _):
        yield url


def test_the_service_beside_it_knows_the_token(home: Path, tmp_path: Path) -> None:
    """With nothing named, both have their data in the same place."""
    with serving(tmp_path, {"FAULTHOUND_DATA": str(home / PLACE), "FAULTHOUND_ENGINE": "false"}) as (url, _):
        made = faulthound(*CREATE, "--service", url)
        bearer = {"Authorization": f"Bearer {made.stdout.strip()}"}

        assert made.returncode == 0, made.stderr
        assert "does not keep" not in made.stderr
        assert httpx.get(f"{url}/v1/jobs", headers=bearer).status_code == 200


@pytest.mark.parametrize("there", [False, True], ids=["no database", "another database"])
def test_no_token_for_a_service_whose_data_is_elsewhere(home: Path, elsewhere: str, there: bool) -> None:
    """A service with its data in another folder would not know it: no token, no database, and the next step."""
    if there:
        Database(f"sqlite:///{home / PLACE / 'faulthound.db'}").migrate()
    done = faulthound(*CREATE, "--service", elsewhere)

    assert (done.returncode, done.stdout) == (2, "")
    assert f"does not keep its data in {home / PLACE}" in done.stderr
    assert "--data or FAULTHOUND_DATA" in done.stderr
    assert (home / PLACE / "faulthound.db").exists() == there
    assert not there or tokens(home / PLACE / "faulthound.db") == []


def test_a_folder_that_is_named_may_be_of_another_service(home: Path, elsewhere: str, tmp_path: Path) -> None:
    """Before its service has begun: the token is made, and a note says that the one that answers does not know it."""
    done = faulthound(*CREATE, "--data", str(tmp_path / "next"), "--service", elsewhere)

    assert done.returncode == 0
    assert done.stdout.startswith("fh_")
    assert "does not keep its data in" in done.stderr
    assert tokens(tmp_path / "next" / "faulthound.db") == ["ops"]


def test_a_folder_without_local_is_refused(tmp_path: Path) -> None:
    """--data names a database to write into, which only --local does."""
    done = faulthound("tokens", "create", "ops", "--scope", "read", "--data", str(tmp_path))

    assert (done.returncode, "add --local" in done.stderr) == (2, True)
