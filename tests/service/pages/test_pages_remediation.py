"""Deciding on the pages: what is proposed, what each form does, and everything that must not get through one."""

from __future__ import annotations

import io

import msgspec
import pytest
from sqlalchemy import update

from analyzers.remediation.messages import (
    Begin,
    Complete,
    Proposed,
    Reject,
    Take,
    Verified,
)
from collectors.records import bundle
from service.clock import now
from service.store.models import Incident, PageSession
from service.store.page_sessions import PageSessions
from service.store.tokens import Bearer
from tests.support.browser import Browser
from tests.support.deciding_pages import HOME, URL, decide, happens, page, stands, whole
from tests.support.remediation_rows import INCIDENT, PLAN_ID, plan
from tests.support.served import Client

DEED = "Drain gpu-0002 and restart llama-405b (attempt 1) on the other 3 nodes"


def done(client: Client) -> None:
    """Let a scheduler carry it out, and the job run well."""
    happens(
        client, Take(id=PLAN_ID, by="slurm"), Begin(id=PLAN_ID, by="slurm", token=1),
        Complete(id=PLAN_ID, by="slurm", token=1, did={"gpu-0002": "drained"}),
    )  # fmt: skip


def test_a_proposal_names_its_object_and_its_effect(ann: Browser) -> None:
    """The incident's page says what would be done, why and at what loss, and the buttons say it again."""
    found = " ".join(page(ann).text.split())

    assert f"Approve: {DEED}" in found
    assert "Reject: leave gpu-0002 in llama-405b" in found
    assert "Rank 3 never entered. Probability 97 %. Expected loss 3.2 GPU hours." in found
    assert DEED in page(ann, "/").text
    assert DEED in page(ann, "/remediations").text


def test_the_incident_says_what_is_planned_until_that_is_rejected(client: Client, ann: Browser) -> None:
    """What to do is one answer, on the page, in the list and over REST; without a plan it is the verdict's."""
    planned = " ".join(page(ann).text.split())
    listed = client.get("/v1/incidents").json()["items"][0]["plan"]
    decide(ann, "reject", reason="not now")
    advised = " ".join(page(ann).text.split())

    assert (f"What to do {DEED}." in planned, f"What to do {DEED}." in advised) == (True, False)
    assert (listed, client.get(f"/v1/incidents/{INCIDENT}").json()["plan"]) == ("evict", None)


def test_a_closed_incident_keeps_the_plan_that_its_end_withdrew(client: Client, ann: Browser) -> None:
    """An incident that closes withdraws what was proposed: the list, REST, the page and an export keep the one answer."""
    decide(ann, "reject", reason="not now")
    other = msgspec.structs.replace(plan("rem-00000000000b"), kind="reattempt", nodes=())
    happens(client, Proposed(incident=INCIDENT, plan=other))
    shown = [client.get(f"/v1/incidents/{INCIDENT}").json()["plan"]]
    happens(client, Proposed(incident=INCIDENT, plan=None, why="it moves again"))
    with client.service.database.transaction() as session:
        session.execute(update(Incident).where(Incident.id == INCIDENT).values(closed_at=now()))

    listed = client.get("/v1/incidents").json()["items"][0]["plan"]
    exported = next(bundle.read(io.BytesIO(client.get(f"/v1/incidents/{INCIDENT}/export").content)))
    assert isinstance(exported, bundle.Manifest)
    assert exported.incident is not None
    assert [*shown, client.get(f"/v1/incidents/{INCIDENT}").json()["plan"], listed] == ["reattempt"] * 3
    assert exported.incident.plan == "reattempt"
    past = "The incident is closed, and what follows was advised while it was open."
    assert f"What was advised {past} Start llama-405b (attempt 1) again as it is." in " ".join(page(ann).text.split())


def test_who_has_not_signed_in_is_shown_no_form(client: Client) -> None:
    """A token that only reads sees the proposal and what stands in its way, and is informed where to sign in."""
    found = page(client)

    assert DEED in found.text
    assert not [tag for tag, _ in found.elements if tag in ("form", "button", "input")]
    assert f"/sign-in?to={HOME}" in found.all("a", "href")


def test_approving_is_kept_with_the_name(client: Client, ann: Browser) -> None:
    """One press of the button approves; the page, REST and the audit log say by whom."""
    answer = decide(ann, "approve", reason="")

    assert (answer.status_code, answer.headers["location"]) == (303, f"{HOME}#{PLAN_ID}")
    assert stands(client)["status"] == "approved"
    assert stands(client)["approved_by"].startswith("ann (")
    assert "Approved by ann (" in page(ann).text
    newest = next(one for one in client.get("/v1/events").json()["items"] if one["subject"] == PLAN_ID)
    assert (newest["kind"], newest["actor"][:5]) == ("remediation_approved", "ann (")


def test_rejecting_needs_a_reason(client: Client, ann: Browser) -> None:
    """Without one the page comes again and says so; with one it is rejected, and nobody can decide any more."""
    without = decide(ann, "reject", reason="  ")
    assert without.status_code == 422
    assert "Nothing was changed. reason: give a reason" in whole(without).text
    assert stands(client)["status"] == "proposed"

    assert decide(ann, "reject", reason="it is the switch 👩‍🔧").status_code == 303
    assert stands(client)["because"] == "it is the switch 👩‍🔧"
    assert not [to for to, _ in ann.forms(HOME).found if to.startswith("/remediations")]


