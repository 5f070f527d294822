"""A pasted text as it is: where no rule decides by its lines, it is judged by its words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collectors.records import LogEvent

MOST_BYTES = 16 << 10
"""What people paste of a failure is shorter; of a longer text a few words would decide."""


def whole_text(paths: Sequence[Path], source: str) -> LogEvent | None:
    """Return the one text that was given, as an event; None for several files, and for what reports no failure.

    A long text, a document and a program's source report none.
    """
    from collectors.files.documents import is_document
    from collectors.formats.prose.troubles import may_report
    from collectors.formats.text_lines import is_text
    from collectors.records import WHOLE_TEXT, LogEvent

    if len(paths) != 1 or not paths[0].is_file() or is_document(str(paths[0])):
        return None
    try:
        with paths[0].open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except OSError:
        return None
    if len(data) > MOST_BYTES or not is_text(data, str(paths[0])):
        return None
    text = data.decode("utf-8-sig", errors="replace")
    return LogEvent(source=source, event=WHOLE_TEXT, message=text) if may_report(text) else None


def why_nothing(paths: Sequence[Path]) -> str | None:
    """Return what the one text that was given is, where it shows no failure of a job; None where nothing says so."""
    from collectors.formats.prose import test_runs, watch_rules
    from collectors.formats.prose.sound_logs import is_sound, is_table, was_stopped

    if len(paths) != 1 or not paths[0].is_file():
        return None
    try:
        with paths[0].open("rb") as stream:
            text = stream.read(MOST_BYTES + 1).decode("utf-8-sig", errors="replace")
    except OSError:
        return None
    if test_runs.is_test_run(text):
        return test_runs.WHY
    if watch_rules.is_task(text):
        return watch_rules.WHY
    if len(text) <= MOST_BYTES and is_sound(text):
        return f"the log of a server that serve{'d until it was stopped' if was_stopped(text) else 's'}"
    return "a table of GPUs that answer" if len(text) <= MOST_BYTES and is_table(text) else None
