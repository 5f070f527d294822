"""What the API shows of incidents: one struct for lists, one for an incident, made from rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from sqlalchemy import ScalarSelect, Select, select
from sqlalchemy.orm import Session, aliased, defer

from analyzers.model.doc import doc
from analyzers.remediation.types import WITHDRAWN
from collectors.records.identity import names_of_placed
from service.api.paging import from_row
from service.api.problems import not_found
from service.store.models import Downtime, Feedback, Incident, Remediation, TimelineEntry, Verdict

MOST_VERSIONS = 100  # of a verdict, and as much feedback, in an incident's own document
Known = TypeVar("Known", bound=msgspec.Struct)


class CulpritSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A culprit of a verdict, in short."""

    kind: Annotated[str, doc("rank, device, node, link, switch and so on.")] = ""
    id: Annotated[str, doc("Its name.")] = ""
    ranks: Annotated[tuple[int, ...], doc("Its guilty ranks.")] = ()
    role: Annotated[str | None, doc("Their role; null: none is known.")] = None
    names: Annotated[tuple[str, ...], doc("What they are called, where they have no numbers of their own.")] = ()
    root: Annotated[str, doc("The root of the verdict that it belongs to; empty: of an older program.")] = ""
    probability: Annotated[float, doc("The probability that it is a culprit.")] = 0.0


class VerdictSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a verdict, in short."""

    version: Annotated[int, doc("Its number.")]
    at: Annotated[float, doc("When it was published, UTC seconds.")]
    symptom: Annotated[str, doc("As in the verdict.")]
    cause: Annotated[str, doc("As in the verdict.")]
    abstained: Annotated[bool, doc("Nothing is named.")]
    action: Annotated[str, doc("The kind of its action; of a closed incident, what was advised while it was open.")]
    culprits: Annotated[tuple[CulpritSummary, ...], doc("What it names.")]


class VerdictVersion(VerdictSummary, frozen=True, kw_only=True):
    """A version of a verdict, and what it was judged from and with."""

    cut: Annotated[dict[str, Any], doc("Which records it was judged from: a replay of them judges the same.")]
    knowledge: Annotated[str, doc("The hash of the knowledge tables.")]
    program: Annotated[str, doc("The version of the program.")]


class IncidentSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A symptom from its opening to its closing, and the newest verdict in short. Instants are UTC seconds."""

    id: Annotated[str, doc("Its id.")]
    kind: Annotated[str, doc("hang, slow, crash, numeric, hardware, silence or infrastructure.")]
    job: Annotated[str | None, doc("The job; null: the fleet.")]
    attempt: Annotated[int | None, doc("The attempt; null: unknown.")]
    status: Annotated[Literal["open", "closed"], doc("Whether it is open.")]
    opened_at: Annotated[float, doc("When it was opened.")]
    onset_at: Annotated[float, doc("The first sign of its first symptom.")]
    closed_at: Annotated[float | None, doc("When it was closed; null: it is open.")]
    closed_because: Annotated[str, doc("Why it was closed; empty: it is open.")]
    merged_into: Annotated[str | None, doc("The infrastructure incident that explains it; null: none.")]
    nodes: Annotated[tuple[str, ...], doc("The nodes that it concerns.")]
    verdict: Annotated[VerdictSummary | None, doc("The newest verdict; null: none is published yet.")]
    plan: Annotated[
        str | None,
        doc(
            "The kind of its newest remediation that was not withdrawn, of a closed incident also of one that its end withdrew; "
            "null: none. It goes before the verdict's action."
        ),
    ]
    remediation: Annotated[str | None, doc("The id of that remediation.")]


class SymptomDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a detector saw. A field that a later program stores otherwise has its default."""

    kind: Annotated[str, doc("As of an incident.")] = ""
    detector: Annotated[str, doc("The detector: no_progress, rank_dead, slow and so on.")] = ""
    at: Annotated[float, doc("The first sign, UTC seconds.")] = 0.0
    text: Annotated[str, doc("One sentence with the numbers and the bound.")] = ""
    ranks: Annotated[tuple[int, ...], doc("The ranks that showed it first; the culprits may be others.")] = ()
    nodes: Annotated[tuple[str, ...], doc("Their nodes.")] = ()
    roles: Annotated[tuple[str, ...], doc("The role of each of the ranks; empty: none is known.")] = ()
    names: Annotated[tuple[str, ...], doc("What those of the ranks are called that have no numbers of their own.")] = ()


class NamedCulprit(msgspec.Struct, frozen=True, kw_only=True):
    """The real culprit."""

    kind: Annotated[str, doc("rank, device, node, link, switch and so on.")]
    id: Annotated[str, doc("Its name.")]


class FeedbackDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's judgement of a version of a verdict."""

    id: Annotated[int, doc("Its number.")]
    verdict_version: Annotated[int, doc("The version that was judged.")]
    at: Annotated[float, doc("When, UTC seconds.")]
    by: Annotated[str, doc("The operator.")]
    judgement: Annotated[str, doc("right, wrong or unclear.")]
    culprit: Annotated[NamedCulprit | None, doc("The real culprit; null: not given.")]
    text: Annotated[str, doc("The operator's words.")]


class DowntimeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What an incident cost its job. Instants are UTC seconds."""

    incident: Annotated[str, doc("The incident.")]
    attempt: Annotated[int | None, doc("The attempt; null: unknown.")]
    onset_at: Annotated[float, doc("The first sign.")]
    detected_at: Annotated[float, doc("When the incident was opened.")]
    verdict_at: Annotated[float | None, doc("When the first verdict was published; null: not yet.")]
    stood_at: Annotated[
        float | None,
        doc(
            "Until when steps went on at the job's pace after the first sign: it stood from then on; null: they did not."
        ),
    ] = None
    acted_at: Annotated[float | None, doc("When the attempt was ended, or a new one began; null: not yet.")]
    first_good_at: Annotated[float | None, doc("The end of the first step after it; null: not yet.")]
    last_step: Annotated[int | None, doc("The newest step before it; null: unknown.")]
    resumed_step: Annotated[int | None, doc("The first step after it; null: unknown.")]
    steps_lost: Annotated[int | None, doc("Steps that are done again from the checkpoint; null: unknown.")]


class TimelineEntryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a timeline, and one event of the stream."""

    sequence: Annotated[int, doc("Its place in the stream.")]
    at: Annotated[float, doc("When, UTC seconds.")]
    kind: Annotated[str, doc("What happened: opened, symptom, asked, answered, published, closed and so on.")]
    incident: Annotated[str | None, doc("The incident; null: none.")]
    job: Annotated[str | None, doc("The job; null: the fleet.")]
    details: Annotated[dict[str, Any], doc("More of it, by kind.")]


class IncidentDocument(IncidentSummary, frozen=True, kw_only=True):
    """An incident with its symptoms, its cost, its feedback, and its verdict's versions."""

    symptoms: Annotated[tuple[SymptomDocument, ...], doc("What the detectors saw, the first first.")]
    downtime: Annotated[DowntimeDocument | None, doc("What it cost its job; null: it has no job.")]
    feedback: Annotated[tuple[FeedbackDocument, ...], doc(f"The newest first, {MOST_VERSIONS} at most.")]
    versions: Annotated[tuple[VerdictVersion, ...], doc(f"The newest first, {MOST_VERSIONS} at most.")]


class _Action(msgspec.Struct, frozen=True):
    kind: str = "none"


class _PublishedSummary(msgspec.Struct, frozen=True):
    """The part of a verdict document that a list shows."""

    symptom: str = "unknown"
    cause: str = "unknown"
    abstained: bool = True
    culprits: list[dict[str, Any]] = []
    action: _Action = _Action()


def query() -> Select[Incident, float | None, str | None, str | None]:
    """Return the query of incidents, their newest verdicts' instants, and their plans, without what only the engine needs."""
    newest = (Verdict.incident == Incident.id) & (Verdict.version == Incident.verdict_version)
    light = select(Incident, Verdict.at, Remediation.id, Remediation.kind).outerjoin(Verdict, newest)
    planned = light.outerjoin(Remediation, Remediation.id == _planned())
    return planned.options(defer(Incident.state), defer(Incident.context))


def _planned() -> ScalarSelect[str]:
    """Return the id of what is planned for an incident: its newest remediation that was not withdrawn.

    An incident that closes withdraws what was proposed: that stays the answer that it had.
    """
    own = aliased(Remediation)
    withdrawn, closed = own.status.in_(WITHDRAWN), Incident.closed_at.is_not(None)
    of = select(own.id).where(own.incident == Incident.id, ~withdrawn | (closed & (own.status != "rejected")))
    return of.order_by(withdrawn, own.proposed_at.desc(), own.id.desc()).limit(1).scalar_subquery()


def summary(row: Incident, verdict_at: float | None, remediation: str | None, plan: str | None) -> IncidentSummary:
    """Return an incident as a list shows it."""
    return IncidentSummary(**_summary(row, verdict_at, remediation, plan))


def plan_of(session: Session, row: Incident) -> str | None:
    """Return the kind of what is planned for an incident; None: nothing is."""
    plan: str | None = session.scalar(query().where(Incident.id == row.id).with_only_columns(Remediation.kind))
    return plan


