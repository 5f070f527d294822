"""Ranks that take longer for their own work than before, while the job's steps do not: reported, and never acted on.

    own time of one rank up by a tenth of a step, of no other, the steps as before ──► latent
      ▲                                                                                 │
      └────────────── its own time is back, or was not read, or the job is slow ◄───────┘

The job does not wait for such a rank yet: it has slack, as a pipeline's later stages have. It is what a slowdown may begin with.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from analyzers.incidents.job_views.burdens import BEFORE_MINUTES, FEWEST, OTHERS_SHARE, Burdens
from analyzers.incidents.job_views.minutes import MINUTE_SECONDS
from analyzers.incidents.job_views.progress import Progress
from analyzers.model.medians import median

NEWEST_MINUTES = 3
WORTH_SHARE = 0.1  # of a step
STEP_SHARE = 0.05  # by so much more the steps are not as before


class Latent(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that is slower than it was and does not slow the job. ``since``: by the service's clock, to the minute."""

    rank: int
    since: float
    before_seconds: float  # of each step, for its own work
    seconds: float  # when that was found


class LatentRanks:
    """Those of one attempt; one rank at a time, because several at once are no rank's slowness."""

    def __init__(self) -> None:
        self.found: Latent | None = None
        self._minute = 0

    def update(self, burdens: Burdens, progress: Progress, now: float) -> None:
        """Look once a minute."""
        minute = int(now // MINUTE_SECONDS)
        if minute <= self._minute:
            return
        self._minute = minute
        if progress.slowdown is not None:
            self.found = None
            return
        since = (minute - NEWEST_MINUTES) * MINUTE_SECONDS
        earlier = progress.slowdowns_before(now)
        ranks, own, steps = burdens.own_work(since, now, BEFORE_MINUTES, earlier)
        if self.found is not None:
            place = ranks.index(self.found.rank) if self.found.rank in ranks else -1
            newest = own[1][place] if place >= 0 else float("nan")
            if not newest > (self.found.before_seconds + self.found.seconds) / 2:
                self.found = None
            return
        known = np.isfinite(own).all(axis=0) & np.isfinite(steps).all(axis=0)
        if known.sum() < FEWEST:
            return
        rises = np.where(known, own[1] - own[0], -np.inf)
        step, longer = median(steps[0][known]), median((steps[1] - steps[0])[known])
        place = int(np.argmax(rises))
        others = np.delete(rises, place)
        alone = rises[place] >= WORTH_SHARE * step and others.max() <= OTHERS_SHARE * rises[place]
        if alone and longer <= min(STEP_SHARE * step, OTHERS_SHARE * rises[place]):
            before, after = float(own[0][place]), float(own[1][place])
            self.found = Latent(rank=ranks[place], since=since, before_seconds=before, seconds=after)

    def document(self) -> list[dict[str, Any]]:
        """Return what was found, as plain values; ``restore`` takes it."""
        return [] if self.found is None else [msgspec.to_builtins(self.found)]

    def restore(self, document: list[dict[str, Any]]) -> None:
        """Take over what an engine before this one had found."""
        if document and self.found is None:
            self.found = msgspec.convert(document[0], Latent)
