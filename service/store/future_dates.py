"""Dates in the future among what was observed: a clock was ahead, of this service or of another one on the same database.

The newest observation holds, so a row that is dated a day ahead would hide every change for a day. The rows of a table that are
ahead are shifted back together: their order and distances stay, and the newest of them is from now.
"""

from __future__ import annotations

from sqlalchemy import func, select, update

from service.clock import now
from service.store.database import Database
from service.store.log import AHEAD_SECONDS
from service.store.models import Attempt, Job, Node, Placement

OBSERVED: tuple[type[Node | Job | Attempt | Placement], ...] = (Node, Job, Attempt, Placement)


def shift_back_future(database: Database) -> None:
    """Shift the rows whose ``last_seen_at`` is more than two minutes ahead; called once a minute and when the clock goes back."""
    at = now()
    for model in OBSERVED:
        with database.session() as session:
            newest = session.scalar(select(func.max(model.last_seen_at))) or 0.0
        if newest <= at + AHEAD_SECONDS:
            continue
        ahead = newest - at
        with database.transaction() as session:
            last, first = model.last_seen_at - ahead, model.first_seen_at - ahead
            session.execute(update(model).where(model.first_seen_at > at + AHEAD_SECONDS).values(first_seen_at=first))
            session.execute(update(model).where(model.last_seen_at > at + AHEAD_SECONDS).values(last_seen_at=last))
