"""The signed webhook: a scheduler is informed of what it can claim, by who has the secret and nobody else."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from queue import Queue

import httpx
import pytest
from msgspec.structs import replace
from standardwebhooks import Webhook, WebhookVerificationError

from analyzers.remediation.messages import (
    AddHold,
    Approve,
    AskUndo,
    Begin,
    Cancel,
    Complete,
    ExpireHold,
    SetFreeze,
    Take,
)
from analyzers.remediation.types import Freeze, Hold
from service.adapters import webhook
from service.adapters.webhook import key_in, message, signer
from service.client import StreamEvent, UserError
from service.clock import now
from tests.support.remediation_rows import NODES, PLAN_ID, cleared, plan, propose, seeded
from tests.support.served import Client
from tests.support.sinks import adapter

RECEIVER = Path(__file__).resolve().parents[3] / "examples" / "webhook_receiver.py"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="
SECONDS = 60.0


@pytest.fixture
def client(running_service: Client) -> Client:
    """Return a client in whose service one eviction is proposed."""
    cleared(running_service.service.database)
    seeded(running_service.service.database, running_service.service.remedies)
    return running_service


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Return the file of the secret."""
    file = tmp_path / "hook.secret"
    file.write_text(f"{SECRET}\n")
    return file


class Lines:
    """What the page's receiver prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._lines: Queue[str] = Queue()
        assert process.stdout is not None
        self.url = f"http://127.0.0.1:{process.stdout.readline().strip()}"
        threading.Thread(target=self._read, args=(process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.put(line.strip())

    def next(self) -> str:
        """Return the next line."""
        return self._lines.get(timeout=SECONDS)

    @property
    def silent(self) -> bool:
        """Whether there is no other."""
        return self._lines.empty()


@contextmanager
def receiving(secret: Path) -> Iterator[Lines]:
    """Run the example of a receiver."""
    process = subprocess.Popen(
        [sys.executable, str(RECEIVER), str(secret)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        yield Lines(process)
    finally:
        process.kill()
        process.wait(timeout=SECONDS)
        process.stdout.close()  # type: ignore[union-attr]


@pytest.mark.system
def test_a_scheduler_is_told_what_it_can_claim(client: Client, secret: Path, tmp_path: Path) -> None:
    """Approvals and wished undoings reach the example's receiver, signed; what is not claimable any more does not."""
    remedies = client.service.remedies
    start = json.dumps({"after": client.get("/v1/now").json()["stream_after"]})
    (tmp_path / "webhook.json").write_text(start)
    gone = "rem-ffffffffffff"
    propose(remedies, replace(plan(gone), incident="inc-ffffffffffff", job="llama-8b"))
    remedies.handle(Approve(id=gone, by="ann"), now())
    remedies.handle(Cancel(id=gone, by="ann", reason="a mistake"), now())
    remedies.handle(Approve(id=PLAN_ID, by="ann"), now())

    with (
        receiving(secret) as received,
        adapter("webhook", client.url, received.url, tmp_path, "--secret-file", str(secret)),
    ):
        assert received.next() == f"remediation_approved {PLAN_ID} do"
        remedies.handle(Take(id=PLAN_ID, by="slurm"), now())
        remedies.handle(Begin(id=PLAN_ID, by="slurm", token=1), now())
        remedies.handle(Complete(id=PLAN_ID, by="slurm", token=1), now())
        remedies.handle(AskUndo(id=PLAN_ID, by="ann", reason="its test passed"), now())
        assert received.next() == f"remediation_undo_asked {PLAN_ID} undo"
        assert received.silent


@pytest.mark.system
def test_what_waited_for_a_hold_or_a_freeze_is_pushed_when_that_ends(
    client: Client, secret: Path, tmp_path: Path
) -> None:
    """Approved while its node is held: it is reported again when the hold ends, and again when a freeze of later does."""
    remedies, at = client.service.remedies, now()
    hold = Hold(id="hold-1", by="ann", reason="a test", made_at=at, until=at + 3_600.0, node=NODES[1])
    remedies.handle(AddHold(hold=hold), now())
    remedies.handle(Approve(id=PLAN_ID, by="ann"), now())
    start = json.dumps({"after": client.get("/v1/now").json()["stream_after"]})
    (tmp_path / "webhook.json").write_text(start)

    with (
        receiving(secret) as received,
        adapter("webhook", client.url, received.url, tmp_path, "--secret-file", str(secret)),
    ):
        remedies.handle(ExpireHold(id="hold-1", by="ann"), now())
        assert received.next() == f"hold_expired {PLAN_ID} do"
        freeze = Freeze(by="ann", reason="power", at=now())
        remedies.handle(SetFreeze(freeze=freeze, by="ann", reason="power"), now())
        remedies.handle(SetFreeze(freeze=None, by="ann", reason="over"), now())
        assert received.next() == f"thawed {PLAN_ID} do"
        assert received.silent


