"""What a scheduler can claim, pushed to it as a signed webhook (Standard Webhooks: HMAC-SHA256).

A push is a notice, not an order: it holds the remediation as it is now, and the receiver claims it over REST before it acts. So
a push that arrives twice, late, or from somewhere else does nothing by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from collectors.records.printable import printable_json
from service.adapters import sink
from service.adapters.following import StateFile, StatePath, follow
from service.client import Connection, Say, StreamEvent, UserError, resource
from service.clock import now
from service.reports.instants import rfc3339

if TYPE_CHECKING:
    from standardwebhooks import Webhook

MEDIA_TYPE = "application/json"
CLAIMABLE_AFTER = frozenset(
    {"remediation_approved", "remediation_released", "remediation_undo_asked", "remediation_undo_failed"}
)
"""After these the remediation that they name may be claimable."""
ALL_CLAIMABLE_AFTER = frozenset({"hold_expired", "thawed", "breaker_closed"})
"""After these every remediation that waited may be claimable."""
LEAST_SECRET_BYTES, MOST_SECRET_BYTES = 24, 64  # of the specification

SecretFile = Annotated[
    Path, typer.Option(metavar="FILE", help="File that holds the secret to sign with: whsec_ and Base64.")
]


def run(
    connection: Connection, say: Say, to_url: sink.To, secret_file: SecretFile,
    state: StatePath = Path("faulthound-webhook.json"), sink_token_file: sink.TokenFile = None,
) -> None:  # fmt: skip
    """Push what can be claimed to a scheduler, signed (Standard Webhooks), until it is stopped.

    A push is a notice: the receiver claims the remediation over REST before it acts. Each is sent at
    least once, always with the same webhook-id.

    \b
    Examples:
      faulthound adapter webhook --to https://scheduler.example/hook --secret-file hook.secret --token-file read.token
    """
    key = key_in(secret_file)
    with sink.opened(to_url, sink_token_file, connection, say) as receiver:

        def push(event: StreamEvent) -> None:
            for found in claimable(connection, event):
                body, id = (
                    printable_json(msgspec.json.encode(message(event, found))).encode(),
                    f"{found['id']}-{event.sequence}",
                )
                receiver.post(body, MEDIA_TYPE, signed=signer(key, id, body))

        follow(connection, StateFile(state), say, push)


def message(event: StreamEvent, remediation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body: what happened, when, and the remediation as it is now."""
    return {
        "type": event.kind,
        "timestamp": rfc3339(event.at),
        "data": {"remediation": dict(remediation)},
    }


def signer(key: Webhook, id: str, body: bytes, clock: Callable[[], float] = now) -> Callable[[], dict[str, str]]:
    """Return what signs each attempt with the time of that attempt: receivers refuse an old signature."""
    text = body.decode()

    def signed() -> dict[str, str]:
        at = int(clock())
        signature = key.sign(id, datetime.fromtimestamp(at, UTC), text)
        return {"webhook-id": id, "webhook-timestamp": str(at), "webhook-signature": signature}

    return signed


def key_in(file: Path) -> Webhook:
    """Return the key in a file, ``whsec_`` and Base64; raise ``UserError``, without repeating it, where it is none."""
    import base64
    import binascii

    from standardwebhooks import Webhook

    try:
        data = base64.b64decode(file.read_text(encoding="ascii").strip().removeprefix("whsec_"), validate=True)
    except OSError as error:
        raise UserError(
            f"the secret file {file} cannot be read ({error.strerror}): give one that this user may read"
        ) from None
    except (binascii.Error, ValueError):
        data = b""
    if not LEAST_SECRET_BYTES <= len(data) <= MOST_SECRET_BYTES:
        raise UserError(
            f"the secret in {file} is not Base64 of {LEAST_SECRET_BYTES} to {MOST_SECRET_BYTES} bytes: make one with "
            "`echo whsec_$(openssl rand -base64 32)`"
        )
    return Webhook(data)


def claimable(connection: Connection, event: StreamEvent) -> Iterator[Mapping[str, Any]]:
    """Yield the remediations that an event makes claimable, and that still are."""
    if event.kind in ALL_CLAIMABLE_AFTER:
        yield from list(connection.all("/v1/remediations", claimable="true"))
    id = event.details.get("remediation")
    if event.kind in CLAIMABLE_AFTER and isinstance(id, str):
        found = connection.find(resource("remediations", id))
        if found is not None and found.get("task"):
            yield found
