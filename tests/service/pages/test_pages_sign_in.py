"""Signing in to the pages: a token for a session, and no form from elsewhere, without its key or after its end."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path

import httpx
import pytest
from sqlalchemy import select, text

from service.pages.visitors import COOKIE
from service.store.database import Database
from service.store.models import AuditEvent, PageSession
from service.store.page_sessions import SESSION_SECONDS, PageSessions
from service.store.tokens import Bearer, Tokens
from tests.service.store.test_store_tokens import Clock
from tests.support.browser import Browser
from tests.support.served import Client, served


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Return a client, without a token, of a service that has tokens."""
    with served(tmp_path_factory.mktemp("sign_in")) as client:
        Tokens(client.service.database).make("first", ["admin"])
        yield client


@pytest.fixture
def browser(client: Client) -> Iterator[Browser]:
    """Return a browser that has not signed in."""
    with Browser(client) as browser:
        yield browser


def token(client: Client, *scopes: str, name: str = "ann") -> str:
    """Return a new token's secret."""
    return client.service.tokens.make(name, scopes or ["remediate"])[1]


def reported(client: Client, kind: str) -> list[AuditEvent]:
    """Return the audit log's events of a kind, the newest first."""
    with client.service.database.session() as session:
        return list(
            session.scalars(select(AuditEvent).where(AuditEvent.kind == kind).order_by(AuditEvent.sequence.desc()))
        )


def test_a_token_becomes_a_session(client: Client, browser: Browser) -> None:
    """Signing in leads back to the page, which says who is signed in; the audit log has it."""
    answer = browser.sign_in(token(client), to="/")

    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    page = browser.get("/")
    assert page.status_code == 200
    assert "sign out ann (" in page.text
    assert reported(client, "signed_in")[0].actor.startswith("ann (")


def test_the_cookie_holds_no_token(client: Client, browser: Browser) -> None:
    """It is HttpOnly, SameSite=Strict, of twelve hours, and neither it nor the store holds token or secret."""
    secret = token(client)
    answer = browser.sign_in(secret)
    cookie = SimpleCookie(answer.headers["set-cookie"])[COOKIE]
    with client.service.database.session() as session:
        rows = str(session.execute(text("SELECT * FROM page_sessions")).all())

    assert (cookie["httponly"], cookie["samesite"].lower(), cookie["path"]) == (True, "strict", "/")
    assert cookie["max-age"] == str(int(SESSION_SECONDS))
    assert not cookie["secure"]
    assert secret[3:] not in cookie.value + rows
    assert cookie.value not in rows
    assert hashlib.sha256(cookie.value.encode()).hexdigest() in rows


def test_behind_tls_the_cookie_is_secure(client: Client, browser: Browser) -> None:
    """Where the browser came over TLS, what stands before the service notwithstanding, it sends the cookie over TLS only."""
    own = browser.origin.replace("http://", "https://")
    answer = browser.sign_in(token(client), headers={"Origin": own})

    assert SimpleCookie(answer.headers["set-cookie"])[COOKIE]["secure"] is True


def test_each_session_has_a_key_of_its_own(client: Client) -> None:
    """Two browsers with one token have two cookies and two keys: one's forms are none of the other's."""
    secret = token(client)
    with Browser(client) as one, Browser(client) as other:
        one.sign_in(secret)
        other.sign_in(secret)
        keys = one.key(), other.key()
        crossed = one.submit("/sign-out", {"key": keys[1]})

    assert keys[0] != keys[1]
    assert crossed.status_code == 403


