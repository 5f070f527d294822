"""Ships the spool's batches, oldest first, until the service has acknowledged each.

202                        the service has it: deleted here
400 403 409 413 415 422    it will never accept this batch: put aside, counted, the next one is tried
401                        it does not know the token: the token's file is read again, the batch stays
everything else            unreachable or busy: the batch stays, and Retry-After or a doubling wait is obeyed; the wait for a
                           service that does not answer at all stays short, because it may be back any moment
"""

from __future__ import annotations

import errno
import logging
import threading
from dataclasses import dataclass

from collectors.agent.backoff import Backoff
from collectors.agent.client import Client, Response, Unreachable
from collectors.agent.spool import Batch, Spool
from collectors.live.sources.clock import Clock
from collectors.records import block

ACKNOWLEDGED = frozenset({200, 202})
FINAL = frozenset({400, 403, 409, 413, 415, 422})
UNAUTHORIZED = 401
SHORT_OF = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})  # a read fails with these while the file is whole
WAIT_SECONDS = 1.0
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.5, 30.0

log = logging.getLogger("faulthound.agent")


@dataclass(slots=True)
class Shipped:
    """What the shipper reports of itself."""

    batches: int = 0
    bytes: int = 0
    at: float | None = None  # UTC seconds of the newest acknowledgement
    trouble: str = ""  # why the newest try failed; empty: it succeeded
    clock_offset_seconds: float | None = None


class Shipper:
    """One thread; it keeps nothing that the spool does not have."""

    def __init__(self, spool: Spool, client: Client, clock: Clock, node: str) -> None:
        self.shipped = Shipped()
        self._spool, self._client, self._clock, self._node = spool, client, clock, node
        self._waits = Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, node)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="ship", daemon=True)

    def start(self) -> None:
        """Begin to ship."""
        self._thread.start()

    def finish(self, seconds: float) -> None:
        """Try once more to ship what is spooled, for so long, and end."""
        self._stopped.set()
        self._thread.join(seconds)

    def _loop(self) -> None:
        while True:
            batch = self._spool.next(0.0 if self._stopped.is_set() else WAIT_SECONDS)
            if batch is not None:
                wait_seconds = self._try(batch)
                if wait_seconds and self._stopped.is_set():
                    return
                self._stopped.wait(wait_seconds)
            elif self._stopped.is_set():
                return

    def _try(self, batch: Batch) -> float:
        """Send one batch; return how long to wait before the next."""
        try:
            return self._handle(batch, self._send(batch))
        except Unreachable as error:
            return self._keep(batch, str(error), unreached=True)
        except OSError as error:  # of the disk
            if error.errno in SHORT_OF:
                return self._keep(batch, f"batch {batch.id} cannot be read: {error.strerror}")
            log.warning("batch_lost batch=%s reason=%r", batch.id, error.strerror)
            self._spool.lost(batch)
        except Exception as error:
            log.exception("ship_failed batch=%s", batch.id)
            return self._keep(batch, f"{type(error).__name__} while shipping")
        return 0.0

    def _send(self, batch: Batch) -> Response:
        headers = {
            "Content-Type": block.MEDIA_TYPE,
            "Faulthound-Node": self._node,
            "Faulthound-Batch": batch.id,
            "Faulthound-Sent-At": f"{self._clock.now():.6f}",
        }
        return self._client.call("POST", "/v1/records", body=batch.read(), headers=headers)

    def _handle(self, batch: Batch, answer: Response) -> float:
        self.shipped.clock_offset_seconds = answer.clock_offset_seconds
        if answer.status in ACKNOWLEDGED:
            self._acknowledged(batch, answer)
            return 0.0
        if answer.status in FINAL:
            log.error("batch_refused batch=%s records=%d answer=%r", batch.id, batch.records, answer.detail())
            self._note(f"refused a batch: {answer.detail()}")
            self._spool.refused(batch)
            # One bad batch costs a moment; where all are refused, the spool keeps them rather than the refused folder.
            return self._waits.next()
        if answer.status == UNAUTHORIZED and self._client.renew_token():
            self._keep(batch, answer.detail())
            return 0.0
        return self._keep(batch, answer.detail(), answer.retry_after_seconds)

    def _acknowledged(self, batch: Batch, answer: Response) -> None:
        rejected = answer.json().get("rejected") or ()
        if rejected:
            log.error("records_rejected batch=%s count=%d first=%r", batch.id, len(rejected), str(rejected[0])[:300])
        self._spool.delivered(batch, len(rejected))
        self._waits.reset()
        self.shipped.batches += 1
        self.shipped.bytes += batch.size_bytes
        self.shipped.at = self._clock.now()
        self._note("")

    def _keep(self, batch: Batch, trouble: str, wait_seconds: float | None = None, *, unreached: bool = False) -> float:
        self._spool.keep(batch)
        self._note(trouble)
        doubling = self._waits.next(unreached=unreached)
        return doubling if wait_seconds is None else wait_seconds

    def _note(self, trouble: str) -> None:
        if trouble and trouble != self.shipped.trouble:
            log.warning("service trouble=%r", trouble)
        elif self.shipped.trouble and not trouble:
            log.info("service reached")
        self.shipped.trouble = trouble
