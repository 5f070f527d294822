"""``/remediations``, and remediations as every page shows them: what is done, what bars it, what a person may decide now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi.responses import HTMLResponse
from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from analyzers.remediation.types import ENDED, UNBEGUN, UNDOABLE, Remediation, RemediationState
from service.api.remediation_documents import document
from service.api.state import Service
from service.clock import now
from service.pages.rendering import response
from service.pages.stops import stops
from service.pages.visitors import Visitor
from service.remediation import rows
from service.reports import remediations as sentences
from service.store.models import Remediation as Row

MOST = 100
MOST_HOLDABLE = 64  # nodes that one can be chosen of


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownProposal:
    """A remediation with its sentences. ``choices``: what a person may decide; ``holdable``: what they may hold.

    ``home``: the page that it is decided on.
    """

    plan: dict[str, Any]  # as REST gives it
    home: str
    deed: str
    leaving: str
    undoing: str
    standing: str
    obstacles: list[str]
    choices: tuple[str, ...]
    holdable: list[tuple[str, str]]


def page(
    service: Service, visitor: Visitor, *, paused: bool = False, notice: str = "", status: int = 200
) -> HTMLResponse:
    """Return the page: what was proposed and done, the newest first, what people asked for, and what stops all of it.

    ``notice``: what came of a form that was sent from it; it stands first.
    """
    at = now()
    with service.database.session() as session:
        shown, stopped = newest(service, session, at), stops(session)
        asked = newest(service, session, at, Row.kind == "restart_role", Row.status.not_in(ENDED))
        versions = {switch: rows.version_of(session, switch) for switch in (rows.FREEZE, rows.BREAKER)}
    return response(
        "remediations.html", "/v1/remediations", visitor=visitor, stops=stopped, goes_on=not visitor.signed_in,
        paused=paused, remedies=shown, asked=[one for one in asked if sentences.asked_by(one.plan)], versions=versions,
        notice=notice, status=status,
    )  # fmt: skip


def home(incident: str, verdict_version: int) -> str:
    """Return the address of the page that a remediation is decided on: its incident's, if it has one."""
    return f"/incidents/{incident}" if verdict_version else "/remediations"


def newest(service: Service, session: Session, at: float, *where: ColumnElement[bool]) -> list[ShownProposal]:
    """Return the newest remediations of which this is true."""
    order = (Row.proposed_at.desc(), Row.id.desc())
    ids = session.scalars(select(Row.id).where(*where).order_by(*order).limit(MOST)).all()
    book = service.remedies.read(session, at, *ids)
    return [_shown(book.remediations[id], book, at) for id in ids if id in book.remediations]


def of_incident(service: Service, session: Session, at: float, incident: str) -> list[ShownProposal]:
    """Return an incident's remediations, the newest first."""
    return newest(service, session, at, Row.incident == incident)


def under_way(service: Service, session: Session, at: float) -> list[ShownProposal]:
    """Return those that have not ended, or that are to be undone."""
    return newest(service, session, at, Row.status.not_in(ENDED) | Row.task.is_not(None))


def choices(one: Remediation) -> tuple[str, ...]:
    """Return what a person may decide about it now, as the words of its forms; the step has the last word."""
    if one.status == "proposed":
        return "approve", "reject", "hold"
    if one.status in UNBEGUN:
        return "cancel", "hold"
    undoable = one.status in UNDOABLE and one.may_have_taken
    return ("undo",) if undoable and one.undo is None else ()


def _shown(one: Remediation, book: RemediationState, at: float) -> ShownProposal:
    plan = msgspec.to_builtins(document(one, book, at))
    return ShownProposal(
        plan=plan, home=home(one.incident, one.verdict_version), deed=sentences.deed(plan, _job_nodes(one, book)),
        leaving=_leaving(one, plan), undoing=sentences.undoing(plan), standing=sentences.standing(plan),
        obstacles=sentences.obstacles(plan), choices=choices(one),
        holdable=[(f"{kind}:{name}", f"{kind} {name}") for kind, name in _holdable(one)],
    )  # fmt: skip


def _job_nodes(one: Remediation, book: RemediationState) -> int | None:
    """Return how many nodes the job runs on, as long as these are among them: afterwards the number says something else."""
    facts = book.facts.jobs.get(one.job)
    if facts is None or one.status not in UNBEGUN or not set(one.nodes) <= set(facts.nodes):
        return None
    return len(facts.nodes)


def _holdable(one: Remediation) -> list[tuple[str, str]]:
    return [*(("node", node) for node in one.nodes[:MOST_HOLDABLE]), ("job", one.job)]


def _leaving(one: Remediation, plan: dict[str, Any]) -> str:
    left = f"leave {sentences.nodes(plan)} in {one.job}" if one.nodes else f"leave {one.job} as it is"
    is_last = one.status == "proposed" and one.verdict_version > 0
    return f"{left}; the same is not proposed again for {one.incident}" if is_last else left
