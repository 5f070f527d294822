"""How often a job tells of a step, and where it pauses by habit: what silence is too long for this job, now."""

from __future__ import annotations


class Rhythm:
    """The newest steps of one teller, and the longest pauses among all."""

    def median_seconds(self) -> float | None:
        """Return the usual time between two tellings; None before there are enough."""
        raise NotImplementedError

    def p99_seconds(self) -> float | None:
        """Return what one time in a hundred is exceeded, pauses left out; None before there are enough."""
        raise NotImplementedError

    def allowed_seconds(self, after_step: int | None = None) -> float:
        """Return how long silence may last after this step."""
        raise NotImplementedError