def test_who_may_not_decide_cannot_sign_in(client: Client, browser: Browser) -> None:
    """A token that reads, executes or sends is refused, and so is one that nobody made; the audit log has each."""
    read = browser.sign_in(token(client, "read", name="reader"))
    others = [browser.sign_in(token(client, scope)).status_code for scope in ("execute", "ingest")]
    unknown = browser.sign_in("fh_guessed")

    assert read.status_code == 403
    assert "needs the scope remediate" in read.text
    assert others == [403, 403]
    assert unknown.status_code == 403
    assert "The token is unknown" in unknown.text
    assert "set-cookie" not in {**read.headers, **unknown.headers}
    assert any(event.actor.startswith("reader (") for event in reported(client, "scope_refused"))
    assert any(event.subject == "POST /sign-in" for event in reported(client, "token_refused"))


def test_signing_in_leads_nowhere_else(client: Client, browser: Browser) -> None:
    """An address that is no page of the service is not gone to, however it is written."""
    secret = token(client)
    for to in (
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "/v1/tokens",
        "/incidents/../x",
        "/\r\nX: y",
    ):
        assert browser.sign_in(secret, to=to).headers["location"] == "/", to
        assert f'value="{to}"' not in browser.get("/sign-in", params={"to": to}).text
    for to in ("/", "/remediations", "/holds", "/incidents/inc-0123456789ab"):
        assert browser.sign_in(secret, to=to).headers["location"] == to


def test_signing_out_ends_the_session(client: Client, browser: Browser) -> None:
    """The cookie is taken away, and one that was kept is good for nothing."""
    browser.sign_in(token(client))
    kept, key = browser.cookies[COOKIE], browser.key()
    answer = browser.submit("/sign-out", {"key": key})

    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in")
    assert COOKIE not in browser.cookies
    browser.cookies.set(COOKIE, kept)
    assert browser.get("/").status_code == 401
    assert "Your session has ended" in browser.submit("/sign-out", {"key": key}).text
    assert reported(client, "signed_out")[0].actor.startswith("ann (")


def test_a_session_ends_with_its_token(client: Client, browser: Browser) -> None:
    """A token that is revoked takes its sessions along, at once and in every process."""
    made, secret = client.service.tokens.make("bob", ["remediate"])
    browser.sign_in(secret)
    key = browser.key()
    Tokens(client.service.database).revoke(made.id)  # by another process, for all that the service knows

    assert browser.get("/").status_code == 401
    assert browser.submit("/sign-out", {"key": key}).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "file://"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
        {"Origin": "", "Sec-Fetch-Site": ""},
    ],
    ids=str,
)
def test_a_form_from_elsewhere_is_refused(client: Client, browser: Browser, headers: dict[str, str]) -> None:
    """Another site's form is refused, cookie and key notwithstanding, and so is one whose browser says nothing of it."""
    browser.sign_in(token(client))
    key = browser.key()
    answer = browser.submit("/sign-out", {"key": key}, headers=headers)

    assert answer.status_code == 403
    assert "Nothing was changed" in answer.text
    assert browser.get("/").status_code == 200
    assert reported(client, "form_refused")


def test_another_site_signs_nobody_in(client: Client, browser: Browser) -> None:
    """Nor can a form from elsewhere put a browser into somebody's session."""
    answer = browser.sign_in(token(client), headers={"Origin": "https://evil.example"})

    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("key", ["", "0" * 64, "é"])
def test_a_form_without_its_key_is_refused(client: Client, browser: Browser, key: str) -> None:
    """A form that does not hold the session's key changes nothing."""
    browser.sign_in(token(client))

    assert browser.submit("/sign-out", {"key": key}).status_code == 403
    assert "sign out ann (" in browser.get("/").text


@pytest.mark.parametrize(
    ("content", "type", "status"),
    [
        ("key=" + "x" * 20_000, "application/x-www-form-urlencoded", 413),
        ("&".join(f"f{number}=" for number in range(50)), "application/x-www-form-urlencoded", 400),
        (b"key=\xff", "application/x-www-form-urlencoded", 400),
        ("key=%ff", "application/x-www-form-urlencoded", 400),
        ("key=x", "text/plain", 415),
        ('{"key": "x"}', "application/json", 415),
        ("", "multipart/form-data; boundary=x", 415),
    ],
    ids=["large", "many", "bytes", "escapes", "text", "json", "parts"],
)
def test_a_form_that_is_none_is_refused(browser: Browser, content: str | bytes, type: str, status: int) -> None:
    """Whatever a body holds, it is refused as a page, in the bounds of a form."""
    own = {"Origin": browser.origin, "Content-Type": type}
    answer = browser.post("/sign-in", content=content, headers=own)

    assert answer.status_code == status
    assert "Nothing was changed" in answer.text


