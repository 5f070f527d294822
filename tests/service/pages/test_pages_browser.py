"""Signing in and deciding in a real browser: what it really sends with a form, and what it does with another site's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from service.clock import now
from service.pages.visitors import COOKIE
from tests.support.chromium import chromium
from tests.support.remediation_rows import INCIDENT, PLAN_ID, seeded
from tests.support.served import Client, served


@contextmanager
def another_site(page: str) -> Iterator[str]:
    """Serve one page from another site, and give its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://localhost:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_person_signs_in_and_approves(tmp_path: Path) -> None:
    """A browser's own form is taken, and its cookie out of reach of scripts; another site's form decides nothing."""
    with served(tmp_path / "service", engine=False) as client, chromium(tmp_path / "profile") as browser:
        service = client.service
        seeded(service.database, service.remedies)
        secret = service.tokens.make("ann", ["remediate"])[1]
        home, action = f"{client.url}/incidents/{INCIDENT}", f"/remediations/{PLAN_ID}/approve"
        browser.open(f"{client.url}/sign-in?to=/incidents/{INCIDENT}")
        browser.submit("/sign-in", token=secret)
        browser.until(f"location.href === '{home}' && document.body.innerText.includes('sign out ann')")
        assert browser.run("document.cookie") == ""
        key = browser.run("document.querySelector('[name=key]').value")
        version = browser.run("document.querySelector('[name=version]').value")

        attack = f"""<form method=post action="{client.url}{action}"><input name=key value="{key}">
            <input name=version value="{version}"></form><script>document.forms[0].submit()</script>"""
        with another_site(attack) as elsewhere:
            browser.call("Page.navigate", url=elsewhere)
            browser.until("document.body.innerText.includes('Nothing was changed')")
        assert stands(client) == "proposed"

        browser.open(home)
        browser.submit(action)
        browser.until("document.body.innerText.includes('Approved by ann')")
        cookie = next(one for one in browser.call("Network.getCookies")["cookies"] if one["name"] == COOKIE)

    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")


def stands(client: Client) -> str:
    """Return the proposal's status."""
    return client.service.remedies.state(now(), PLAN_ID).remediations[PLAN_ID].status
