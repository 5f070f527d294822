"""A browser, as far as the pages need one: it keeps cookies, follows nothing, and says where its forms come from."""

from __future__ import annotations

from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

import httpx

from tests.support.served import Client


class Forms(HTMLParser):
    """The forms of a page: where each goes to, and the fields that it holds."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take up a form or one of its fields."""
        own = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.found.append((own["action"], {}))
        elif tag == "input" and self.found:
            self.found[-1][1][own["name"]] = own.get("value", "")

    def of(self, action: str) -> dict[str, str]:
        """Return the fields of the form that goes there."""
        return next(fields for to, fields in self.found if to == action)


class Browser(httpx.Client):
    """A browser on the service's own machine."""

    def __init__(self, client: Client) -> None:
        super().__init__(base_url=client.url, timeout=60)
        self.origin = client.url

    def sign_in(self, token: str, to: str = "/", headers: Mapping[str, str] | None = None) -> httpx.Response:
        """Send the form to sign in."""
        return self.submit("/sign-in", {"token": token, "to": to}, headers=headers)

    def submit(
        self, path: str, fields: Mapping[str, str], *, headers: Mapping[str, str] | None = None, auth: Any = None
    ) -> httpx.Response:
        """Send a form as a page of the service does; an empty header is left out."""
        own = {"Origin": self.origin, "Sec-Fetch-Site": "same-origin", **(headers or {})}
        sent = {name: value for name, value in own.items() if value}
        return self.post(path, data=dict(fields), headers=sent, auth=auth)

    def forms(self, path: str) -> Forms:
        """Return the forms of a page."""
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        return Forms(answer.text)

    def key(self) -> str:
        """Return the key of the session's forms."""
        return self.forms("/").of("/sign-out")["key"]
