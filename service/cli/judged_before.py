"""An incident's export is judged as its newest published verdict was: from the same records, cut and symptoms.

Its records alone say less: they do not show which symptom opened it, what was waited for, and up to when it was judged.
"""

from __future__ import annotations

from pathlib import Path

from analyzers.knowledge import Knowledge
from analyzers.model.verdict import Verdict
from service.cli.comparison import Comparison
from service.cli.recording import Recording
from service.cli.speech import Speech


def judged_before(path: Path, knowledge: Knowledge, job: str | None, speech: Speech) -> Verdict | None:
    """Return the newest verdict of the one incident whose export this is, judged again; None: it is of none, or saw nothing.

    ``job``: the chosen one, if any; an incident of another job is none. Records that came after the verdict are counted.
    """
    recording = Recording.opened(path)
    incident = recording.manifest.incident if recording.manifest is not None else None
    cuts = recording.cuts()
    if incident is None or not cuts or job not in {None, incident.job}:
        return None
    found = Comparison.of(recording, knowledge, float("inf"), max(cuts), None).newest
    if found is None or not found.judged or not found.verdict.coverage.sources:
        return None
    through = cuts[max(cuts)].through
    later = sum(len(one.records) for one in recording.batches(None) if one.sequence > through)
    if later:
        speech.note(f"the newest verdict is older than {later:,} of the records in {path}: they are not in it")
    return found.verdict