def test_what_was_approved_can_be_cancelled(client: Client, ann: Browser) -> None:
    """Until a scheduler begins, also when it has claimed; then there is no form for it."""
    decide(ann, "approve")
    happens(client, Take(id=PLAN_ID, by="slurm"))
    assert "slurm, until" in page(ann).text
    assert decide(ann, "cancel").status_code == 303
    assert stands(client)["status"] == "cancelled"

    seen = stands(client)["version"]
    happens(client, Proposed(incident=INCIDENT, plan=plan()))
    decide(ann, "approve")
    happens(client, Take(id=PLAN_ID, by="slurm"), Begin(id=PLAN_ID, by="slurm", token=2))
    assert not [to for to, _ in ann.forms(HOME).found if to.startswith("/remediations")]
    late = ann.submit(f"{URL}/cancel", {"key": ann.key(), "version": str(stands(client)["version"]), "reason": "wait"})
    assert (late.status_code, stands(client)["status"]) == (409, "executing")
    assert stands(client)["version"] > seen


def test_what_was_done_can_be_undone(client: Client, ann: Browser) -> None:
    """Undo names what it takes back; once it is asked for, the page says so and does not ask again."""
    decide(ann, "approve")
    done(client)
    happens(client, Verified(id=PLAN_ID, outcome="cured", why="it runs"))
    assert "Undo: Give gpu-0002 back to the scheduler" in " ".join(page(ann).text.split())

    assert decide(ann, "undo", reason="it was the cable").status_code == 303
    assert stands(client)["task"] == "undo"
    assert ": It was the cable." in page(ann).text
    assert not [to for to, _ in ann.forms(HOME).found if to.endswith("/undo")]


def test_a_stale_form_changes_nothing_and_says_what_has_changed(client: Client, ann: Browser) -> None:
    """Who decides about what has changed since sees the page anew: how it stands now, and what can be decided of that."""
    seen = ann.forms(HOME).of(f"{URL}/approve")
    happens(client, Reject(id=PLAN_ID, by="bob", reason="its cable was changed"))
    answer = ann.submit(f"{URL}/approve", seen)

    assert answer.status_code == 412
    said = " ".join(whole(answer).text.split())
    assert f"Nothing was changed. {PLAN_ID} has changed since you saw it: it is rejected since" in said
    assert "(its cable was changed)" in said
    assert "Approve" not in said
    assert stands(client)["status"] == "rejected"


def test_a_form_sent_twice_acts_once(client: Client, ann: Browser) -> None:
    """The second of two presses finds that it is approved, and changes nothing."""
    seen = ann.forms(HOME).of(f"{URL}/approve")
    answers = [ann.submit(f"{URL}/approve", seen) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [303, 412]
    assert stands(client)["version"] == int(seen["version"]) + 1


@pytest.mark.parametrize("version", [None, "", "*", "0", "é", '1", "2'])
def test_a_form_must_say_what_it_saw(client: Client, ann: Browser, version: str | None) -> None:
    """A decision that names no version, or any, is not taken."""
    answer = decide(ann, "approve", version=version)

    assert answer.status_code in (412, 428)
    assert stands(client)["status"] == "proposed"


@pytest.mark.parametrize("verb", ["approve", "reject"])
@pytest.mark.parametrize(
    ("headers", "changed"),
    [
        ({"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}, {}),
        ({"Origin": "https://evil.example", "Sec-Fetch-Site": ""}, {}),
        ({"Origin": "null", "Sec-Fetch-Site": ""}, {}),
        ({"Origin": "", "Sec-Fetch-Site": ""}, {}),
        ({}, {"key": ""}),
        ({}, {"key": "0" * 64}),
        ({"Content-Type": "text/plain"}, {}),
    ],
    ids=["cross-site", "origin", "null", "silent", "no key", "wrong key", "text"],
)
def test_an_attack_decides_nothing(
    client: Client, ann: Browser, verb: str, headers: dict[str, str], changed: dict[str, str]
) -> None:
    """A form from elsewhere or without its key is refused, with Ann's own cookie, and nothing is changed."""
    reported = ann.forms(HOME).of(f"{URL}/{verb}") | {"reason": "no"} | changed
    answer = ann.submit(f"{URL}/{verb}", reported, headers=headers)

    assert answer.status_code in (403, 415)
    assert "Nothing was changed" in answer.text
    assert stands(client)["status"] == "proposed"


def test_an_ended_session_decides_nothing(client: Client, ann: Browser) -> None:
    """After twelve hours the form leads to the page to sign in, and nothing is changed."""
    reported = ann.forms(HOME).of(f"{URL}/approve")
    with client.service.database.transaction() as session:
        session.execute(update(PageSession).values(expires_at=now() - 1))
    answer = ann.submit(f"{URL}/approve", reported)

    assert answer.status_code == 403
    assert "Your session has ended: sign in again; nothing was changed" in answer.text
    assert stands(client)["status"] == "proposed"


def test_who_may_not_decide_has_no_session(client: Client) -> None:
    """Were a session there for a token that only reads, or executes, it would open no page and send no form."""
    for scope in ("read", "execute", "ingest"):
        row, _ = client.service.tokens.make("eve", [scope])
        secret = PageSessions(client.service.database).begin(Bearer(row.id, "eve", frozenset({scope}), None))
        with Browser(client) as eve:
            eve.cookies.set("faulthound_session", secret)
            assert eve.get(HOME).status_code == 401
            assert eve.submit(f"{URL}/approve", {"key": "", "version": "1"}).status_code == 403
    assert stands(client)["status"] == "proposed"
