"""Restarts roles of this job as Faulthound approves it: a receiver of the signed webhook of `faulthound adapter webhook`.

A push is a notice. What is done is claimed over REST first, under a lease, and reported afterwards:

    push ─▶ claim ─▶ begin ─▶ fence the old epochs ─▶ kill what still runs ─▶ start anew ─▶ complete

The old process is fenced before it is killed, so that its peers refuse it even where the kill does not reach it. A request
without an answer is repeated under one key, so that it is carried out once; what has been replaced already is left alone.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
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
ANSWER_SECONDS, AGAIN_SECONDS, GIVE_UP_SECONDS = (
    10.0,
    1.0,
    30.0,
)  # for an answer; before a request is repeated; for one request
POLL_SECONDS = 2.0  # what becomes claimable with time alone is not pushed
OLD_SECONDS = 300.0  # a signature that is older is refused
MOST_BYTES = 1 << 20
MOST_DIGITS = 12  # of an instant
PASSING = frozenset({408, 425, 429})
WHOLE = frozenset({"restart_job", "reattempt"})

Restart = Callable[[str, frozenset[str] | None], dict[str, str]]


class Refused(Exception):
    """The service refuses a request. ``kind``: of the problem."""

    def __init__(self, why: str, kind: str = "") -> None:
        super().__init__(why)
        self.kind = kind


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
        if not at.isdecimal() or len(at) > MOST_DIGITS or abs(time.time() - int(at)) > OLD_SECONDS:  # noqa: TID251 the job's own process
            return False
        digest = hmac.new(self._key, f"{id}.{at}.".encode() + body, hashlib.sha256).digest()
        wanted = b"v1," + base64.b64encode(digest)
        given = headers.get("webhook-signature", "").encode("utf-8", "replace").split()
        return any(hmac.compare_digest(wanted, one) for one in given)

    def _do(self, one: Mapping[str, Any]) -> None:
        path, asked_at = f"/v1/remediations/{one['id']}", time.monotonic()
        claim = self._ask("POST", f"{path}/claim", {"seconds": LEASE_SECONDS})
        token, until = claim["token"], asked_at + claim["seconds"] - MARGIN_SECONDS
        begun = self._ask("POST", f"{path}/begin", {"token": token}, until)["remediation"]
        try:
            did = self._restarted(begun, until)
        except (OSError, Refused) as problem:
            self._ask("POST", f"{path}/fail", {"token": token, "reason": str(problem)}, until)
            return
        self._ask("POST", f"{path}/complete", {"token": token, "did": did}, until)
        print(f"receiver: {one['id']}: {did}", flush=True)

    def _restarted(self, one: Mapping[str, Any], until: float) -> dict[str, str]:
        if one["kind"] in WHOLE:
            _check(until)
            self._whole()
            return {"job": "started anew"}
        role, plan = one["role"], one["role_restart"]
        named = set(plan["epochs"]) or ({plan["instance"]} if plan["instance"] else None)
        gone = {name for name, epoch in plan["epochs"].items() if not self._fence(role, name, epoch, one["id"])}
        did = {f"{role} {name}": "was replaced meanwhile" for name in sorted(gone)}
        if named is None or named - gone:
            _check(until)
            did |= self._restart(role, None if named is None else frozenset(named - gone))
        return did

    def _fence(self, role: str, instance: str, epoch: int, id: str) -> bool:
        """Refuse what an instance still sends; return False where it has been replaced already."""
        fence = {"role": role, "instance": instance, "epoch": epoch, "reason": f"{id} replaces it"}
        try:
            self._ask("POST", f"/v1/jobs/{urllib.parse.quote(self._job)}/roles/fence", fence)
        except Refused as refused:
            if refused.kind == "fenced":
                return False
            raise
        return True

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None, until: float = 0.0) -> Any:
        """Return the answer. What is asked for again, because none came, has the same key: it is carried out once."""
        key, until = (
            secrets.token_hex(16),
            max(until, time.monotonic() + (GIVE_UP_SECONDS if body is not None else 0.0)),
        )
        while True:
            try:
                return self._send(method, path, body, key)
            except OSError:
                if time.monotonic() + AGAIN_SECONDS > until:
                    raise
                time.sleep(AGAIN_SECONDS)

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None, key: str) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if body is not None else {})
        request = urllib.request.Request(self._url + path, data, headers, method=method)  # noqa: S310 the job's own
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:  # noqa: S310
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            text = error.read(1_000).decode("utf-8", "replace")
            why = f"{method} {path}: {error.code} {text[:500]}"
            if error.code in PASSING or error.code >= 500:
                raise OSError(why) from None
            raise Refused(why, _kind(text)) from None
        except ValueError as error:  # half an answer
            raise OSError(f"{method} {path}: {error}") from None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            timeout = ANSWER_SECONDS  # one that sends no more holds no thread

            def do_POST(self) -> None:
                length = self.headers.get("Content-Length") or ""
                size = int(length) if length.isdecimal() else 0
                body = self.rfile.read(size) if size <= MOST_BYTES else b""
                if not receiver.accepts(self.headers, body):  # type: ignore[arg-type]
                    self.send_error(401)
                    return
                self.send_response(204)
                self.end_headers()
                receiver._pushed.set()

            def log_message(self, *_arguments: object) -> None:
                pass

        return Handler


def _check(until: float) -> None:
    """Raise ``Refused`` where another may act under the next claim before a process is ended and started."""
    if time.monotonic() > until:
        raise Refused("the lease is nearly over: nothing was restarted")


def _kind(text: str) -> str:
    """Return the kind of a problem document."""
    try:
        return str(json.loads(text)["type"]).rpartition("#")[2]
    except (ValueError, KeyError, TypeError):
        return ""
