"""An instance of a role makes no progress though it should, by the rules of roles and phases (role_rules.toml)."""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.incidents.detectors import detector
from analyzers.incidents.job_views.job import JobView
from analyzers.incidents.job_views.role_stalls import numbers_of, stalls_of
from analyzers.model.incident import Symptom

MOST_NAMED = 64


@detector("role_stalled")
def detect(view: JobView, now: float) -> Iterator[Symptom]:
    """Yield a hang for each instance, or role, that holds the job up, the surest first, by the readings' time."""
    del now
    for stall in stalls_of(view)[:MOST_NAMED]:
        numbers = list(numbers_of(view, stall.whom).values())[:MOST_NAMED]
        name = f"{stall.role} {stall.instance}".strip()
        yield Symptom(
            kind="hang",
            detector="role_stalled",
            at=stall.since,
            text=f"{name}: {stall.why}{stall.behind}",
            ranks=tuple(numbers),
            nodes=tuple(sorted({view.ranks[number] for number in numbers if number in view.ranks})),
        )
