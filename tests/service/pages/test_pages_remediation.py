"""Deciding on the pages: what is proposed, what each form does, and everything that must not get through one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from msgspec.structs import replace
from sqlalchemy import delete, update

from analyzers.remediation.messages import (
    AddHold,
    Begin,
    Complete,
    Proposed,
    Reject,
    RemediationEvent,
    SetFreeze,
    Take,
    Verified,
)
from analyzers.remediation.types import Freeze, Hold
from service.clock import now
from service.store.models import Attempt, Execution, Incident, Job, PageSession, Placement, Switch, TimelineEntry
from service.store.models import Hold as HoldRow
from service.store.models import Remediation as Row
from service.store.page_sessions import PageSessions
from service.store.tokens import Bearer, Tokens
from tests.service.pages.test_pages import HOSTILE, Page
from tests.support import incident_rows
from tests.support.browser import Browser
from tests.support.remediation_rows import INCIDENT, NODES, PLAN_ID, plan, running, seeded
from tests.support.served import Client, served

DEED = "Drain gpu-0002 and restart llama-405b (attempt 1) on the other 3 nodes"
HOME = f"/incidents/{INCIDENT}"
URL = f"/remediations/{PLAN_ID}"
PATHS = ("/", HOME, "/remediations", "/holds")
TABLES = (Attempt, Execution, TimelineEntry, HoldRow, Incident, Job, Placement, Row, Switch)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Return a client with every right, of a service without an engine."""
    with served(tmp_path_factory.mktemp("deciding"), engine=False) as client:
        secret = Tokens(client.service.database).make("root", ["admin"])[1]
        yield client.as_(secret)


@pytest.fixture
def client(service: Client) -> Client:
    """Return a client in whose service one eviction is proposed, and nothing else is known."""
    with service.service.database.transaction() as session:
        for model in TABLES:
            session.execute(delete(model))
    seeded(service.service.database, service.service.remedies)
    return service


@pytest.fixture
def ann(client: Client) -> Iterator[Browser]:
    """Return a browser in which Ann has signed in."""
    with Browser(client) as browser:
        secret = client.service.tokens.make("ann", ["remediate"])[1]
        assert browser.sign_in(secret, to=HOME).headers["location"] == HOME
        yield browser


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
    told = {**browser.forms(HOME).of(action), "reason": "I looked", **changed}
    return browser.submit(action, {name: value for name, value in told.items() if value is not None})


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


def test_who_has_not_signed_in_is_shown_no_form(client: Client) -> None:
    """A token that only reads sees the proposal and what stands in its way, and is told where to sign in."""
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
    told = ann.forms(HOME).of(f"{URL}/{verb}") | {"reason": "no"} | changed
    answer = ann.submit(f"{URL}/{verb}", told, headers=headers)

    assert answer.status_code in (403, 415)
    assert "Nothing was changed" in answer.text
    assert stands(client)["status"] == "proposed"


def test_an_ended_session_decides_nothing(client: Client, ann: Browser) -> None:
    """After twelve hours the form leads to the page to sign in, and nothing is changed."""
    told = ann.forms(HOME).of(f"{URL}/approve")
    with client.service.database.transaction() as session:
        session.execute(update(PageSession).values(expires_at=now() - 1))
    answer = ann.submit(f"{URL}/approve", told)

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


def test_a_hold_stands_in_the_way(client: Client, ann: Browser) -> None:
    """Held from its proposal, a node is on the page of holds, and the proposal says what keeps it from acting and who did."""
    told = ann.forms(HOME).of("/holds") | {"what": "node:gpu-0002", "reason": "its HBM is being tested"}
    assert ann.submit("/holds", told).headers["location"] == HOME

    assert "Cannot act now" in page(ann).text
    assert "is held by ann (" in page(ann).text
    assert "its HBM is being tested" in page(ann).text
    assert "Its HBM is being tested." in page(ann, "/holds").text
    assert [one["code"] for one in stands(client)["hindrances"]] == ["held"]


