"""A process that appends to a log until it is killed, and tells through a pipe what it was promised."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from service.store.appender import Appender
from service.store.database import Database
from service.store.log import Incoming, Log

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
