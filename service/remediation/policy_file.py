"""The policy as it stands in a file now: read again when the file changes, so that an edit needs no restart."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from msgspec.structs import replace

from analyzers.remediation.policy import MOST_BYTES, PolicyError, parse_policy
from analyzers.remediation.types import Policy

_log = logging.getLogger(__name__)


class PolicyFile:
    """A file's policy. While it cannot be read or understood, nothing acts by itself and the newest good limits hold."""

    def __init__(self, path: Path | None) -> None:
        """``None``: everything is proposed to a person, under the usual limits."""
        self.problem: str | None = None  # with the file as it is now
        self._path = path
        self._lock = threading.Lock()
        self._policy = Policy()
        self._seen: object = None

    def __call__(self) -> Policy:
        """Return the policy as it is now."""
        if self._path is None:
            return self._policy
        with self._lock:
            try:
                found = self._path.stat()
                state: object = (found.st_mtime_ns, found.st_size, found.st_ino)
                if state != self._seen:
                    self._take(self._read())
                    self._seen = state
            except (OSError, UnicodeDecodeError, PolicyError) as error:
                self._refuse(str(error))
            return self._policy

    def _read(self) -> str:
        assert self._path is not None
        with self._path.open("rb") as file:
            return file.read(MOST_BYTES + 1).decode()

    def _take(self, text: str) -> None:
        self._policy = parse_policy(text)
        self.problem = None
        _log.info("policy_read path=%s rules=%d", self._path, len(self._policy.rules))

    def _refuse(self, why: str) -> None:
        """Let nothing act automatically. A file that was read while it was written is read again the next time."""
        self._policy = replace(self._policy, rules=())
        self._seen = None
        if why != self.problem:
            _log.error("policy_unusable path=%s reason=%s", self._path, why)
        self.problem = why
