"""Processes that write the log, or read it, until they are killed, and tell through a pipe how far they have come."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from service.store import follower as follower_module
from service.store.appender import Appender
from service.store.database import Database
from service.store.log import Incoming, Log
from service.store.models import Cursor

SENDERS = 6


@dataclass
class Bounds:
    """The queue's bounds, with short commits: more of them fall to a kill."""

    queue_batches: int = 1_000
    queue_bytes: int = 256 << 20
    commit_seconds: float = 0.002


def content(batch_id: str) -> bytes:
    """The block of a batch, which its id determines: 1 B to 60 kB."""
    lots = random.Random(batch_id)
    return lots.randbytes(lots.choice((1, 300, 5_000, 60_000)))


def incoming(batch_id: str, node: str = "gpu-0001") -> Incoming:
    """The batch of an id."""
    return Incoming(node, batch_id, None, 1_000.0, 1, content(batch_id))


def write_until_killed(url: str, name: str, again: Sequence[str], pipe: Connection) -> None:
    """Append with several senders at once; send ("sent", id) before and ("kept", id, sequence, duplicate) after each."""
    database = Database(url)
    appender = Appender(Log(database), Bounds())
    appender.start()
    telling = threading.Lock()

    def send(batch_id: str) -> None:
        with telling:
            pipe.send(("sent", batch_id))
        place = appender.submit(incoming(batch_id)).result()
        with telling:
            pipe.send(("kept", batch_id, place.sequence, place.duplicate))

    def sender(number: int) -> None:
        for batch_id in again[number::SENDERS]:
            send(batch_id)
        for count in itertools.count():
            send(f"{name}-{number}-{count}")

    for number in range(1, SENDERS):
        threading.Thread(target=sender, args=(number,), daemon=True).start()
    sender(0)


def follow_until_killed(url: str, pipe: Connection) -> None:
    """Read the log three batches at a time, and tell how far it has come."""
    follower_module.TURN_BATCHES = 3
    database = Database(url)
    with database.session() as session:
        cursor = session.get(Cursor, follower_module.READER)
    follower = follower_module.Follower(database, Log(database))
    follower.sequence = cursor.sequence if cursor else 0
    while follower.turn():
        pipe.send(follower.sequence)
