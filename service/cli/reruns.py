"""What the engine would have done with a stretch of the log: the incidents, their verdicts, and the alarms."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from analyzers.incidents.messages import Alarm, Close, EngineInstruction, Merge, Open, Publish, Received
from analyzers.incidents.replay import rerun_engine
from analyzers.knowledge import Knowledge
from analyzers.model.incident import Incident, Symptom
from analyzers.model.verdict import Verdict, to_json
from collectors.records.printable import printable
from service.cli.recording import Recording
from service.cli.speech import Progress
from service.cli.times import shown_instant
from service.reports import history
from service.reports.instants import clock

HEALTHY = Verdict(symptom="healthy", cause="none", abstained=False)  # of a stretch in which no incident opened


@dataclass(slots=True)
class Story:
    """One incident, from its opening on."""

    incident: Incident
    symptoms: list[Symptom]
    versions: list[tuple[float, Publish]] = field(default_factory=list)
    closed: Close | None = None


@dataclass(slots=True)
class Reruns:
    """The engine's instructions."""

    stories: dict[str, Story] = field(default_factory=dict)
    alarms: list[tuple[float, Alarm]] = field(default_factory=list)

    @classmethod
    def of(cls, recording: Recording, knowledge: Knowledge, until: float, progress: Progress | None) -> Reruns:
        """Run the engine over the bundle's batches."""
        found = cls()
        job = recording.manifest.job if recording.manifest is not None else ""
        batches = (_of_job(batch, job) for batch in recording.batches(progress, until))
        for at, instruction in rerun_engine(batches, knowledge, recording.declared()):
            found._take(at, instruction)
        return found

    def _take(self, at: float, instruction: EngineInstruction) -> None:
        if isinstance(instruction, Open):
            self.stories[instruction.incident.id] = Story(instruction.incident, list(instruction.incident.symptoms))
        elif isinstance(instruction, Merge):
            self.stories[instruction.incident].symptoms.append(instruction.symptom)
        elif isinstance(instruction, Publish):
            self.stories[instruction.incident].versions.append((at, instruction))
        elif isinstance(instruction, Close):
            self.stories[instruction.incident].closed = instruction
        elif isinstance(instruction, Alarm):
            self.alarms.append((at, instruction))

    @property
    def verdict(self) -> Verdict:
        """The newest verdict; healthy where no incident opened, undecided where one opened and nothing was published."""
        newest = max((version for story in self.stories.values() for version in story.versions), key=_at, default=None)
        if newest is not None:
            return newest[1].verdict
        return HEALTHY if not self.stories else Verdict(symptom="unknown", cause="unknown", abstained=True)

    def print_json(self, recording: Recording) -> None:
        """Print every incident with its last verdict."""
        from service.cli.output import print_json

        document = {
            "incidents": [_as_json(story) for story in self.stories.values()],
            "alarms": [{"at": at, **msgspec.to_builtins(alarm)} for at, alarm in self.alarms],
            "damage": recording.damage,
        }
        print_json(document)

    def print_text(self, recording: Recording) -> None:
        """Print every incident: why it opened, how its verdict changed, why it closed; and the newest verdict."""
        from service.cli.output import print_table, print_verdict

        job = recording.manifest.job if recording.manifest is not None and recording.manifest.job else "every job"
        count = len(self.stories)
        opened = f"{count:,} incident{'s' if count != 1 else ''}" if count else "no incident"
        sys.stdout.write(f"{recording.count:,} batches of {printable(job)}: the engine opens {opened}\n")
        for at, alarm in self.alarms:
            sys.stdout.write(f"{clock(at)}  alarm{'' if alarm.raised else ' over'}: {printable(alarm.text)}\n")
        for story in self.stories.values():
            sys.stdout.write("\n" + "\n".join(map(printable, _lines(story))) + "\n")
            if story.versions:
                sys.stdout.write("\n")
                print_table(history.COLUMNS, history.lines(_versions(story)))
        if any(story.versions for story in self.stories.values()):
            sys.stdout.write("\n")
            print_verdict(self.verdict)


def _of_job(batch: Received, job: str) -> Received:
    """Leave out what is of other jobs: of their nodes the bundle has but those that they share with this one."""
    if not job:
        return batch
    return msgspec.structs.replace(batch, records=tuple(one for one in batch.records if one.job in (None, job)))


def _at(version: tuple[float, Publish]) -> float:
    return version[0]


def _versions(story: Story) -> Iterator[history.VersionLine]:
    return (history.of_verdict(one.verdict, one.version, at) for at, one in story.versions)


def _lines(story: Story) -> Iterator[str]:
    incident = story.incident
    attempt = f", attempt {incident.attempt}" if incident.attempt is not None else ""
    job = printable(incident.job) if incident.job else "the fleet"
    yield f"{incident.id}: {incident.kind} of {job}{attempt}, opened {shown_instant(incident.opened_at)}"
    for symptom in story.symptoms:
        yield f"  {clock(symptom.at)}  {symptom.detector}: {printable(symptom.text)}"
    if story.closed is not None:
        yield f"  {clock(story.closed.at)}  closed: {printable(story.closed.because)}"
    else:
        yield "  still open at the end"


def _as_json(story: Story) -> dict[str, Any]:
    incident, closed = story.incident, story.closed
    return {
        "id": incident.id,
        "kind": incident.kind,
        "job": incident.job,
        "attempt": incident.attempt,
        "opened_at": incident.opened_at,
        "onset_at": incident.onset_at,
        "nodes": incident.nodes,
        "closed_at": closed.at if closed is not None else None,
        "closed_because": closed.because if closed is not None else "",
        "symptoms": story.symptoms,
        "versions": [history.as_json(line) for line in _versions(story)],
        "verdict": msgspec.Raw(to_json(story.versions[-1][1].verdict)) if story.versions else None,
    }