def test_holds_are_made_and_ended_on_their_page(client: Client, ann: Browser) -> None:
    """A job can be held by its name; the button that ends a hold says whose it is."""
    told = ann.forms("/holds").of("/holds") | {"kind": "job", "name": "llama-405b", "hours": "0.5", "reason": "a copy"}
    before = now()
    assert ann.submit("/holds", told).headers["location"] == "/holds"
    (held,) = client.get("/v1/holds").json()["items"]
    assert (held["job"], held["node"]) == ("llama-405b", None)
    assert 1_799 <= held["until"] - before <= 1_810

    action = f"/holds/{held['id']}/expire"
    assert "End the hold of llama-405b" in page(ann, "/holds").text
    assert ann.submit(action, {"key": ann.key()}).status_code == 412
    seen = ann.forms("/holds").of(action)
    assert ann.submit(action, seen).status_code == 303
    assert client.get("/v1/holds").json()["items"] == []
    assert ann.submit(action, seen).status_code == 404


@pytest.mark.parametrize(
    "wrong",
    [{"hours": "nan"}, {"hours": "-1"}, {"hours": "1e9"}, {"hours": "soon"}, {"name": ""}, {"name": "../x"},
     {"kind": "rack"}, {"reason": ""}, {"reason": "a\nb"}, {"reason": "x" * 1_001}],
    ids=str,
)  # fmt: skip
def test_a_hold_that_says_too_little_is_refused(client: Client, ann: Browser, wrong: dict[str, str]) -> None:
    """What a hold lacks is said on a page, and nothing is held."""
    told = {"key": ann.key(), "kind": "node", "name": "gpu-0002", "hours": "4", "reason": "x", "from": "/holds"}
    answer = ann.submit("/holds", told | wrong)

    assert answer.status_code == 422
    assert "Nothing was changed" in whole(answer).text
    assert client.get("/v1/holds").json()["items"] == []


def test_a_hold_of_an_unknown_node_needs_its_box(client: Client, ann: Browser) -> None:
    """A typed name that no agent has reported is refused, and held where the box says so."""
    typed = {"key": ann.key(), "kind": "node", "name": "gpu-0002O", "hours": "4", "reason": "x", "from": "/holds"}
    refused = ann.submit("/holds", typed)
    assert refused.status_code == 404
    assert "gpu-0002" in whole(refused).text
    assert client.get("/v1/holds").json()["items"] == []

    assert ann.submit("/holds", typed | {"unknown": "on"}).status_code == 303
    assert [one["node"] for one in client.get("/v1/holds").json()["items"]] == ["gpu-0002O"]


def test_a_freeze_is_on_every_page(client: Client, ann: Browser) -> None:
    """Frozen by a form, every page says so first, with who and why; thawed by the same form; a stale form does neither."""
    told = ann.forms("/remediations").of("/freeze") | {"reason": "the power is being tested"}
    assert ann.submit("/freeze", told).status_code == 303
    again = ann.submit("/freeze", told)
    for path in PATHS:
        said = " ".join(page(ann, path).text.split())
        assert "Frozen by ann (" in said
        assert "The power is being tested. Nothing acts anywhere." in said
    assert "Everything is frozen by ann (" in page(ann).text
    assert again.status_code == 412

    told = ann.forms("/remediations").of("/freeze")
    assert told["frozen"] == "no"
    assert ann.submit("/freeze", told | {"reason": ""}).status_code == 422
    for unsaid in ({"frozen": ""}, {"frozen": "perhaps"}):
        assert ann.submit("/freeze", told | {"reason": "over"} | unsaid).status_code == 422
    silent = {name: value for name, value in told.items() if name != "frozen"}
    assert ann.submit("/freeze", silent | {"reason": "over"}).status_code == 422
    assert client.get("/v1/freeze").json()["frozen"] is True
    assert ann.submit("/freeze", told | {"reason": "over"}).status_code == 303
    assert client.get("/v1/freeze").json()["frozen"] is False


def test_an_open_breaker_is_on_every_page(client: Client, ann: Browser) -> None:
    """Once three nodes were taken out the breaker is open, says every page; a person closes it, and says what they found."""
    for number, node in enumerate(NODES[:3]):
        incident, job = f"inc-00000000000{number}", f"job-{number}"
        running(client.service.database, job, (node, f"spare-{number}"))
        incident_rows.seed(client.service.database, incident, at=now() - 60, job=job)
        one = replace(plan(f"rem-00000000000{number}", incident, job, (node,)), priced_tenants=(incident_rows.JOB,))
        happens(client, Proposed(incident=incident, plan=one))
        client.post(f"/v1/remediations/{one.id}/approve", headers={"If-Match": "*"})
        happens(client, Take(id=one.id, by="slurm"), Begin(id=one.id, by="slurm", token=1))
    for path in PATHS:
        assert "The breaker is open" in page(ann, path).text
    assert "Cannot act now" in page(ann).text

    told = ann.forms("/remediations").of("/breaker/close")
    assert ann.submit("/breaker/close", told | {"reason": ""}).status_code == 422
    assert ann.submit("/breaker/close", told | {"reason": "three bad cables"}).status_code == 303
    assert client.get("/v1/breaker").json()["open"] is False
    assert "The breaker is open" not in page(ann, "/").text


