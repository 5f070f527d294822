"""The ranks' processes: which runs, and how those that do not have ended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class End:
    """How a rank's process ended; neither code nor signal: nobody saw it."""

    rank: int
    node: str
    at: float  # by the service's clock
    pid: int | None = None
    code: int | None = None
    signal: int | None = None

    @property
    def well(self) -> bool:
        """Whether it ended as a process does that has done its work."""
        return self.code == 0 and not self.signal
