"""What the API shows of incidents: one shape for lists, one for an incident, and how they are made of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from pydantic import BaseModel, Field
from sqlalchemy import Select, select
from sqlalchemy.orm import Session, defer

from service.api.problems import not_found
from service.store.models import Downtime, Feedback, Happening, Incident, Verdict

MOST_VERSIONS = 100  # of a verdict, and as much feedback, that an incident's own document shows


class Culprit(BaseModel):
    """Whom a verdict names, in short."""

    kind: str = ""
    id: str = ""
    ranks: list[int] = []
    probability: float = 0.0


class VerdictSummary(BaseModel):
    """What a version of a verdict says, in short."""

    version: int
    at: float = Field(description="When it was published.")
    symptom: str
    cause: str
    abstained: bool
    action: str
    culprits: list[Culprit]


class VerdictVersion(VerdictSummary):
    """A version of a verdict, and what it was judged from and with."""

    cut: dict[str, Any] = Field(description="Which records it saw: what a replay needs to judge the same.")
    knowledge: str = Field(description="The hash of the tables.")
    program: str = Field(description="The version of the program.")


class IncidentSummary(BaseModel):
    """A symptom from its opening to its closing, and the newest verdict in short. Instants are UTC seconds."""

    id: str
    kind: str = Field(description="hang, slow, crash, numeric, hardware, silence or infrastructure.")
    job: str | None = Field(description="null: of the fleet.")
    attempt: int | None
    status: Literal["open", "closed"]
    opened_at: float
    onset_at: float = Field(description="Of its first symptom's first sign.")
    closed_at: float | None
    closed_because: str
    merged_into: str | None = Field(description="The infrastructure incident that explains it.")
    nodes: list[str]
    verdict: VerdictSummary | None = Field(description="null: none is published yet.")


class SymptomDocument(BaseModel):
    """What a detector saw."""

    kind: str = ""
    detector: str = ""
    at: float = 0.0
    text: str = ""
    ranks: list[int] = []
    nodes: list[str] = []


class NamedCulprit(BaseModel):
    """Who it really was."""

    kind: str
    id: str


class FeedbackDocument(BaseModel):
    """What somebody said of a version of a verdict."""

    id: int
    verdict_version: int
    at: float
    by: str
    judgement: str
    culprit: NamedCulprit | None
    text: str


class DowntimeDocument(BaseModel):
    """What an incident cost its job."""

    incident: str
    attempt: int | None
    onset_at: float
    detected_at: float
    verdict_at: float | None
    acted_at: float | None = Field(description="When the attempt was ended, or a new one began.")
    first_good_at: float | None = Field(description="The end of the first step after it.")
    last_step: int | None
    resumed_step: int | None
    steps_lost: int | None = Field(description="Done before, and done again from the checkpoint.")


class HappeningDocument(BaseModel):
    """One line of a timeline, and one event of the stream."""

    sequence: int
    at: float
    kind: str
    incident: str | None
    job: str | None
    details: dict[str, Any]


class IncidentDocument(IncidentSummary):
    """An incident with its symptoms, what it cost, what was said of it, and its verdict's versions."""

    symptoms: list[SymptomDocument]
    downtime: DowntimeDocument | None
    feedback: list[FeedbackDocument] = Field(description=f"The newest first, {MOST_VERSIONS} at most.")
    versions: list[VerdictVersion] = Field(description=f"The newest first, {MOST_VERSIONS} at most.")


class _Action(msgspec.Struct, frozen=True):
    kind: str = "none"


class _Said(msgspec.Struct, frozen=True):
    """The part of a verdict document that a list shows."""

    symptom: str = "unknown"
    cause: str = "unknown"
    abstained: bool = True
    culprits: list[dict[str, Any]] = []
    action: _Action = _Action()


def query() -> Select[Incident, float | None]:
    """Return the query of incidents and when their newest verdict was published, without what only the engine needs."""
    newest = (Verdict.incident == Incident.id) & (Verdict.version == Incident.verdict_version)
    light = select(Incident, Verdict.at).options(defer(Incident.state), defer(Incident.context))
    return light.outerjoin(Verdict, newest)