def test_nothing_foreign_becomes_a_part_of_a_page(client: Client) -> None:
    """Names, reasons and plans that are HTML are text, in every place that shows them and in every form."""
    job, incident = HOSTILE.replace("\x1b", "")[:200], "inc-0000000000ff"
    running(client.service.database, job, ("gpu-0009",))
    incident_rows.seed(client.service.database, incident, at=now() - 60, job=job)
    one = replace(plan("rem-0000000000ff", incident, job, ("gpu-0009", HOSTILE)), why=HOSTILE, role=HOSTILE)
    hold = Hold(id="hold-1", by=HOSTILE, reason=HOSTILE, made_at=now(), until=now() + 60, job=job)
    happens(
        client, Proposed(incident=incident, plan=one), AddHold(hold=hold),
        SetFreeze(freeze=Freeze(by=HOSTILE, reason=HOSTILE, at=now()), by=HOSTILE, reason=HOSTILE),
    )  # fmt: skip
    secret = client.service.tokens.make(HOSTILE[:60], ["remediate"])[1]
    with Browser(client) as browser:
        browser.sign_in(secret)
        for path in ("/", f"/incidents/{incident}", "/remediations", "/holds"):
            found = page(browser, path)
            assert not [tag for tag, _ in found.elements if tag in ("img", "script")], path
            assert not [name for _, own in found.elements for name in own if name.startswith("on")], path
            assert "\u202e" not in found.text
            assert "<img" in found.text, path
        told = browser.forms(f"/incidents/{incident}").of(f"/remediations/{one.id}/reject") | {"reason": HOSTILE}
        refused = browser.submit(f"/remediations/{one.id}/reject", told)
        assert refused.status_code == 422
        assert "img" not in [tag for tag, _ in whole(refused).elements]
        held = browser.forms(f"/incidents/{incident}").of("/holds") | {"what": f"job:{job}", "reason": "<b>it</b>"}
        assert browser.submit("/holds", held).status_code == 303
        assert "<b>it</b>" in page(browser, "/holds").text
        told["reason"] = "<script>alert(1)</script>"
        assert browser.submit(f"/remediations/{one.id}/reject", told).status_code == 303
        assert "<script>alert(1)</script>" in page(browser, f"/incidents/{incident}").text


def test_what_is_not_there_cannot_be_decided(client: Client, ann: Browser) -> None:
    """A remediation that nobody knows, and a verb that there is not, are said to be none."""
    key = ann.key()

    assert ann.submit("/remediations/rem-none/approve", {"key": key, "version": "1"}).status_code == 404
    assert ann.submit(f"{URL}/execute", {"key": key, "version": "1"}).status_code in (404, 422)
    assert ann.submit("/remediations/a b/approve", {"key": key, "version": "1"}).status_code == 422
    assert ann.get(f"{URL}/approve").status_code == 405
    assert stands(client)["status"] == "proposed"


def test_a_page_with_a_form_stands_still(client: Client, ann: Browser) -> None:
    """Whoever writes a reason does not lose it to a page that looks again; without a form it does look."""
    assert page(ann).all("meta", "http-equiv") == []
    assert page(client).all("meta", "http-equiv") == ["refresh"]
    decide(ann, "reject")
    assert page(ann).all("meta", "http-equiv") == ["refresh"]


@pytest.mark.parametrize("path", PATHS)
def test_each_page_has_its_twin(client: Client, ann: Browser, path: str) -> None:
    """What a page shows REST gives as JSON; all its links lead somewhere; and its policy lets forms go nowhere else."""
    found = page(ann, path)
    (twin,) = [own["href"] for tag, own in found.elements if tag == "a" and own.get("rel") == "alternate"]

    assert client.get(str(twin)).json()
    assert {str(own["method"]) for tag, own in found.elements if tag == "form"} == {"post"}
    assert all(fields["key"] == ann.key() for _, fields in ann.forms(path).found)
    for link in found.all("a", "href"):
        assert link.startswith(("#", "?")) or client.get(link).status_code == 200, link
