"""What the store does for itself once a minute, in a thread of its own, so that no request and no commit waits for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sqlalchemy.exc import SQLAlchemyError

EVERY_SECONDS = 60.0
CLOSING_SECONDS = 5.0  # that a chore is waited for: a sweep of many gigabytes takes minutes, each of its steps is whole

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Upkeep:
    """Chores by name, such as ``{"tokens": tokens.write_used, "retention": retention.sweep}``; one that fails is logged."""

    chores: Mapping[str, Callable[[], object]]
    every_seconds: float = EVERY_SECONDS
    failures: dict[str, int] = field(default_factory=dict)
    _closing: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread; the first round is at once."""
        self._thread = threading.Thread(target=self._run, name="upkeep", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread after the chore that it is at; a long one is left behind."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(CLOSING_SECONDS)

    def round(self) -> None:
        """Do each chore once."""
        for name, chore in self.chores.items():
            if self._closing.is_set():
                return
            try:
                chore()
            except (SQLAlchemyError, OSError) as error:
                self.failures[name] = self.failures.get(name, 0) + 1
                _log.warning("upkeep_failed chore=%s reason=%s", name, str(error).partition("\n")[0])
            except Exception:  # noqa: BLE001 - were the thread to end, nothing would be deleted any more and the disk fill up
                self.failures[name] = self.failures.get(name, 0) + 1
                _log.exception("upkeep_failed chore=%s", name)

    def _run(self) -> None:
        self.round()
        while not self._closing.wait(self.every_seconds):
            self.round()