def summary(row: Incident, verdict_at: float | None) -> IncidentSummary:
    """Return an incident as a list shows it."""
    return IncidentSummary(**_summary(row, verdict_at))


def document(session: Session, row: Incident) -> IncidentDocument:
    """Return an incident with all that hangs on it."""
    versions = _versions(session, row.id)
    verdict_at = next((one.at for one in versions if one.version == row.verdict_version), None)
    downtime = session.get(Downtime, row.id)
    said = select(Feedback).where(Feedback.incident == row.id).order_by(Feedback.id.desc()).limit(MOST_VERSIONS)
    return IncidentDocument(
        **_summary(row, verdict_at),
        symptoms=[SymptomDocument(**known(SymptomDocument, one)) for one in row.state.get("symptoms", ())],
        downtime=downtime_document(downtime) if downtime is not None else None,
        feedback=[feedback_document(one) for one in session.scalars(said)],
        versions=versions,
    )


def found(session: Session, id: str, *, locked: bool = False) -> Incident:
    """Return an incident, or raise the problem that there is none."""
    row = session.get(Incident, id, with_for_update=locked or None)
    if row is None:
        raise not_found("incident", id, "/v1/incidents lists those that there are")
    return row


def version_document(row: Verdict) -> VerdictVersion:
    """Return a version of a verdict in short, read from its document."""
    said = msgspec.json.decode(row.document, type=_Said)
    return VerdictVersion(
        version=row.version, at=row.at, symptom=said.symptom, cause=said.cause, abstained=said.abstained,
        action=said.action.kind, culprits=_culprits(said.culprits), cut=row.cut, knowledge=row.knowledge,
        program=row.program,
    )  # fmt: skip


def feedback_document(row: Feedback) -> FeedbackDocument:
    """Return one feedback."""
    named = None if row.culprit is None else NamedCulprit(kind=row.culprit_kind or "unknown", id=row.culprit)
    own = {name: getattr(row, name) for name in FeedbackDocument.model_fields if name != "culprit"}
    return FeedbackDocument(**own, culprit=named)


def downtime_document(row: Downtime) -> DowntimeDocument:
    """Return what an incident cost."""
    return DowntimeDocument(**{name: getattr(row, name) for name in DowntimeDocument.model_fields})


def happening_document(row: Happening) -> HappeningDocument:
    """Return one line of the timeline."""
    return HappeningDocument(**{name: getattr(row, name) for name in HappeningDocument.model_fields})


def known(model: type[BaseModel], values: dict[str, Any]) -> dict[str, Any]:
    """Return those of the values that the model has: a later program may have stored more, and NaN is stored as null."""
    return {name: value for name, value in values.items() if name in model.model_fields and value is not None}


def _summary(row: Incident, verdict_at: float | None) -> dict[str, Any]:
    own = (
        "id",
        "kind",
        "job",
        "attempt",
        "opened_at",
        "onset_at",
        "closed_at",
        "closed_because",
        "merged_into",
        "nodes",
    )
    verdict = None
    if row.verdict_version and verdict_at is not None:
        verdict = VerdictSummary(
            version=row.verdict_version, at=verdict_at, symptom=row.symptom or "unknown", cause=row.cause or "unknown",
            abstained=bool(row.abstained), action=row.action or "none", culprits=_culprits(row.culprits),
        )  # fmt: skip
    status = "open" if row.closed_at is None else "closed"
    return {**{name: getattr(row, name) for name in own}, "status": status, "verdict": verdict}


def _versions(session: Session, id: str) -> list[VerdictVersion]:
    newest = select(Verdict).options(defer(Verdict.claims)).where(Verdict.incident == id)
    rows = session.scalars(newest.order_by(Verdict.version.desc()).limit(MOST_VERSIONS))
    return [version_document(row) for row in rows]


def _culprits(values: Sequence[dict[str, Any]]) -> list[Culprit]:
    return [Culprit(**known(Culprit, one)) for one in values]