def test_a_cookie_opens_pages_only(client: Client, browser: Browser) -> None:
    """A session reads and changes nothing over REST; and a password, or a bearer token, sends no form."""
    secret = token(client, "admin")
    browser.sign_in(secret)
    key = browser.key()
    rest = [browser.get("/v1/now"), browser.post("/v1/tokens", json={"name": "x", "scopes": ["admin"]})]
    with Browser(client) as other:
        forms = [
            other.submit("/sign-out", {"key": key}, auth=("any", secret)),
            other.submit("/sign-out", {"key": key}, headers={"Authorization": f"Bearer {secret}"}),
        ]

    assert [answer.status_code for answer in rest] == [401, 401]
    assert [answer.status_code for answer in forms] == [403, 403]


def test_no_page_can_be_framed(client: Client, browser: Browser) -> None:
    """Neither a page with forms nor the one to sign in may be shown inside another, or send a form elsewhere."""
    browser.sign_in(token(client))
    for path in ("/", "/sign-in"):
        headers = browser.get(path).headers
        policy = headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert "form-action 'self'" in policy
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
        # With no-referrer a browser says `Origin: null` of every form.
        assert headers["referrer-policy"] == "same-origin"


def test_an_open_service_has_no_forms(tmp_path: Path) -> None:
    """Before the first token there is nobody to sign in: pages are read, and the form says how to make a token."""
    with served(tmp_path) as client, Browser(client) as browser:
        assert "tokens create NAME --scope remediate" in browser.get("/sign-in").text
        assert browser.sign_in("").status_code == 403
        assert browser.get("/").status_code == 200
        assert browser.submit("/sign-out", {"key": ""}).status_code == 403


def test_sessions_are_of_the_store(database: Database) -> None:
    """A session that one process began another knows; it ends after twelve hours, and its row goes with the next."""
    clock = Clock()
    one, other = PageSessions(database, clock), PageSessions(database, clock)
    row, _ = Tokens(database, clock).make("ann", ["remediate"], expires_at=clock.at + 10 * SESSION_SECONDS)
    holder = Bearer(row.id, "ann", frozenset({"remediate"}), None)
    secret = one.begin(holder)

    assert other.find(secret) == holder
    assert other.find(secret + "x") is None
    clock.at += SESSION_SECONDS
    assert other.find(secret) is None
    again = other.begin(holder)
    with database.session() as session:
        assert len(session.scalars(select(PageSession)).all()) == 1
    one.end(again, "ann")
    assert other.find(again) is None


def test_a_session_ends_when_its_token_expires(database: Database) -> None:
    """A token of an hour makes no session of twelve."""
    clock = Clock()
    row, _ = Tokens(database, clock).make("ann", ["remediate"], expires_at=clock.at + 3_600)
    secret = PageSessions(database, clock).begin(Bearer(row.id, "ann", frozenset({"remediate"}), None))

    clock.at += 3_600
    assert PageSessions(database, clock).find(secret) is None


def test_two_processes_share_their_sessions(tmp_path: Path) -> None:
    """Who has signed in at one API process is signed in at another on the same store."""
    with served(tmp_path) as one, served(tmp_path) as other, Browser(one) as browser:
        browser.sign_in(token(one))
        cookie = {"Cookie": f"{COOKIE}={browser.cookies[COOKIE]}"}
        answer = httpx.get(other.url, headers=cookie)

    assert "sign out ann (" in answer.text
