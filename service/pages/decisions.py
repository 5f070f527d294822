"""The forms of the pages: a decision about the version that was shown, by the same step as one over REST."""

from __future__ import annotations

import math
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from analyzers.remediation.messages import Approve, AskUndo, Cancel, Reject
from service.api import fields
from service.api.problems import Problem
from service.api.resources import breaker, freeze, holds
from service.api.state import service_of
from service.api.steps import take_of_one, unchanged
from service.clock import PROCESS, now
from service.pages import forms, incidents, proposals
from service.pages.rendering import MOST_HOLD_HOURS
from service.reports import remediations as sentences
from service.reports.instants import moment, rfc3339
from service.store.models import Remediation as Row

Verb = Literal["approve", "reject", "cancel", "undo"]

UNSURE = (
    "the service's clock is not certain, so some hours from now have no end that is known; nothing was held. Hold it with"
    " `faulthound holds add --node NODE --for 4h --reason TEXT` on a machine whose clock is right, or freeze everything meanwhile"
)

router = APIRouter(include_in_schema=False, route_class=forms.FormRoute)


@router.post("/remediations/{id}/{verb}")
def decide(request: Request, id: fields.IdPath, verb: Verb, form: forms.Form) -> Response:
    """Decide about a remediation as it stood on the page; where it has changed since, show the page anew."""
    service = service_of(request)
    try:
        check = unchanged(form.if_match(), id)
        _, document = take_of_one(service, form.caller, _event(id, verb, form), id, check)
    except Problem as problem:
        return _anew(request, form, id, problem)
    return RedirectResponse(f"{proposals.home(document.incident, document.verdict_version)}#{id}", 303)


def _event(id: str, verb: Verb, form: forms.Sent) -> Approve | Reject | Cancel | AskUndo:
    by = form.caller.actor
    match verb:
        case "approve":
            return Approve(id=id, by=by, reason=form.text("reason"))
        case "reject":
            return Reject(id=id, by=by, reason=form.reason())
        case "cancel":
            return Cancel(id=id, by=by, reason=form.reason())
        case "undo":
            return AskUndo(id=id, by=by, reason=form.reason())


def _anew(request: Request, form: forms.Sent, id: str, problem: Problem) -> Response:
    """Return the page that it was sent from with what was wrong; of what has changed since, it shows the present status."""
    service = service_of(request)
    with service.database.session() as session:
        row = session.get(Row, id)
        if row is None:
            raise problem
        incident, plan = row.incident, dict(row.document)
    notice = problem.detail
    if problem.kind == "precondition-failed":
        stands = f"{plan['status']} since {moment(rfc3339(plan['changed_at']))}"
        because = sentences.standing(plan)
        notice = f"{id} has changed since you saw it: it is {stands}{f' ({because})' if because else ''}"
    said: dict[str, Any] = {"notice": f"Nothing was changed. {notice}", "status": problem.status_code}
    if sentences.asked_by(plan):
        return proposals.page(service, form.visitor, **said)
    return incidents.page(service, form.visitor, incident, **said)


@router.post("/holds")
def hold(request: Request, form: forms.Form) -> Response:
    """Hold a node or a job for some hours."""
    kind, _, name = form.fields.get("what", "").partition(":")
    chosen = bool(name)  # from the page's own list, and not typed
    if not chosen:
        kind, name = form.text("kind"), form.text("name")
    if kind not in {"node", "job"}:
        raise Problem("invalid", "what: a hold is of a node or of a job: choose one of them")
    hours = _hours(form.text("hours"))
    if not PROCESS.is_sure:
        raise Problem("invalid", UNSURE)
    until = now() + 3_600 * hours
    try:
        body = holds.HoldRequest.model_validate(
            {kind: name, "until": until, "reason": form.reason(), "allow_unknown": chosen or "unknown" in form.fields}
        )
    except ValidationError as error:
        raise Problem("invalid", f"{kind} {name!a}: {error.errors()[0]['msg']}") from None
    holds.add_hold(request, body, form.caller)
    return RedirectResponse(form.back("/holds"), 303)


@router.post("/holds/{id}/expire")
def expire(request: Request, id: fields.IdPath, form: forms.Form) -> Response:
    """End a hold before its time."""
    holds.expire_hold(request, id, form.caller, None, form.if_match())
    return RedirectResponse("/holds", 303)


@router.post("/freeze")
def set_freeze(request: Request, form: forms.Form) -> Response:
    """Freeze everything, or end the freeze."""
    frozen = form.text("frozen")
    if frozen not in {"yes", "no"}:  # a form without the field must not end the freeze
        raise Problem("invalid", f"frozen: {frozen!a} is neither yes nor no: send the form of the page")
    body = freeze.FreezeRequest(frozen=frozen == "yes", reason=form.reason())
    freeze.put_freeze(request, Response(), body, form.caller, form.if_match())
    return RedirectResponse("/remediations", 303)


@router.post("/breaker/close")
def close_breaker(request: Request, form: forms.Form) -> Response:
    """Close the breaker."""
    breaker.close_breaker(request, breaker.CloseBreakerRequest(reason=form.reason()), form.caller, form.if_match())
    return RedirectResponse("/remediations", 303)


def _hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = math.nan
    if not 0 < hours <= MOST_HOLD_HOURS:
        raise Problem("invalid", f"hours: {text!a} is no time from now up to {MOST_HOLD_HOURS} hours: give a number")
    return hours
