"""Holds, freeze, breaker and foreign text on the pages."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from analyzers.remediation.messages import (
    AddHold,
    Begin,
    Proposed,
    SetFreeze,
    Take,
)
from analyzers.remediation.types import Freeze, Hold
from service.clock import PROCESS, now
from tests.service.pages.test_pages import HOSTILE
from tests.support import incident_rows
from tests.support.browser import Browser
from tests.support.deciding_pages import HOME, URL, decide, happens, page, stands, whole
from tests.support.remediation_rows import NODES, plan, running
from tests.support.served import Client

PATHS = ("/", HOME, "/remediations", "/holds")


def test_a_hold_stands_in_the_way(client: Client, ann: Browser) -> None:
    """Held from its proposal, a node is on the page of holds, and the proposal says what keeps it from acting and who did."""
    reported = ann.forms(HOME).of("/holds") | {"what": "node:gpu-0002", "reason": "its HBM is being tested"}
    assert ann.submit("/holds", reported).headers["location"] == HOME

    assert "Cannot act now" in page(ann).text
    assert "is held by ann (" in page(ann).text
    assert "its HBM is being tested" in page(ann).text
    assert "Its HBM is being tested." in page(ann, "/holds").text
    assert [one["code"] for one in stands(client)["hindrances"]] == ["held"]


def test_holds_are_made_and_ended_on_their_page(client: Client, ann: Browser) -> None:
    """A job can be held by its name; the button that ends a hold says whose it is."""
    reported = ann.forms("/holds").of("/holds") | {
        "kind": "job",
        "name": "llama-405b",
        "hours": "0.5",
        "reason": "a copy",
    }
    before = now()
    assert ann.submit("/holds", reported).headers["location"] == "/holds"
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


def test_hours_from_an_uncertain_now_are_refused(client: Client, ann: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that is a day behind, and is corrected, a hold of four hours would end at once: the page says what to do."""
    reported = ann.forms("/holds").of("/holds") | {
        "kind": "job",
        "name": "llama-405b",
        "hours": "4",
        "reason": "a copy",
    }
    monkeypatch.setattr(PROCESS, "doubt", "the wall clock is -86,400 s from the newest stored instant")
    refused = ann.submit("/holds", reported)

    assert refused.status_code == 422
    assert "faulthound holds add" in refused.text
    assert client.get("/v1/holds").json()["items"] == []


@pytest.mark.parametrize(
    "wrong",
    [{"hours": "nan"}, {"hours": "-1"}, {"hours": "1e9"}, {"hours": "soon"}, {"name": ""}, {"name": "../x"},
     {"kind": "rack"}, {"reason": ""}, {"reason": "a\nb"}, {"reason": "x" * 1_001}],
    ids=str,
)  # fmt: skip
def test_a_hold_that_says_too_little_is_refused(client: Client, ann: Browser, wrong: dict[str, str]) -> None:
    """What a hold lacks is said on a page, and nothing is held."""
    reported = {"key": ann.key(), "kind": "node", "name": "gpu-0002", "hours": "4", "reason": "x", "from": "/holds"}
    answer = ann.submit("/holds", reported | wrong)

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
    reported = ann.forms("/remediations").of("/freeze") | {"reason": "the power is being tested"}
    assert ann.submit("/freeze", reported).status_code == 303
    again = ann.submit("/freeze", reported)
    for path in PATHS:
        said = " ".join(page(ann, path).text.split())
        assert "Frozen by ann (" in said
        assert "The power is being tested. Nothing acts anywhere." in said
    assert "Everything is frozen by ann (" in page(ann).text
    assert again.status_code == 412

    reported = ann.forms("/remediations").of("/freeze")
    assert reported["frozen"] == "no"
    assert ann.submit("/freeze", reported | {"reason": ""}).status_code == 422
    for unsaid in ({"frozen": ""}, {"frozen": "perhaps"}):
        assert ann.submit("/freeze", reported | {"reason": "over"} | unsaid).status_code == 422
    silent = {name: value for name, value in reported.items() if name != "frozen"}
    assert ann.submit("/freeze", silent | {"reason": "over"}).status_code == 422
    assert client.get("/v1/freeze").json()["frozen"] is True
    assert ann.submit("/freeze", reported | {"reason": "over"}).status_code == 303
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

    reported = ann.forms("/remediations").of("/breaker/close")
    assert ann.submit("/breaker/close", reported | {"reason": ""}).status_code == 422
    assert ann.submit("/breaker/close", reported | {"reason": "three bad cables"}).status_code == 303
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
        reported = browser.forms(f"/incidents/{incident}").of(f"/remediations/{one.id}/reject") | {"reason": HOSTILE}
        refused = browser.submit(f"/remediations/{one.id}/reject", reported)
        assert refused.status_code == 422
        assert "img" not in [tag for tag, _ in whole(refused).elements]
        held = browser.forms(f"/incidents/{incident}").of("/holds") | {"what": f"job:{job}", "reason": "<b>it</b>"}
        assert browser.submit("/holds", held).status_code == 303
        assert "<b>it</b>" in page(browser, "/holds").text
        reported["reason"] = "<script>alert(1)</script>"
        assert browser.submit(f"/remediations/{one.id}/reject", reported).status_code == 303
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
