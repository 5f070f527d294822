"""The restart of a role that a person asked for: no incident stands behind it, and it is decided on /remediations."""

from __future__ import annotations

import pytest

from analyzers.remediation.messages import Reject
from service.cli.remediations import remediation_lines, remediation_row
from service.store.models import RoleSlot
from tests.support.browser import Browser
from tests.support.deciding_pages import happens, page, whole
from tests.support.remediation_rows import PLAN_ID
from tests.support.served import Client

JOB = "llama-405b"
HOME = "/remediations"


@pytest.fixture
def asked(client: Client) -> str:
    """Return the id of a restart that was asked for."""
    roles = f"/v1/jobs/{JOB}/roles"
    with client.service.database.transaction() as session:
        session.query(RoleSlot).delete()
    for role, instance in (("controller", "0"), ("trainer", "0"), ("rollout", "0"), ("rollout", "1")):
        registered = {"role": role, "instance": instance, "process": f"{role}-{instance}", "attempt": 1}
        assert client.put(roles, json=registered).is_success
    wanted = {"role": "rollout", "instance": "1", "reason": "it hangs"}
    rival = client.post(f"{roles}/restart", json=wanted)
    assert (rival.status_code, "rem-0123456789ab would take gpu-0002 out" in rival.text) == (409, True)
    happens(client, Reject(id=PLAN_ID, by="bob", reason="no"))
    answer = client.post(f"{roles}/restart", json=wanted)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def test_what_a_person_asked_for_is_decided_where_its_row_leads(client: Client, ann: Browser, asked: str) -> None:
    """No page links to an incident that does not exist; the page of remediations says who asked and why, and approves."""
    invented = client.get(f"/v1/remediations/{asked}").json()["incident"]
    pages = {path: page(ann, path) for path in ("/", HOME, f"/jobs/{JOB}")}
    said = " ".join(pages[HOME].text.split())

    assert client.get(f"/incidents/{invented}").status_code == 404
    assert not [link for one in pages.values() for link in one.all("a", "href") if invented in link]
    assert {f"{HOME}#{asked}"} <= set(pages["/"].all("a", "href")) & set(pages[HOME].all("a", "href"))
    assert "Asked for by root (" in said
    assert "): it hangs." in said
    assert "Probability" not in said
    assert invented not in said

    form = ann.forms(HOME).of(f"/remediations/{asked}/approve")
    answer = ann.submit(f"/remediations/{asked}/approve", {**form, "reason": "seen"})
    assert (answer.status_code, answer.headers["location"]) == (303, f"{HOME}#{asked}")
    assert client.get(f"/v1/remediations/{asked}").json()["status"] == "approved"


def test_what_was_wrong_with_its_form_stands_on_the_same_page(client: Client, ann: Browser, asked: str) -> None:
    """A form without a reason, and a stale one, show the page anew and not the one of an incident."""
    form = ann.forms(HOME).of(f"/remediations/{asked}/reject")
    without = ann.submit(f"/remediations/{asked}/reject", {**form, "reason": ""})
    assert without.status_code == 422
    assert "Nothing was changed. reason: give a reason" in whole(without).text

    assert ann.submit(f"/remediations/{asked}/reject", {**form, "reason": "it runs"}).status_code == 303
    stale = ann.submit(f"/remediations/{asked}/reject", {**form, "reason": "again"})
    assert stale.status_code == 412
    assert f"{asked} has changed since you saw it: it is rejected" in " ".join(whole(stale).text.split())


def test_without_a_session_it_leads_to_the_form_to_sign_in_and_back(client: Client, asked: str) -> None:
    """The way back is the page that it is decided on."""
    assert f"/sign-in?to={HOME}" in page(client, HOME).all("a", "href")
    assert asked in page(client, HOME).text


def test_the_command_line_says_who_asked_and_why(client: Client, asked: str) -> None:
    """No verdict of 0 % is stated, and no incident that `incidents show` does not know."""
    found = client.get(f"/v1/remediations/{asked}").json()
    lines, row = "\n".join(remediation_lines(found)), remediation_row(found)

    assert "why: asked for by root (" in lines
    assert "): it hangs" in lines
    assert "no incident and no verdict stands behind it" in lines
    assert not [text for text in (lines, *row) if found["incident"] in text or "0 %" in text]
    assert row[-1].startswith("asked for by root (")
