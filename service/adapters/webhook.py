"""What a scheduler can claim, pushed to it as a signed webhook (Standard Webhooks: HMAC-SHA256).

The push is a knock at the door and no order: it holds the remediation as it is now, and whoever gets it claims it over REST
before acting. So a push that comes twice, late or from a stranger does nothing by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

import msgspec

from service.adapters.following import AGAIN_SECONDS, AWAY, LONGEST_SECONDS, Happening, Patience, State, StateFile, read
from service.adapters.sink import Sink
from service.clock import now
from service.endings import CommandError, Forbidden
from service.reports.instants import rfc3339
from service.speech import Speech

if TYPE_CHECKING:
    from standardwebhooks import Webhook

    from service.client import Connection

MEDIA_TYPE = "application/json"
PUSHED = frozenset(
    {"remediation_approved", "remediation_released", "remediation_undo_asked", "remediation_undo_failed"}
)
"""After these there may be something to claim."""
LET_GO = frozenset({"hold_expired", "thawed", "breaker_closed"})
"""After these everything that waited for them may be claimed."""
LEAST_SECRET_BYTES = 24  # of the specification; 64 are its most
MOST_SECRET_BYTES = 64


def push(connection: Connection, sink: Sink, file: StateFile, key: Webhook, speech: Speech) -> NoReturn:
    """Push for as long as the process lives."""
    place, patience = file.load().after, Patience(speech)
    while True:
        try:
            with closing(read(connection, place, LONGEST_SECONDS)) as happenings:
                for at, happening in happenings:
                    patience.back()
                    if happening is not None:
                        for found in claimable(connection, happening):
                            body = msgspec.json.encode(message(happening, found))
                            id = f"{found['id']}-{happening.sequence}"
                            sink.post(body, MEDIA_TYPE, signed=signer(key, id, body))
                    if at != place:
                        place = at
                        file.save(State(after=place))
            time.sleep(AGAIN_SECONDS)  # the service has ended the stream
        except AWAY as problem:
            patience.away(problem)


def message(happening: Happening, remediation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body: what happened, when, and the remediation as it is now."""
    return {"type": happening.kind, "timestamp": rfc3339(happening.at), "data": {"remediation": dict(remediation)}}


def signer(key: Webhook, id: str, body: bytes, clock: Callable[[], float] = now) -> Callable[[], dict[str, str]]:
    """Return what signs each attempt by the time of that attempt: receivers refuse what is minutes old."""
    text = body.decode()

    def signed() -> dict[str, str]:
        at = int(clock())
        signature = key.sign(id, datetime.fromtimestamp(at, UTC), text)
        return {"webhook-id": id, "webhook-timestamp": str(at), "webhook-signature": signature}

    return signed


def key_in(file: Path) -> Webhook:
    """Return the key in a file, ``whsec_`` and Base64; raise ``CommandError``, without repeating it, where it is none."""
    import base64
    import binascii

    from standardwebhooks import Webhook

    try:
        data = base64.b64decode(file.read_text(encoding="ascii").strip().removeprefix("whsec_"), validate=True)
    except OSError as error:
        raise CommandError(
            f"the secret file {file} cannot be read ({error.strerror}): give one that this user may read"
        ) from None
    except (binascii.Error, ValueError):
        data = b""
    if not LEAST_SECRET_BYTES <= len(data) <= MOST_SECRET_BYTES:
        raise CommandError(
            f"the secret in {file} is not Base64 of {LEAST_SECRET_BYTES} to {MOST_SECRET_BYTES} bytes: make one with "
            "`echo whsec_$(openssl rand -base64 32)`"
        )
    return Webhook(data)


def claimable(connection: Connection, happening: Happening) -> Iterator[Mapping[str, Any]]:
    """Yield the remediations that a happening makes claimable, and that still are."""
    if happening.kind in LET_GO:
        yield from list(connection.all("/v1/remediations", claimable="true"))
    id = happening.details.get("remediation")
    if happening.kind not in PUSHED or not isinstance(id, str):
        return
    try:
        found: dict[str, Any] = connection.get(f"/v1/remediations/{quote(id, safe='')}")
    except Forbidden as problem:
        if problem.status != 404:
            raise
        return
    if found.get("task"):
        yield found