def test_strangers_are_refused(secret: Path) -> None:
    """The page's receiver takes nothing that is unsigned, signed with another secret, changed on the way, or old."""
    body = json.dumps({"type": "remediation_approved", "data": {"remediation": {"id": PLAN_ID, "task": "do"}}}).encode()
    mine, other = key_in(secret), Webhook(b"x" * 32)
    with receiving(secret) as received:
        answers = {
            "unsigned": httpx.post(received.url, content=body),
            "another secret": httpx.post(received.url, content=body, headers=signer(other, "m1", body)()),
            "changed": httpx.post(received.url, content=body + b" ", headers=signer(mine, "m1", body)()),
            "old": httpx.post(received.url, content=body, headers=signer(mine, "m1", body, lambda: now() - 400)()),
            "odd": httpx.post(
                received.url, content=body, headers=signer(mine, "m1", body)() | {"webhook-signature": "x"}
            ),
        }
        good = httpx.post(received.url, content=body, headers=signer(mine, "m1", body)())

        assert {what: answer.status_code for what, answer in answers.items()} == dict.fromkeys(answers, 401)
        assert good.status_code == 204
        assert received.next() == f"remediation_approved {PLAN_ID} do"
        assert received.silent


def test_each_attempt_is_signed_anew(secret: Path) -> None:
    """An attempt an hour after the first has the same id and a signature of its own moment, which verifies."""
    clock = [now() - 3_600]
    sign = signer(key_in(secret), "rem-0123456789ab-7", b"{}", lambda: clock[0])
    first = sign()
    clock[0] += 3_600
    second = sign()

    assert first["webhook-id"] == second["webhook-id"]
    assert int(second["webhook-timestamp"]) - int(first["webhook-timestamp"]) == 3_600
    Webhook(SECRET).verify(b"{}", second)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(b"{}", first)


def test_the_signature_is_the_published_one(secret: Path) -> None:
    """A message is signed as HMAC-SHA256 of id, time and body, joined with dots: computed here by hand."""
    headers = signer(key_in(secret), "m1", '{"ü":1}'.encode(), lambda: 1_795_230_857.9)()

    signed = 'm1.1795230857.{"ü":1}'.encode()
    digest = hmac.new(base64.b64decode(SECRET.removeprefix("whsec_")), signed, hashlib.sha256).digest()
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
    assert headers["webhook-timestamp"] == str(int(datetime(2026, 11, 21, 3, 14, 17, tzinfo=UTC).timestamp()))


def test_a_message_says_what_happened(secret: Path) -> None:
    """A body has the kind, its time as RFC 3339 and the remediation."""
    happening = StreamEvent(
        sequence=7, at=1_795_230_857.0, kind="remediation_approved", details={"remediation": PLAN_ID}
    )

    assert message(happening, {"id": PLAN_ID}) == {
        "type": "remediation_approved", "timestamp": "2026-11-21T03:14:17.000Z", "data": {"remediation": {"id": PLAN_ID}},
    }  # fmt: skip


@pytest.mark.parametrize("text", ["", "whsec_====", "short", "whsec_not base64!", "whsec_" + "A" * 20, "A" * 200, "é"])
def test_a_bad_secret_is_refused(tmp_path: Path, text: str) -> None:
    """What is no Base64 of 24 to 64 bytes is refused, and not repeated."""
    file = tmp_path / "secret"
    file.write_text(text)

    with pytest.raises(UserError, match="Base64 of 24 to 64 bytes") as refused:
        key_in(file)
    assert not text or text not in str(refused.value)


def test_a_missing_secret_is_refused(tmp_path: Path) -> None:
    """A secret file that is not there is named."""
    with pytest.raises(UserError, match="nothing"):
        webhook.key_in(tmp_path / "nothing")
