"""What the engine has learned of each attempt's progress, written to its table now and then, and read by the next engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from analyzers.incidents.job_views import JobView
from analyzers.incidents.job_views.ending import ENDED_WELL, how_it_ended
from analyzers.incidents.job_views.step_rhythm import DAY_SECONDS
from analyzers.incidents.state import EngineState, JobKey
from service.store.models import Progress
from service.store.schema import clean
from service.store.upserts import upsert

EVERY_SECONDS = 30.0  # of one attempt
MOST_AT_ONCE = 64  # attempts in one transaction
MOST_READ = 4_096
MOST_UNCONFIRMED = 64  # nodes that are named
NO_ATTEMPT = -1


class Learned:
    """When each attempt's row was last written."""

    def __init__(self) -> None:
        self._written_at: dict[JobKey, float] = {}
        self._written_of: dict[JobKey, tuple[float, float]] = {}  # which run it was then, and when that had ended

    def due_of_new(self, state: EngineState, now: float) -> list[dict[str, Any]]:
        """Return the rows of attempts that have begun, or ended, since theirs was written: people ask for those first."""
        new = [key for key, view in state.jobs.items() if _run_of(view) != self._written_of.get(key)]
        return list(self._rows(state, new[:MOST_AT_ONCE], now))

    def due(self, state: EngineState, now: float) -> list[dict[str, Any]]:
        """Return the rows to write, those that wait longest first."""
        self._written_at = {key: at for key, at in self._written_at.items() if key in state.jobs}
        self._written_of = {key: of for key, of in self._written_of.items() if key in state.jobs}
        waiting = sorted(
            (self._written_at.get(key, 0.0), str(key), key) for key in state.jobs
            if now - self._written_at.get(key, 0.0) >= EVERY_SECONDS
        )  # fmt: skip
        return list(self._rows(state, [key for _, _, key in waiting[:MOST_AT_ONCE]], now))

    def _rows(self, state: EngineState, keys: list[JobKey], now: float) -> Iterator[dict[str, Any]]:
        for key in keys:
            view = state.jobs[key]
            self._written_at[key], self._written_of[key] = now, _run_of(view)
            try:
                document = view.document(now)
                how = how_it_ended(view, now)
                document["ended_how"] = "" if how == ENDED_WELL else how
            except Exception as error:  # noqa: BLE001 - one job's odd record must not stop the others
                state.note_failure("learn", f"job {key[0]}", error)
                continue
            if (hosting := state.hosting.get(key[0])) is not None and (names := hosting.unconfirmed(key[1])):
                document["unconfirmed"] = [clean(name, 255) for name in names[:MOST_UNCONFIRMED]]
            attempt = NO_ATTEMPT if key[1] is None else key[1]
            yield {"job": clean(key[0], 255), "attempt": attempt, "at": now, "document": document}


def _run_of(view: JobView) -> tuple[float, float]:
    """Return when an attempt was started anew, and when its last rank ended; 0: not. An end is known only after it."""
    over_at = max(end.at for end in view.ended.values()) if view.ended and not view.processes.alive else 0.0
    return view.run_began_at, over_at


def hosts_in(document: dict[str, Any]) -> tuple[float, tuple[str, ...]] | None:
    """Return which nodes hosted an attempt, and when that was written; None: the document does not say."""
    try:
        found = document["hosts"]
        return float(found["at"]), tuple(map(str, found["nodes"]))
    except (KeyError, TypeError, ValueError):
        return None


def write(session: Session, rows: list[dict[str, Any]]) -> None:
    """Store the rows; an attempt whose name is cut to another's is that attempt's."""
    upsert(session, Progress, {(row["job"], row["attempt"]): row for row in rows}.values())


def read(session: Session, now: float) -> dict[JobKey, dict[str, Any]]:
    """Return what was learned in the last day, of the attempts that were seen last."""
    rows = session.scalars(
        select(Progress).where(Progress.at >= now - DAY_SECONDS).order_by(Progress.at.desc()).limit(MOST_READ)
    )
    return {(row.job, None if row.attempt == NO_ATTEMPT else row.attempt): row.document for row in rows}
