"""What stops all remediation now: every page says so first."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy.orm import Session

from analyzers.remediation.types import BreakerTrip, Freeze
from service.remediation import rows


class Stops(NamedTuple):
    """The freeze and the open breaker, where there are any."""

    freeze: Freeze | None = None
    trip: BreakerTrip | None = None


NOTHING_STOPS = Stops()


def stops(session: Session) -> Stops:
    """Return what stops all remediation now."""
    return Stops(rows.read_freeze(session), rows.read_breaker(session).trip)