def document(session: Session, row: Incident) -> IncidentDocument:
    """Return an incident with all that hangs on it."""
    downtime = session.get(Downtime, row.id)
    feedback = select(Feedback).where(Feedback.incident == row.id).order_by(Feedback.id.desc()).limit(MOST_VERSIONS)
    return IncidentDocument(
        **_summary(*session.execute(query().where(Incident.id == row.id)).one()),
        symptoms=tuple(symptom_document(one) for one in row.state.get("symptoms", ())),
        downtime=downtime_document(downtime) if downtime is not None else None,
        feedback=tuple(map(feedback_document, session.scalars(feedback))),
        versions=_versions(session, row.id),
    )


def found(session: Session, id: str, *, locked: bool = False) -> Incident:
    """Return an incident, or raise the problem that it is unknown."""
    row = session.get(Incident, id, with_for_update=locked or None)
    if row is None:
        raise not_found("incident", id, "/v1/incidents lists the known ones")
    return row


def version_document(row: Verdict) -> VerdictVersion:
    """Return a version of a verdict in short, read from its document."""
    found = msgspec.json.decode(row.document, type=_PublishedSummary)
    return VerdictVersion(
        version=row.version, at=row.at, symptom=found.symptom, cause=found.cause, abstained=found.abstained,
        action=found.action.kind, culprits=culprit_summaries(found.culprits), cut=row.cut, knowledge=row.knowledge,
        program=row.program,
    )  # fmt: skip


def feedback_document(row: Feedback) -> FeedbackDocument:
    """Return one feedback."""
    named = None if row.culprit is None else NamedCulprit(kind=row.culprit_kind or "unknown", id=row.culprit)
    return FeedbackDocument(
        id=row.id, verdict_version=row.verdict_version, at=row.at, by=row.by, judgement=row.judgement, culprit=named,
        text=row.text,
    )  # fmt: skip


def downtime_document(row: Downtime) -> DowntimeDocument:
    """Return what an incident cost."""
    return from_row(row, DowntimeDocument)


def timeline_entry_document(row: TimelineEntry) -> TimelineEntryDocument:
    """Return one line of the timeline."""
    return from_row(row, TimelineEntryDocument)


def known(type: type[Known], values: dict[str, Any]) -> Known:
    """Return the struct of stored values. A later program may have stored more fields, and NaN is stored as null."""
    return msgspec.convert({name: value for name, value in values.items() if value is not None}, type)


def _summary(row: Incident, verdict_at: float | None, remediation: str | None, plan: str | None) -> dict[str, Any]:
    verdict = None
    if row.verdict_version and verdict_at is not None:
        verdict = VerdictSummary(
            version=row.verdict_version, at=verdict_at, symptom=row.symptom or "unknown", cause=row.cause or "unknown",
            abstained=bool(row.abstained), action=row.action or "none", culprits=culprit_summaries(row.culprits),
        )  # fmt: skip
    status: Literal["open", "closed"] = "open" if row.closed_at is None else "closed"
    return {
        "id": row.id, "kind": row.kind, "job": row.job, "attempt": row.attempt, "status": status,
        "opened_at": row.opened_at, "onset_at": row.onset_at, "closed_at": row.closed_at,
        "closed_because": row.closed_because, "merged_into": row.merged_into, "nodes": tuple(row.nodes),
        "verdict": verdict, "plan": plan, "remediation": remediation,
    }  # fmt: skip


def _versions(session: Session, id: str) -> tuple[VerdictVersion, ...]:
    newest = select(Verdict).options(defer(Verdict.claims)).where(Verdict.incident == id)
    rows = session.scalars(newest.order_by(Verdict.version.desc()).limit(MOST_VERSIONS))
    return tuple(map(version_document, rows))


def culprit_summaries(values: Sequence[dict[str, Any]]) -> tuple[CulpritSummary, ...]:
    """Return stored culprits in short, with the names of ranks that have no numbers of their own."""
    found = (known(CulpritSummary, one) for one in values)
    return tuple(msgspec.structs.replace(one, names=names_of_placed(one.ranks, one.role)) for one in found)


def symptom_document(values: dict[str, Any]) -> SymptomDocument:
    """Return a stored symptom, with what those of its ranks are called that have no numbers of their own."""
    found = known(SymptomDocument, values)
    roles = found.roles if len(found.roles) == len(found.ranks) else ("",) * len(found.ranks)
    named = (name for rank, role in zip(found.ranks, roles, strict=True) for name in names_of_placed((rank,), role))
    return msgspec.structs.replace(found, names=tuple(named))
