"""An incident's export is judged as its newest published verdict was: from the same records, cut and symptoms.

Its records alone say less: they do not show which symptom opened it, what was waited for, and up to when it was judged.
"""

from __future__ import annotations

from pathlib import Path

from analyzers.knowledge import Knowledge
from analyzers.model.verdict import Verdict
from service.cli.comparison import Comparison
from service.cli.recording import Recording


def judged_before(path: Path, knowledge: Knowledge) -> Verdict | None:
    """Return the newest verdict of the one incident whose export this is, judged again; None: it is of none, or had none."""
    recording = Recording.opened(path)
    if (recording.manifest is None or recording.manifest.incident is None) and not recording.published:
        return None
    newest = max(recording.cuts(), default=None)
    found = Comparison.of(recording, knowledge, float("inf"), newest, None).newest
    return found.verdict if found is not None and found.judged else None
