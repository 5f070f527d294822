"""What was published and what is judged now, version by version."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from analyzers.diagnosis import every_analyzer
from analyzers.incidents.replay import ReplayCase, rejudge_cuts
from analyzers.knowledge import Knowledge
from analyzers.model.incident import Cut
from analyzers.model.verdict import Verdict, to_json
from analyzers.verdict.build import VERSION
from collectors.records.bundle import Published
from collectors.records.printable import printable
from service.cli.recording import Recording
from service.cli.speech import Progress
from service.cli.times import shown_instant
from service.reports import history

MOST_DIFFERENT_LINES = 40


@dataclass(frozen=True, slots=True)
class Version:
    """One version: as it was published, and as it is judged now. Either may be missing, never both."""

    number: int
    at: float
    published: Published | None
    verdict: Verdict  # judged now, or as it was published where it cannot be judged again
    document: bytes
    judged: bool
    alike: bool  # the same program and knowledge: then a different byte is an error
    damaged: bool  # the bundle: records may be lost

    @property
    def same(self) -> bool | None:
        """Whether the bytes are those that were published; None where there is nothing to compare."""
        return self.document == self.published.document if self.judged and self.published is not None else None

    @property
    def same_judgement(self) -> bool | None:
        """Whether the two are equal but for the program and the knowledge that they name."""
        if self.same is not False or self.published is None:
            return self.same
        return _unsigned(self.published) == _unsigned(self)

    @property
    def compared(self) -> str:
        """Return in words how the two compare."""
        if not self.judged:
            return "not judged again"
        if self.published is None:
            return "published bytes lost"
        if self.same:
            return "same"
        by = "" if self.alike else f" (by {self.published.program or '?'}, knowledge {self.published.knowledge[:15]}…)"
        by = by or (" (damaged)" if self.damaged else "")
        return f"{'same judgement' if self.same_judgement else 'differ'}{by}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """All the versions of an incident's verdict, oldest first."""

    versions: tuple[Version, ...]

    @classmethod
    def of(
        cls, recording: Recording, knowledge: Knowledge, until: float, only: int | None, progress: Progress | None
    ) -> Comparison:
        """Judge again what was published until then; ``only``: this version."""
        cuts = {
            number: cut
            for number, cut in recording.cuts().items()
            if _at(recording, number, cut) <= until and only in (None, number)
        }
        again = _again(recording, cuts, knowledge, progress)
        found = [_version(number, cut, recording, again.get(number), knowledge) for number, cut in cuts.items()]
        return cls(tuple(one for one in found if one is not None))

    @property
    def newest(self) -> Version | None:
        """The last version."""
        return self.versions[-1] if self.versions else None

    def broken(self) -> Iterator[str]:
        """Yield a sentence for each version that should be the same bytes and is not."""
        for one in self.versions:
            if one.same is False and one.alike and one.damaged:
                yield (
                    f"version {one.number} is not the bytes that were published, and the bundle is damaged: export it again"
                )
            elif one.same is False and one.alike:
                yield (
                    f"version {one.number} is not the bytes that were published, by the same program ({VERSION}) with the "
                    "same knowledge: was the program changed without a new version?"
                )

    def print_json(self, recording: Recording) -> None:
        """Print all versions, and the last document."""
        from service.cli.output import print_json

        incident = recording.manifest.incident if recording.manifest is not None else None
        document = {
            "incident": incident,
            "versions": [_as_json(one) for one in self.versions],
            "verdict": msgspec.Raw(self.versions[-1].document) if self.versions else None,
            "damage": recording.damage,
        }
        print_json(document)

    def print_text(self, recording: Recording) -> None:
        """Print a line a version, what differs, and the last verdict."""
        from service.cli.output import print_table, print_verdict

        sys.stdout.write(f"{printable(_title(recording))}\n\n")
        lines = list(self._lines(recording))
        cells = [(*line, one.compared) for line, one in zip(history.lines(lines), self.versions, strict=True)]
        print_table((*history.COLUMNS, "bytes"), cells)
        for one in self.versions:
            if one.same is False and (one.alike or not one.same_judgement):
                sys.stdout.write("\n" + "\n".join(_difference(one)) + "\n")
        sys.stdout.write("\n")
        if (planned := lines[-1].plan) not in (None, lines[-1].action):
            words = planned.replace("_", " ")
            sys.stdout.write(f"Planned at the export: {words}. The verdict by itself, before the plan was made:\n\n")
        print_verdict(self.versions[-1].verdict)

    def _lines(self, recording: Recording) -> Iterator[history.VersionLine]:
        """Yield a line a version; what was planned at the export stands beside the newest that was published."""
        incident = recording.manifest.incident if recording.manifest is not None else None
        planned = (len(incident.cuts), incident.plan) if incident is not None else (0, None)
        for one in self.versions:
            line = history.of_verdict(one.verdict, one.number, one.at)
            yield replace(line, plan=planned[1]) if one.number == planned[0] else line


