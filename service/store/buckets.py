"""Rates by sender: of batches and bytes at intake, of new rows behind the log."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from time import monotonic

MOST_SENDERS = 50_000


class Buckets:
    """Token buckets by sender. Memory is bounded: the sender that was quiet longest is forgotten, as if it were new."""

    def __init__(self, per_second: float, burst: int, *, clock: Callable[[], float] = monotonic) -> None:
        self._per_second, self._burst, self._clock = per_second, burst, clock
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()  # sender → (left, as of)

    def wait_seconds(self, sender: Hashable, count: int = 1, now: float | None = None) -> float:
        """Take ``count`` from the sender's bucket and return 0, or return in how many seconds there will be one.

        Where one is left all are given, and what is too much is owed: a large item passes, and the mean holds.
        ``now``: by another clock than the buckets' own; one that goes back fills nothing.
        """
        now = self._clock() if now is None else now
        left, since = self._buckets.pop(sender, (float(self._burst), now))
        left = min(self._burst, left + max(0.0, now - since) * self._per_second)
        wait = 0.0 if left >= 1 else (1 - left) / self._per_second
        self._buckets[sender] = (left if wait else left - count, now)
        if len(self._buckets) > MOST_SENDERS:
            self._buckets.popitem(last=False)
        return wait

    def owe(self, sender: Hashable, count: int) -> None:
        """Take what is known only afterwards, whether it is there or not."""
        left, since = self._buckets.get(sender, (float(self._burst), self._clock()))
        self._buckets[sender] = (left - count, since)

    def __len__(self) -> int:
        return len(self._buckets)
