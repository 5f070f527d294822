"""Stacks of a job that was stopped and continued: until its next step, one rank is ahead of the others by how it was continued.

A person stops the ranks one after the other, and continues them so. Those that go on first wait for the last in communication,
which then stands alone in its own code, as a rank does that holds the others up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np

from analyzers.model.standings import Standing
from analyzers.model.window import Window
from collectors.records import ProcessState, Steps

SOON_SECONDS = 10.0
"""After a continuation: an agent reads states so often, and a step that was cut in two is over, or a stack later shows it."""
STEP_SECONDS = 300.0
"""After a continuation, or twice the longest step that is known: a job without a step for longer stands for another reason."""
STOPPED = "T"


def soon_after_continuation(found: Iterable[Standing], window: Window) -> bool:
    """Whether a stack may show no more than that a rank was stopped and goes on: too soon, or before the job's next step."""
    continued_at = max(_continuations(window), default=None)
    looked_at = [one.at for one in found if one.at is not None]
    if continued_at is None or not looked_at:
        return False
    first = min(looked_at)
    if first < continued_at + SOON_SECONDS:
        return True
    stepped = sorted(
        {at for steps in window.records_of(Steps) if steps.received_at is not None for at in _instants(steps)}
    )
    if not stepped or any(continued_at < at <= first for at in stepped):
        return False
    longest = max((after - before for before, after in pairwise(stepped) if after <= continued_at), default=0.0)
    return first < continued_at + max(STEP_SECONDS, 2 * longest)


def _continuations(window: Window) -> Iterator[float]:
    """Yield when ranks that were stopped were first read otherwise, by agents. One that has ended since was not continued."""
    rows = [row for row in window.records_of(ProcessState) if row.boot_id is not None and row.parent_pid is None]
    before: dict[tuple[str | None, int | None], str] = {}
    for row in sorted((row for row in rows if row.at is not None), key=lambda row: row.at or 0.0):
        whose = row.node, row.pid
        if before.get(whose) == STOPPED and row.state not in {STOPPED, "X", "Z"}:
            yield row.at or 0.0
        before[whose] = row.state


def _instants(steps: Steps) -> list[float]:
    """Return when the steps of a record ended: the newest where no column says it."""
    data = steps.columns.get("at", b"")
    known: list[float] = np.frombuffer(data, "<f8", len(data) // 8).tolist()
    return known or ([] if steps.at is None or steps.step is None else [steps.at])