def _unsigned(one: Version | Published) -> dict[str, Any] | None:
    """Return a document without the program and knowledge that it names; None where it is no document."""
    try:
        document = msgspec.json.decode(one.document, type=dict[str, Any])
    except msgspec.DecodeError:
        return None
    return {name: value for name, value in document.items() if name not in ("version", "knowledge")}


def _again(
    recording: Recording, cuts: dict[int, Cut], knowledge: Knowledge, progress: Progress | None
) -> dict[int, Verdict]:
    """Return the verdicts that can be judged again, by version."""
    incident = recording.manifest.incident if recording.manifest is not None else None
    if incident is None or incident.job is None:  # of the fleet: judged from all jobs, which no bundle holds
        return {}
    case = ReplayCase(incident.id, incident.job, incident.attempt, incident.nodes, tuple(recording.context))
    # A cut that names every analyzer stands for a judgement that was never finished.
    judged = {number: cut for number, cut in cuts.items() if not set(every_analyzer()) <= set(cut.unfinished)}
    in_order = sorted(judged, key=lambda number: (judged[number].through, judged[number].at))
    found = rejudge_cuts(case, [judged[number] for number in in_order], recording.batches(progress), knowledge)
    return {number: one.verdict for number, one in zip(in_order, found, strict=True)}


def _version(
    number: int, cut: Cut, recording: Recording, verdict: Verdict | None, knowledge: Knowledge
) -> Version | None:
    published, at = recording.published.get(number), _at(recording, number, cut)
    alike = published is not None and (published.program, published.knowledge) == (VERSION, knowledge.hash)
    damaged = bool(recording.damage)
    if verdict is not None:
        return Version(number, at, published, verdict, to_json(verdict), True, alike, damaged)
    if published is None:
        return None
    try:
        known = msgspec.json.decode(published.document, type=Verdict)
    except msgspec.DecodeError as error:
        recording.damage.append(f"the document of version {number} cannot be understood: {error}")
        return None
    return Version(number, at, published, known, published.document, False, alike, damaged)


def _at(recording: Recording, number: int, cut: Cut) -> float:
    """Return when a version was published, or where that is lost, when it was judged."""
    published = recording.published.get(number)
    return published.at if published is not None else cut.at


def _as_json(one: Version) -> dict[str, Any]:
    published = one.published
    return {
        **history.as_json(history.of_verdict(one.verdict, one.number, one.at)),
        "same": one.same,
        "same_judgement": one.same_judgement,
        "program": {"published": published.program if published is not None else None, "now": VERSION},
        "knowledge": {
            "published": published.knowledge if published is not None else None,
            "now": one.verdict.knowledge if one.judged else None,
        },
    }


def _difference(one: Version) -> Iterator[str]:
    """Yield the difference between the two documents, at most some lines."""
    assert one.published is not None
    was, now = (document.decode("utf-8", "replace").splitlines() for document in (one.published.document, one.document))
    lines = [
        line for line in difflib.unified_diff(was, now, n=0, lineterm="") if not line.startswith(("---", "+++", "@@"))
    ]
    by = f"faulthound {one.published.program or '?'} with knowledge {one.published.knowledge or '?'}"
    yield f"version {one.number}: - as {by} published it, + as it is judged now"
    yield from (f"  {printable(line)}" for line in lines[:MOST_DIFFERENT_LINES])
    if len(lines) > MOST_DIFFERENT_LINES:
        yield f"  … and {len(lines) - MOST_DIFFERENT_LINES:,} more lines (--version {one.number} --json has the document)"


def _title(recording: Recording) -> str:
    incident = recording.manifest.incident if recording.manifest is not None else None
    if incident is None:
        return f"{recording.path}: an incident whose manifest is lost: as it was published, not judged again"
    whose = f" of {incident.job}" if incident.job else " of the fleet"
    attempt = f", attempt {incident.attempt}" if incident.attempt is not None else ""
    return f"{incident.id}: {incident.kind}{whose}{attempt}, opened {shown_instant(incident.opened_at)}"
