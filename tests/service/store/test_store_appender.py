"""The appender: what it gathers, what it refuses, and what it answers when the database does not."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import wait

import pytest
from sqlalchemy.exc import OperationalError

from service.store.appender import Appender, QueueFull, Unavailable
from service.store.database import Database
from service.store.log import Appended, Incoming, Log
from tests.support.bounds import in_time
from tests.support.store_writer import Bounds


def batch(number: int, size: int = 10) -> Incoming:
    """A batch with this id and size."""
    return Incoming("gpu-0001", f"b{number}", None, 1_000.0, 1, bytes(size))


class Failing(Log):
    """A log whose first appends fail as they are asked to."""

    def __init__(self, database: Database, *failures: Exception) -> None:
        super().__init__(database)
        self.failures = list(failures)

    def append(self, batches: Sequence[Incoming]) -> list[Appended]:
        """Fail, or append."""
        if self.failures:
            raise self.failures.pop(0)
        return super().append(batches)


def test_companions_share_a_commit(database: Database) -> None:
    """Batches that come within commit_seconds are stored by one commit, and each learns its own number."""
    appender = Appender(Log(database), Bounds(commit_seconds=0.2))
    appender.start()

    futures = [appender.submit(batch(number)) for number in range(40)]
    places = [future.result(10) for future in futures]
    appender.close()

    assert [place.sequence for place in places] == sorted({place.sequence for place in places})
    assert (appender.counts.commits, appender.counts.batches) == (1, 40)
    assert appender.waiting == (0, 0)


def test_a_promise_comes_after_the_commit(database: Database) -> None:
    """When a future has its result, another connection can read the batch."""
    appender = Appender(Log(database), Bounds())
    appender.start()

    for number in range(30):
        place = appender.submit(batch(number)).result(10)

        assert Log(database).read_from(place.sequence - 1, 1)[0].batch_id == f"b{number}"
    appender.close()


def test_a_full_queue_is_refused_at_its_bound(sqlite: Database) -> None:
    """The batch past queue_batches, or past queue_bytes, is refused with a time to come again; those before it stay."""
    by_count = Appender(Log(sqlite), Bounds(queue_batches=3))
    by_size = Appender(Log(sqlite), Bounds(queue_bytes=100))
    for number in range(3):
        by_count.submit(batch(number))
    by_size.submit(batch(10, size=500))  # a batch larger than the bound goes in alone: it would never fit

    with pytest.raises(QueueFull, match="queue_batches") as busy:
        by_count.submit(batch(3))
    with pytest.raises(QueueFull, match="queue_bytes"):
        by_size.submit(batch(11, size=1))
    for appender in (by_count, by_size):
        appender.start()
        appender.close()

    assert busy.value.retry_after_seconds > 0
    assert (by_count.counts.refused, by_count.counts.batches, by_size.counts.batches) == (1, 3, 1)


def test_closing_stores_what_waits(sqlite: Database) -> None:
    """Closing stores the queue without waiting for companions, and refuses what comes after."""
    appender = Appender(Log(sqlite), Bounds(commit_seconds=100.0))
    appender.start()
    futures = [appender.submit(batch(number)) for number in range(5)]
    began = time.monotonic()

    appender.close()

    assert in_time(time.monotonic() - began, 0.9)
    assert [future.result(0).duplicate for future in futures] == [False] * 5
    with pytest.raises(QueueFull, match="stopping"):
        appender.submit(batch(9))


@pytest.mark.parametrize(
    "failure", [OperationalError("INSERT", {}, Exception("disk gone")), OSError("io"), KeyError("bug")]
)
def test_a_failed_commit_is_told_to_those_who_wait(sqlite: Database, failure: Exception) -> None:
    """Whatever the database raises, the waiting senders get Unavailable, nothing is stored, and the next commit works."""
    appender = Appender(Failing(sqlite, failure), Bounds(commit_seconds=0.1))
    appender.start()
    first = [appender.submit(batch(number)) for number in range(3)]
    wait(first, 10)

    reasons = {str(future.exception(0)) for future in first}
    later = appender.submit(batch(0)).result(10)
    appender.close()

    assert all(isinstance(future.exception(0), Unavailable) for future in first)
    assert len(reasons) == 1
    assert "could not be written" in reasons.pop()
    assert later.duplicate is False
    assert appender.counts.failed_commits == 1


def test_who_has_gone_away_stops_nobody(sqlite: Database) -> None:
    """A sender that has given up its future costs the others nothing, and its batch is stored."""
    appender = Appender(Log(sqlite), Bounds())
    gone, waits = appender.submit(batch(1)), appender.submit(batch(2))
    gone.cancel()

    appender.start()

    assert waits.result(10).duplicate is False
    appender.close()
    assert len(Log(sqlite).read_from(0, 10)) == 2


def test_a_commit_is_bounded(sqlite: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that has grown is stored in commits of bounded size, not in one that holds everybody up."""
    monkeypatch.setattr("service.store.appender.COMMIT_BATCHES", 10)
    monkeypatch.setattr("service.store.appender.COMMIT_BYTES", 5_000)
    appender = Appender(Log(sqlite), Bounds())
    for number in range(25):
        appender.submit(batch(number, size=100))
    for number in range(25, 28):
        appender.submit(batch(number, size=4_000))

    appender.start()
    appender.close()

    assert appender.counts.batches == 28
    assert (
        appender.counts.commits == 5
    )  # 10, 10, the 5 that are left with one large one, and one for each of the others


def test_readers_are_woken_after_each_commit(sqlite: Database) -> None:
    """`committed` is called when the batches can be read, not before."""
    log, found = Log(sqlite), []
    appender = Appender(log, Bounds(), committed=lambda: found.append(len(log.read_from(0, 10))))
    appender.start()

    appender.submit(batch(1)).result(10)
    appender.submit(batch(2)).result(10)
    appender.close()

    assert found == [1, 2]
