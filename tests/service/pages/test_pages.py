"""The pages: what a person sees of a real service, that it needs no script, and that nothing foreign becomes a part of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import httpx
import msgspec
import pytest

from service.api.problems import TABLE
from service.clock import now
from service.reports import html
from service.store import timeline
from service.store.models import Alarm, Incident
from tests.support import incident_rows
from tests.support.incident_rows import AT, JOB
from tests.support.live_records import minute
from tests.support.sample_verdicts import hang, undecided
from tests.support.served import Client, served

ID, SILENT, CLOSED, FLEET = "inc-0123456789ab", "inc-00000000000b", "inc-00000000000c", "inc-00000000000d"
HOSTILE = '"><img src=x onerror=alert(1)> & \u202e\x1b[2J'
VOID = {"meta", "img", "br", "hr", "input", "link"}


class Page(HTMLParser):
    """A page as a browser takes it: its elements, its text, and whether every element ends where it should."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take up an element."""
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID and not self.get_starttag_text().endswith("/>"):  # type: ignore[union-attr]
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """End an element, which must be the newest."""
        assert self.open, f"</{tag}> ends nothing"
        assert self.open.pop() == tag, f"</{tag}> ends something else"

    def handle_data(self, data: str) -> None:
        """Take up text."""
        self.text += data

    def all(self, tag: str, attribute: str) -> list[str]:
        """Return an attribute of all such elements."""
        return [str(own[attribute]) for name, own in self.elements if name == tag and attribute in own]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Return a client of a service with incidents of every kind of ending, an alarm and a job that runs."""
    with served(tmp_path_factory.mktemp("pages")) as client:
        database = client.service.database
        incident_rows.seed(database, verdicts=(undecided(), hang()))
        incident_rows.seed(database, SILENT, at=AT + 1, job=HOSTILE.replace("\x1b", "")[:200], verdicts=())
        incident_rows.seed(database, CLOSED, at=AT - 500, closed_at=AT - 400, verdicts=())
        incident_rows.seed(database, FLEET, at=AT - 900, job=None, kind="infrastructure", verdicts=(undecided(),))
        with database.transaction() as session:
            session.add(
                Alarm(kind="coverage", job=JOB, text=f"812 of 1,024 {HOSTILE}", nodes=[], raised_at=AT, over_at=None)
            )
            row = session.get(Incident, SILENT)
            assert row is not None
            row.merged_into = FLEET
            row.state = {"symptoms": [{**incident_rows.SYMPTOM, "text": HOSTILE}]}
            timeline.add(session, AT, "judge_failed", ID, JOB, {"analyzer": "hang", "why": HOSTILE})
        wish = {"judgement": "wrong", "culprit": {"kind": "node", "id": "gpu-0007"}, "text": "<b>its HBM</b>"}
        client.post(f"/v1/incidents/{ID}/feedback", json=wish)
        client.ship("gpu-0001", minute("gpu-0001", [0, 1], now()))
        client.eventually("/v1/now", lambda document: document["jobs"])
        yield client


def page(client: Client, path: str) -> Page:
    """Return a page that is whole."""
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    found = Page(answer.text)
    assert found.open == [], f"{path}: {found.open} never end"
    return found


INCIDENTS = (f"/incidents/{ID}", f"/incidents/{SILENT}", f"/incidents/{CLOSED}", f"/incidents/{FLEET}")
PATHS = (
    "/",
    *INCIDENTS,
    "/jobs/llama-8b",
    f"/jobs/{JOB}",
    "/jobs",
    "/remediations",
    "/holds",
    "/nodes",
    "/docs/rest.md",
)


def test_the_first_page_says_what_goes_on(client: Client) -> None:
    """Open incidents with who and what to do, jobs, what is not seen, and what was closed last and why."""
    found = page(client, "/")

    assert "3 open incidents" in found.text
    assert "node gpu-0413 (rank 3304)" in found.text
    assert "llama-8b" in found.text
    assert "coverage of llama-405b" in found.text
    assert "It moves again at step 101." in found.text
    assert {f"/incidents/{id}" for id in (ID, SILENT, CLOSED, FLEET)} <= set(found.all("a", "href"))


def test_a_service_to_which_no_agent_reports_promises_nothing(tmp_path: Path) -> None:
    """A green tick would say that somebody looked."""
    with served(tmp_path) as client:
        found = page(client, "/")

    assert "Nothing is watched: no agent reports" in found.text
    assert "✓" not in found.text


def test_an_incidents_page_is_its_verdict(client: Client) -> None:
    """The culprit stands first, then why, what to do, the versions with what changed, the timeline and people's words."""
    found = page(client, f"/incidents/{ID}")

    words = ["Node gpu-0413 (trainer rank 3304) hangs the job", "never entered all_reduce 881", "Evict node gpu-0413.",
             "culprit none → node gpu-0413 (trainer rank 3304), action none → evict",
             "judge failed", "<b>its HBM</b>"]  # fmt: skip
    shown = " ".join(found.text.split())
    assert [one for one in words if one not in shown] == []
    places = [shown.index(one) for one in words]
    assert places == sorted(places)
    assert f"faulthound incidents feedback {ID} right" in found.text


