"""New lines of a job's log."""

from __future__ import annotations

import io
import math
from typing import Any

from collectors.formats import Input
from collectors.formats.job_log.bars import shown_in
from collectors.formats.job_log.job_log import scan
from collectors.formats.job_log.step_series import MAX_STEPS, Place
from collectors.formats.text_lines import with_line_feeds
from collectors.records import block

MOST_REPORTS = 64  # of stragglers: of a first reading the newest


def parse(data: bytes, path: str, rank: int | None, node: str, written_at: float) -> dict[str, Any]:
    """Return the events, the steps and reports of stragglers as blocks.

    ``places``: (task, local rank, node) of the steps whose lines name no rank.
    ``phase``: the newest that the process reports, and when it began. ``bars``: what progress bars show last. ``newest``: the
    latest stamp of a line, None where none has one. Stamps are as the lines give them.
    """
    log = scan(Input(path, io.BytesIO(with_line_feeds(data)), data[: 1 << 16], rank, node, written_at), MAX_STEPS)
    places: list[Place] = []
    steps = list(log.steps.records(path, places.append))
    events = log.events()
    reported = [*log.steps.instants(), *log.stragglers.instants(), *(event.at for event in events)]
    stamps = [at for at in reported if at is not None]
    return {
        "events": block.encode(events),
        "steps": block.encode(steps),
        "stragglers": block.encode(log.stragglers.records(path, MOST_REPORTS)),
        "places": [tuple(place) for place in places],
        "newest": max((at for at in stamps if not math.isnan(at)), default=None),
        "many_nodes": log.ranks.many_nodes,
        "phase": log.phases.newest(),
        "bars": shown_in(data),
    }
