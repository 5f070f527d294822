"""Pages of a service on which a person decides."""

from __future__ import annotations

from typing import Any

import httpx

from analyzers.remediation.messages import (
    RemediationEvent,
)
from service.clock import now
from service.store.models import Attempt, Execution, Incident, Job, Placement, Switch, TimelineEntry
from service.store.models import Hold as HoldRow
from service.store.models import Remediation as Row
from tests.service.pages.test_pages import Page
from tests.support.browser import Browser
from tests.support.remediation_rows import INCIDENT, PLAN_ID
from tests.support.served import Client

HOME = f"/incidents/{INCIDENT}"
URL = f"/remediations/{PLAN_ID}"
TABLES = (Attempt, Execution, TimelineEntry, HoldRow, Incident, Job, Placement, Row, Switch)


def page(browser: Browser | Client, path: str = HOME) -> Page:
    """Return a page that is whole, in which every id is one's own and every field of a form has its label."""
    answer = browser.get(path)
    assert answer.status_code == 200, answer.text
    return whole(answer)


def whole(answer: httpx.Response) -> Page:
    """Return an answer as a page that is well made."""
    found = Page(answer.text)
    assert found.open == []
    ids = [str(own["id"]) for _, own in found.elements if "id" in own]
    assert len(ids) == len(set(ids))
    asked = [own for tag, own in found.elements if tag in ("input", "select") and own.get("type") != "hidden"]
    assert {own["id"] for own in asked} <= {own["for"] for tag, own in found.elements if tag == "label"}
    return found


def happens(client: Client, *events: RemediationEvent) -> None:
    """Let something happen that is not done on a page."""
    for event in events:
        client.service.remedies.handle(event, now())


def stands(client: Client) -> dict[str, Any]:
    """Return the remediation as REST gives it."""
    found: dict[str, Any] = client.get(f"/v1{URL}").json()
    return found


def decide(browser: Browser, verb: str, **changed: Any) -> httpx.Response:
    """Send a form of the incident's page, with these fields changed; None leaves one out."""
    action = f"{URL}/{verb}"
    reported = {**browser.forms(HOME).of(action), "reason": "I looked", **changed}
    return browser.submit(action, {name: value for name, value in reported.items() if value is not None})
