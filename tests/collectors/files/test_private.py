"""The spool and the embedded database are their owner's: no other user reads them, or puts files beside them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.agent import state
from collectors.agent.agent import _locked
from collectors.agent.segment import Entry
from collectors.agent.settings import Misconfigured
from collectors.agent.spool import Spool
from collectors.live.sources.clock import NodeClock
from collectors.records import block
from service.store.database import Database, WrongDatabase
from tests.support.served import an_event

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """An umask that takes nothing away."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    """The modes of the files below a folder."""
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}


def test_the_database_is_its_owners(tmp_path: Path) -> None:
    """The file and its journals, a new one and one that an earlier version left open to all."""
    folder = tmp_path / "data"
    for _ in range(2):
        database = Database(f"sqlite:///{folder / 'faulthound.db'}")
        database.migrate()
        assert set(modes(folder)) == {"faulthound.db", "faulthound.db-wal", "faulthound.db-shm"}
        assert set(modes(folder).values()) == {0o600}
        database.close()
        (folder / "faulthound.db").chmod(0o644)


def test_the_spool_is_its_owners(tmp_path: Path) -> None:
    """Segments, batches, the state and the lock."""
    folder = tmp_path / "state"
    with _locked(folder):
        spool = Spool(folder, "gpu-0001", NodeClock(), bytes_max=1 << 20, seal_seconds=5.0)
        spool.add(Entry([block.encode([an_event()])]))
        spool.seal(now=True)
        spool.add(Entry([block.encode([an_event()])]))
        state.replace(folder / "status.json", b"{}")
        found = modes(folder)

    assert {Path(name).suffix for name in found} == {".lock", ".json", ".fhb", ".seg"}
    assert set(found.values()) == {0o600}


def test_a_folder_that_all_may_write_is_refused(tmp_path: Path) -> None:
    """Anyone could replace what lies there; the message has the mode and what to do."""
    tmp_path.chmod(0o777)

    with pytest.raises(WrongDatabase, match=r"mode 0777.*chmod o-w"):
        Database(f"sqlite:///{tmp_path / 'faulthound.db'}")
    with pytest.raises(Misconfigured, match=r"mode 0777.*chmod o-w"):
        _locked(tmp_path)
    assert list(tmp_path.iterdir()) == []
    Database(f"sqlite:///{tmp_path / 'own' / 'faulthound.db'}").close()


@needs_root
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    """Its owner could replace what lies there. Root may work on an existing database of that owner's, and makes none."""
    os.chown(tmp_path, NOBODY, NOBODY)

    with pytest.raises(WrongDatabase, match=f"belongs to user {NOBODY}.*chown 0"):
        Database(f"sqlite:///{tmp_path / 'faulthound.db'}")
    with pytest.raises(Misconfigured, match=f"belongs to user {NOBODY}"):
        _locked(tmp_path)

    file = tmp_path / "faulthound.db"
    file.touch(0o600)
    os.chown(file, NOBODY, NOBODY)
    database = Database(f"sqlite:///{file}")
    database.migrate()
    assert {path.stat().st_uid for path in tmp_path.iterdir()} == {NOBODY}, "its owner can go on"
    database.close()


@needs_root
def test_a_user_may_use_a_folder_of_root(tmp_path: Path) -> None:
    """As packages make them; not one that all may write, the sticky bit or not."""
    code = (
        f"import os; os.setuid({NOBODY}); from pathlib import Path; from collectors.files.private import check_folder; "
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{code}check_folder(Path('/usr')); check_folder(Path('/tmp'))"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert "NotPrivate: folder /tmp may be written by every user" in done.stderr


def test_a_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    """What a link beside the spool leads to stays as it is."""
    (tmp_path / "target").write_text("kept")
    (tmp_path / "state.json.tmp").symlink_to(tmp_path / "target")

    with pytest.raises(OSError, match="symbolic link"):
        state.replace(tmp_path / "state.json", b"{}")
    assert (tmp_path / "target").read_text() == "kept"
