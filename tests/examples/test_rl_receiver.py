"""The receiver of the example: it takes what is signed with its secret, lately, and nothing else."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from standardwebhooks import Webhook

from tests.support.served import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "examples" / "rl_job"))

from receiver import OLD_SECONDS, Receiver

SECRET = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_only_what_is_signed_lately_is_taken(tmp_path: Path) -> None:
    """Another body, another secret, an old signature and none are refused."""
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n")
    receiver = Receiver("http://127.0.0.1:1", "", "rl", file, lambda _role, _which: {}, lambda: None)
    body = b'{"type": "remediation_approved"}'

    def headers(secret: str = SECRET, ago: float = 0.0) -> dict[str, str]:
        at = datetime.now(UTC) - timedelta(seconds=ago)
        signature = Webhook(secret).sign("rem-1", at, body.decode())
        return {"webhook-id": "rem-1", "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": signature}

    assert receiver.accepts(headers(), body)
    assert not receiver.accepts(headers(), body + b" ")
    assert not receiver.accepts(headers(SECRET[:-4] + "AAAA"), body)
    assert not receiver.accepts(headers(ago=OLD_SECONDS + 5), body)
    assert not receiver.accepts({}, body)
    assert not receiver.accepts(headers() | {"webhook-signature": "v1,é"}, body)
    assert not receiver.accepts(headers() | {"webhook-timestamp": "9" * 5_000}, body)