@pytest.mark.parametrize(
    "path", ["/incidents/inc-ffffffffffff", "/jobs/nobody's", f"/incidents/{ID}?version=99", "/incidents/no such"]
)
def test_a_browser_at_an_unknown_address_is_shown_a_page(client: Client, path: str) -> None:
    """It names what is unknown and where to go on; a program gets the problem."""
    shown = client.get(path, headers={"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    found = Page(shown.text)

    assert shown.headers["content-type"] == "text/html; charset=utf-8"
    assert shown.status_code == client.get(path).status_code in {404, 422}
    assert {"/", "/jobs"} <= set(found.all("a", "href"))
    assert "unknown" in found.text or "no version" in found.text or "no address" in found.text
    assert client.get(path).headers["content-type"] == "application/problem+json"


def test_the_type_of_a_problem_leads_to_a_page(client: Client) -> None:
    """Each kind has its heading there; who has no token may read it, from another machine too."""
    address, _, heading = client.get("/v1/incidents/inc-ffffffffffff").json()["type"].partition("#")
    ids = {own["id"] for _, own in page(client, address).elements if "id" in own}

    assert heading in ids
    assert set(TABLE) <= ids
    assert client.get_from("10.0.0.7", address).status_code == 200


def test_an_earlier_version_can_be_looked_at(client: Client) -> None:
    """`?version=1` shows what was said first, marks it, and does not look again; a version that is not is a problem."""
    found = page(client, f"/incidents/{ID}?version=1")

    assert "Nothing is named." in found.text
    assert next(own for tag, own in found.elements if tag == "tr" and own.get("aria-current"))["class"] == "shown"
    assert found.all("meta", "http-equiv") == []
    assert client.get(f"/incidents/{ID}?version=3").json()["type"] == "/docs/rest.md#not-found"
    assert client.get("/incidents/inc-ffffffffffff").status_code == 404


def test_without_a_verdict_the_page_says_so(client: Client) -> None:
    """An incident that was merged leads to the one that explains it; one that is closed says why and stands still."""
    merged, closed = page(client, f"/incidents/{SILENT}"), page(client, f"/incidents/{CLOSED}")

    assert "No verdict yet." in merged.text
    assert f"/incidents/{FLEET}" in merged.all("a", "href")
    assert "Closed without a verdict." in closed.text
    assert "No verdict yet." not in closed.text
    assert closed.all("meta", "http-equiv") == []


@pytest.mark.parametrize("path", PATHS)
def test_a_page_has_a_twin_and_needs_no_script(client: Client, path: str) -> None:
    """Each page links its JSON, which answers; no script, no event handler, no outside address; and every id is one's own."""
    found = page(client, path)

    twins = [own["href"] for tag, own in found.elements if tag == "a" and own.get("rel") == "alternate"]
    assert len(twins) == 1
    assert client.get(str(twins[0])).json()
    assert not [tag for tag, _ in found.elements if tag in ("script", "iframe", "object", "form", "img")]
    assert not [name for _, own in found.elements for name in own if name.startswith("on") or name == "style"]
    ids = [str(own["id"]) for _, own in found.elements if "id" in own]
    assert len(ids) == len(set(ids))
    for link in found.all("a", "href"):
        assert link[1:] in ids if link.startswith("#") else link.startswith(("/", "?")), link


@pytest.mark.parametrize("path", PATHS)
def test_every_link_leads_somewhere(client: Client, path: str) -> None:
    """What a page links on this service answers with 200."""
    for link in sorted(set(page(client, path).all("a", "href"))):
        if not link.startswith("#"):
            assert client.get(link if link.startswith("/") else path + link).status_code == 200, link


@pytest.mark.parametrize("path", PATHS)
def test_a_page_may_do_nothing(client: Client, path: str) -> None:
    """The security policy lets in the page's own style and nothing else, and that style is the one that it names."""
    answer = client.get(path)
    policy = answer.headers["content-security-policy"]
    (style,) = re.findall(r"<style>(.*?)</style>", answer.text, re.DOTALL)

    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert html.digest(style) in policy
    assert "frame-ancestors 'none'" in policy
    assert "\x1b" not in answer.text
    assert "\u202e" not in answer.text


def test_a_page_can_be_kept_still(client: Client) -> None:
    """A page of something that goes on looks again by itself, and `?pause=1` keeps it as it is."""
    assert page(client, "/").all("meta", "http-equiv") == ["refresh"]
    assert page(client, "/?pause=1").all("meta", "http-equiv") == []
    assert "go on" in page(client, f"/incidents/{ID}?pause=1").text


def test_a_page_can_be_walked_by_keyboard(client: Client) -> None:
    """The first link leads past the bar to a place that is there; the language is named; there is one first heading each."""
    for path in PATHS:
        found = page(client, path)
        assert found.all("a", "href")[0] == "#content"
        assert ("html", {"lang": "en"}) in found.elements
        assert "content" in [own.get("id") for _, own in found.elements]
        assert next(tag for tag, _ in found.elements if tag in ("h1", "h2")) == "h1"


def test_a_browser_sends_the_token_as_a_password(tmp_path: Path) -> None:
    """With tokens a page asks for one; it opens pages and their JSON, and changes nothing: that takes a bearer."""
    with served(tmp_path) as client:
        incident_rows.seed(client.service.database)
        admin = client.post("/v1/tokens", json={"name": "a", "scopes": ["admin"]}).json()["token"]
        sender = client.as_(admin).post("/v1/tokens", json={"name": "s", "scopes": ["ingest"]}).json()["token"]
        asked, wrong = client.get("/"), client.get("/", auth=("x", "fh_wrong"))
        twin = client.get("/v1/now", headers={"Accept": "text/html,application/xhtml+xml"})
        seen = [client.get(path, auth=("anyone", admin)).status_code for path in ("/", f"/incidents/{ID}", "/v1/now")]
        document = client.get(f"/v1/incidents/{ID}", auth=("anyone", admin))
        change = client.post(
            f"/v1/incidents/{ID}/close", json={"reason": "no"}, auth=("anyone", admin),
            headers={"If-Match": document.headers["etag"]},
        )  # fmt: skip
        other_scope = client.get("/", auth=("x", sender)).status_code
        bearer = client.as_(admin).get("/").status_code

    assert (asked.status_code, wrong.status_code) == (401, 401)
    assert asked.headers["www-authenticate"].startswith("Basic realm=")
    assert twin.headers["www-authenticate"] == asked.headers["www-authenticate"]
    assert seen == [200, 200, 200]
    assert (change.status_code, other_scope, bearer) == (401, 403, 200)


def test_another_machine_sees_no_page_without_a_token(client: Client) -> None:
    """An open service shows its pages to its own machine, and to no name that a web page could give it."""
    host = client.url.removeprefix("http://")

    assert client.get_from("127.0.0.1", "/", Host=host).status_code == 200
    assert client.get_from("10.0.0.7", "/", Host=host).status_code == 401
    assert client.get_from("127.0.0.1", "/", Host="evil.example").status_code == 401


def test_a_document_of_a_later_program_is_shown(client: Client) -> None:
    """Fields and words that this program does not know cost nothing: the page shows what it understands."""
    later = msgspec.json.decode(msgspec.json.encode(hang())) | {"in_2027": [1], "cause": "gremlins"}
    with client.service.database.transaction() as session:
        from service.store.models import Verdict

        row = session.get(Verdict, (ID, 2))
        assert row is not None
        kept, row.document = row.document, msgspec.json.encode(later)
    try:
        assert "gremlins" in page(client, f"/incidents/{ID}").text
    finally:
        with client.service.database.transaction() as session:
            session.get(Verdict, (ID, 2)).document = kept  # type: ignore[union-attr]


def test_a_down_database_is_a_problem_and_no_page(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the store does not answer, the answer is a problem that says to come again."""
    from sqlalchemy.exc import OperationalError

    def away(*_: object) -> None:
        raise OperationalError("", {}, Exception("away"))

    monkeypatch.setattr("service.pages.routes.current.document", away)
    answer: httpx.Response = client.get("/")

    assert answer.status_code == 503
    assert answer.json()["type"] == "/docs/rest.md#unavailable"
