"""Whether the service is open, because no token was made yet."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

CHECK_SECONDS = 1.0  # another process may make the first token


class OpenAccess:
    """Whether requests need no token: none was ever made. After the first one they always do, also when all are revoked."""

    def __init__(self, any_token: Callable[[], bool]) -> None:
        self._any_token = any_token
        self._closed, self._checked_at = False, -CHECK_SECONDS

    @property
    def is_fresh(self) -> bool:
        """Whether the answer is known without a query."""
        return self._closed or monotonic() - self._checked_at < CHECK_SECONDS

    def is_open(self) -> bool:
        """Return whether requests need no token; the table is queried once a second until there is one."""
        if not self.is_fresh:
            self._closed = self._any_token()
            self._checked_at = monotonic()
        return not self._closed

    def recheck(self) -> None:
        """Query again at the next request: a token was just made."""
        self._checked_at = -CHECK_SECONDS
