"""Restarts roles of this job as Faulthound approves it: a receiver of the signed webhook of `faulthound adapter webhook`.

A push is a notice. What is done is claimed over REST first, under a lease, and reported afterwards:

    push ─▶ claim ─▶ begin ─▶ fence the old epochs ─▶ kill what still runs ─▶ start anew ─▶ complete

The old process is fenced before it is killed, so that its peers refuse it even where the kill does not reach it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

LEASE_SECONDS, MARGIN_SECONDS = 60.0, 10.0  # of a claim; that it must still last before a process is touched
POLL_SECONDS = 2.0  # what becomes claimable with time alone is not pushed
OLD_SECONDS = 300.0  # a signature that is older is refused
MOST_BYTES = 1 << 20
WHOLE = frozenset({"restart_job", "reattempt"})

Restart = Callable[[str, frozenset[str] | None], dict[str, str]]


class Refused(Exception):
    """The service refuses a request."""


class Receiver:
    """Claims what is approved for one job. ``restart``: a role and its instances (None: all) → what was done."""

    def __init__(
        self, url: str, token: str, job: str, secret: Path, restart: Restart, whole: Callable[[], None]
    ) -> None:
        self._url, self._token, self._job = url.rstrip("/"), token, job
        self._key = base64.b64decode(secret.read_text().strip().removeprefix("whsec_"), validate=True)
        self._restart, self._whole = restart, whole
        self._pushed = threading.Event()
        self._polled_at = 0.0

    def listen(self, port: int) -> int:
        """Accept pushes in the background; return the port."""
        server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        threading.Thread(target=server.serve_forever, name="receiver", daemon=True).start()
        return int(server.server_address[1])

    def turn(self) -> None:
        """Do what was approved, after a push or once in a while."""
        if not self._pushed.is_set() and time.monotonic() < self._polled_at + POLL_SECONDS:
            return
        self._pushed.clear()
        self._polled_at = time.monotonic()
        try:
            found = self._ask("GET", f"/v1/remediations?claimable=true&job={urllib.parse.quote(self._job)}")["items"]
            for one in found:
                if one["task"] == "do" and one["kind"] in {"restart_role", *WHOLE}:
                    self._do(one)
        except (OSError, Refused) as problem:
            print(f"receiver: {problem}", flush=True)

    def accepts(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Return whether a push is signed with our secret, and lately (Standard Webhooks)."""
        id, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        if not at.isdecimal() or abs(time.time() - int(at)) > OLD_SECONDS:  # noqa: TID251 the job's own process
            return False
        digest = hmac.new(self._key, f"{id}.{at}.".encode() + body, hashlib.sha256).digest()
        wanted = f"v1,{base64.b64encode(digest).decode()}"
        return any(hmac.compare_digest(wanted, one) for one in headers.get("webhook-signature", "").split())

    def _do(self, one: Mapping[str, Any]) -> None:
        path, asked_at = f"/v1/remediations/{one['id']}", time.monotonic()
        claim = self._ask("POST", f"{path}/claim", {"seconds": LEASE_SECONDS})
        token, until = claim["token"], asked_at + claim["seconds"] - MARGIN_SECONDS
        begun = self._ask("POST", f"{path}/begin", {"token": token})["remediation"]
        did: dict[str, str] = {}
        try:
            if time.monotonic() > until:
                raise Refused("the lease is nearly over: nothing was done")
            if begun["kind"] in WHOLE:
                self._whole()
                did = {"job": "started anew"}
            else:
                did = self._restart_role(begun)
        except (OSError, Refused) as problem:
            self._ask("POST", f"{path}/fail", {"token": token, "reason": str(problem), "did": did})
            return
        self._ask("POST", f"{path}/complete", {"token": token, "did": did})
        print(f"receiver: {one['id']}: {did}", flush=True)

    def _restart_role(self, one: Mapping[str, Any]) -> dict[str, str]:
        role, plan = one["role"], one["role_restart"]
        for instance, epoch in plan["epochs"].items():
            fence = {"role": role, "instance": instance, "epoch": epoch, "reason": f"{one['id']} replaces it"}
            self._ask("POST", f"/v1/jobs/{urllib.parse.quote(self._job)}/roles/fence", fence)
        named = frozenset(plan["epochs"]) or (frozenset({plan["instance"]}) if plan["instance"] else None)
        return self._restart(role, named)

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(  # noqa: S310 the address is the job's own
            self._url + path, data, {"Content-Type": "application/json"}, method=method
        )
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise Refused(f"{method} {path}: {error.code} {error.read(500).decode('utf-8', 'replace')}") from None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(size) if 0 <= size <= MOST_BYTES else b""
                if not receiver.accepts(self.headers, body):  # type: ignore[arg-type]
                    self.send_error(401)
                    return
                self.send_response(204)
                self.end_headers()
                receiver._pushed.set()

            def log_message(self, *_arguments: object) -> None:
                pass

        return Handler
