"""Logs that end before the last step that their lines announce: ``iteration 249/ 3000`` with nothing below it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collectors.records import Steps

TAIL_BYTES = 1 << 16
WANTED = "stacks or dumps of every rank show a job that hangs, and the launcher's output one that died or was ended"
_OF = re.compile(
    r"(?i)(?<![^\W_])(?:steps?|iter|iteration|it)\]?[ :=\[]{0,16}(\d{1,18}) ?(?:/| of ) {0,16}(\d{1,18})\b(?!\s?[/:.]\d|%)"
)


def ends_early(steps: Sequence[Steps]) -> str:
    """Return ``train.log ends at step 249 of 3,000``; empty: no log announces further steps, or none is known to."""
    for record in sorted(steps, key=lambda one: one.source):
        total = None if record.step is None else _announced(Path(record.source), record.step)
        if total is not None and record.step is not None and total - record.step > _gap(record):
            return f"{Path(record.source).name} ends at step {record.step:,} of {total:,}"
    return ""


def _announced(log: Path, last: int) -> int | None:
    """Return the number of all steps that the log's last line gives with that of the last step, as all others give it.

    A line below that of the last step may say that the job has ended, in any words: then nothing is known.
    """
    try:
        with log.open("rb") as stream:
            stream.seek(max(log.stat().st_size - TAIL_BYTES, 0))
            text = stream.read(TAIL_BYTES).decode(errors="replace").rstrip()
    except OSError:
        return None
    totals, newest = {int(total) for _, total in _OF.findall(text)}, _OF.search(text, text.rfind("\n") + 1)
    return totals.pop() if newest is not None and int(newest[1]) == last and len(totals) == 1 else None


def _gap(record: Steps) -> int:
    """Return the widest gap between two steps of a log."""
    from itertools import pairwise

    from service.cli.record_columns import values

    numbers = values(record.columns.get("step", b""), "<i8")
    return int(max((b - a for a, b in pairwise(numbers)), default=1))
