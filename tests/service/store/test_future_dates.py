"""What was dated in the future counts as old: it hides nothing that comes after the clock is right."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import patch

import numpy as np
import pytest
from sqlalchemy import select

from collectors.records import Coverage, Members, Placement, Record, Samples, block
from service.clock import PROCESS
from service.store.database import Database
from service.store.follower import Follower
from service.store.future_dates import shift_back_future
from service.store.log import Incoming, Log
from service.store.models import Job, Node
from service.store.models import Placement as Row
from service.store.placements import is_newest
from service.store.retention import DAY_SECONDS, Retention
from service.store.window.tail import Tail

T, DAY = 1_800_000_000.0, DAY_SECONDS


class Bounds:
    """What is kept."""

    retention_days = 14.0
    retention_bytes = 2_000


def placed(rank: int, node: str) -> Record:
    """Return where a rank runs."""
    return Placement(job="llama", attempt=1, ranks=Members.of([rank]), nodes=(node,), world_size=2)


def send(database: Database, name: str, at: float, node: str, *records: Record) -> None:
    """Append a batch that is dated so."""
    Log(database).append([Incoming(node, name, at, at, len(records), block.encode(records, pack=True))])


def read(follower: Follower) -> None:
    """Read the log to its end."""
    while follower.turn():
        pass


def where(database: Database) -> list[tuple[int, str]]:
    """Return the newest place of each rank."""
    with database.session() as session:
        rows = session.execute(select(Row.rank, Row.node).where(is_newest()).order_by(Row.rank))
        return [(rank, node) for rank, node in rows]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("ahead", [7_200.0, DAY, 20 * DAY])
def test_rows_of_a_clock_that_was_ahead_hide_nothing(database: Database, ahead: float, *, restarted: bool) -> None:
    """A node and a rank that were seen in the future are seen now, where they are now; also by a follower of its own."""
    at = [T + ahead]
    follower = Follower(database, Log(database), clock=lambda: at[0])
    send(database, "b1", T + ahead, "gpu-1", placed(0, "gpu-1"), Coverage(at=T + ahead, boot_id="one"))
    read(follower)
    at[0] = T + 60.0
    if restarted:
        follower = Follower(database, Log(database), clock=lambda: at[0])
        follower._resume()
    send(database, "b2", T + 60.0, "gpu-2", placed(0, "gpu-2"))
    send(database, "b3", T + 60.0, "gpu-1", placed(1, "gpu-1"), Coverage(at=T + 60.0, boot_id="two"))
    read(follower)
    at[0] = T + 180.0
    send(database, "b4", T + 180.0, "gpu-2", placed(0, "gpu-2"))
    with patch.object(PROCESS, "wall", lambda: T + 100.0):
        shift_back_future(database)
    send(database, "b5", T + 400.0, "gpu-2", placed(0, "gpu-2"))
    at[0] = T + 400.0
    read(follower)

    assert where(database) == [(0, "gpu-2"), (1, "gpu-1")]
    with database.session() as session:
        node, job = session.get_one(Node, "gpu-1"), session.get_one(Job, "llama")
    assert (node.last_seen_at, node.boot_id) == (T + 60.0, "two")
    assert job.last_seen_at == T + 400.0


def test_rows_that_are_shifted_back_keep_their_order(database: Database) -> None:
    """The rows that are ahead keep their distances, the newest of them is from now, and the others stay."""
    with database.transaction() as session:
        for name, last in (("gpu-1", T + DAY), ("gpu-2", T + DAY - 40.0), ("gpu-3", T - 10.0), ("gpu-4", T + 100.0)):
            session.add(Node(name=name, first_seen_at=last - 300.0, last_seen_at=last))
    with patch.object(PROCESS, "wall", lambda: T):
        shift_back_future(database)

    with database.session() as session:
        seen = {one.name: (one.first_seen_at - T, one.last_seen_at - T) for one in session.scalars(select(Node))}
    assert seen == {
        "gpu-1": (-300.0, 0.0),
        "gpu-2": (-340.0, -40.0),
        "gpu-3": (-310.0, -10.0),
        "gpu-4": (-200.0, 100.0),
    }


def test_samples_of_a_clock_that_was_ahead_leave_room_for_the_present() -> None:
    """A node whose batch was dated a day ahead has its samples of the present in the window again."""
    tail = Tail(120.0)

    def sampled(at: float) -> Sequence[Record]:
        values = np.array([at - T], "<f4").tobytes()
        ticks = np.array([at]).tobytes()
        return [Samples(scope="gpu", devices=("GPU-1",), metrics=("power_watts",), ticks=ticks, values=values)]

    tail.add("gpu-1", T + DAY, sampled(T + DAY))
    for second in (10.0, 20.0):
        tail.add("gpu-1", T + second, sampled(T + second))

    values = tail.assemble("gpu", ["gpu-1"], None, T, T + 30.0).values
    assert values[~np.isnan(values)].tolist() == [10.0, 20.0]


@pytest.mark.parametrize("is_sure", [True, False])
def test_nothing_is_old_while_the_clock_is_not_sure(database: Database, *, is_sure: bool) -> None:
    """Batches and rows stay while the clock is not certain; the size bound holds, and a declaration stays in any case."""
    for name, age in (("b1", 30.0), ("b2", 29.0), ("b3", 28.0)):
        send(database, name, T - age * DAY, "gpu-1", placed(0, "gpu-1"), Coverage(at=T))
    read(Follower(database, Log(database), clock=lambda: T))
    with database.transaction() as session:
        session.execute(Row.__table__.delete())
        for name in ("declared", "seen"):
            times = {"first_seen_at": T - 99 * DAY, "last_seen_at": T - 99 * DAY}
            declared_at = T - 99 * DAY if name == "declared" else None
            session.add(Job(name=name, **times, declared={"minimum_nodes": 3}, declared_at=declared_at))
        from service.store.models import Cursor

        session.merge(Cursor(reader="compaction", sequence=3))

    swept = Retention(database, Bounds(), lambda: T, lambda: is_sure).sweep()

    assert swept.batches == (3 if is_sure else 0)
    with database.session() as session:
        left = set(session.scalars(select(Job.name)))
    assert left == ({"declared"} if is_sure else {"declared", "seen", "llama"})
    small = Bounds()
    small.retention_bytes = 1
    assert Retention(database, small, lambda: T, lambda: is_sure).sweep().log_bytes == 0
