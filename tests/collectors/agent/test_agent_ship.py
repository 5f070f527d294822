"""Batches reach a real HTTP service once each, oldest first, through absence, refusals, lost answers and TLS."""

from __future__ import annotations

import errno
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

import pytest

from collectors.agent.client import Client, Unreachable
from collectors.agent.segment import Entry
from collectors.agent.settings import Misconfigured, Settings
from collectors.agent.ship import Shipper
from collectors.agent.spool import Batch, Spool
from collectors.live.sources.clock import NodeClock
from collectors.records import LogEvent, block
from tests.support.agent_service import AgentService, Reply, agent_service
from tests.support.bounds import in_time

pytestmark = pytest.mark.system

CLOCK = NodeClock()


def settings_of(service: AgentService | str, **more: object) -> Settings:
    """Settings for this service."""
    url = service if isinstance(service, str) else service.url
    return Settings(service=url, node="gpu-0001", **more)  # type: ignore[arg-type]


def spool_with(folder: Path, *numbers: int) -> Spool:
    """A spool with a batch a number."""
    spool = Spool(folder, "gpu-0001", CLOCK, bytes_max=1 << 26, seal_seconds=60.0)
    for number in numbers:
        put(spool, number)
    return spool


def put(spool: Spool, number: int) -> None:
    """Add one batch."""
    spool.add(Entry(records=[block.encode([LogEvent(event="x", sequence=number)])]))
    spool.seal(now=True)


@contextmanager
def shipping(spool: Spool, settings: Settings) -> Iterator[Shipper]:
    """Ship a spool for a ``with`` block."""
    client = Client(settings, CLOCK)
    shipper = Shipper(spool, client, CLOCK, settings.node)
    shipper.start()
    yield shipper
    shipper.finish(5.0)
    client.close()


def numbers(service: AgentService) -> list[int]:
    """Return what came, in order."""
    return [event.sequence for event in service.records(LogEvent)]


def test_batches_come_oldest_first_and_leave_the_spool(tmp_path: Path) -> None:
    """Every batch arrives in the order of its making with the contract's headers, over one connection, and is deleted."""
    with agent_service() as service:
        spool = spool_with(tmp_path, 1, 2, 3)
        with shipping(spool, settings_of(service, token="fh_abc")) as shipper:
            assert service.wait(lambda: len(service.batches) == 3)
        assert numbers(service) == [1, 2, 3]
        _, path, headers = service.requests[0]

    assert path == "/v1/records"
    assert headers["Content-Type"] == "application/vnd.faulthound.block"
    assert headers["Authorization"] == "Bearer fh_abc"
    assert (headers["Faulthound-Node"], len(headers["Faulthound-Batch"])) == ("gpu-0001", 21)
    assert float(headers["Faulthound-Sent-At"]) == pytest.approx(time.time(), abs=30)
    assert headers["User-Agent"].startswith("faulthound-agent/")
    assert spool.held() == (0, 0)
    assert shipper.shipped.batches == 3
    assert abs(shipper.shipped.clock_offset_seconds or 9) <= 1.5


def test_an_absent_service_loses_nothing(tmp_path: Path) -> None:
    """Batches that were made while the service was away arrive when it is back, each once and in order."""
    with agent_service() as service:
        port = service.port
    spool = spool_with(tmp_path, 1)
    with shipping(spool, settings_of(f"http://127.0.0.1:{port}")) as shipper:
        deadline = time.monotonic() + 60
        while not shipper.shipped.trouble and time.monotonic() < deadline:
            time.sleep(0.02)
        assert "refused" in shipper.shipped.trouble
        put(spool, 2)
        with agent_service(port=port) as back:
            assert back.wait(lambda: len(back.batches) == 2)
            assert numbers(back) == [1, 2]
            assert back.duplicates == 0


def test_a_lost_answer_repeats_the_same_batch(tmp_path: Path) -> None:
    """A batch that was taken but whose answer was an error is sent again under its id, and the next only after it."""
    with agent_service() as service:
        service.script.extend([Reply(500, take=True), Reply(502, take=True)])
        with shipping(spool_with(tmp_path, 1, 2), settings_of(service)):
            assert service.wait(lambda: len(service.batches) == 2)

        assert service.duplicates == 2
        assert numbers(service) == [1, 2]


@pytest.mark.parametrize("status", [400, 403, 409, 413, 415, 422])
def test_a_final_refusal_puts_the_batch_aside(tmp_path: Path, status: int) -> None:
    """A batch that the service will never take is put aside and counted, and the one behind it is taken."""
    with agent_service() as service:
        service.script.append(Reply(status, body={"detail": "not yours"}))
        spool = spool_with(tmp_path, 1, 2)
        with shipping(spool, settings_of(service)):
            assert service.wait(lambda: len(service.batches) == 1)

        assert numbers(service) == [2]
    assert spool.state.refused_batches == 1
    assert len(list((tmp_path / "refused").iterdir())) == 1


@pytest.mark.parametrize("status", [404, 408, 429, 500, 503])
def test_retry_after_is_obeyed(tmp_path: Path, status: int) -> None:
    """A service that says when to come again is left alone until then; the batch stays and nothing is counted as lost."""
    with agent_service() as service:
        service.script.append(Reply(status, {"Retry-After": "1"}))
        spool = spool_with(tmp_path, 1)
        began_at = time.monotonic()
        with shipping(spool, settings_of(service)):
            assert service.wait(lambda: len(service.batches) == 1)
        waited_seconds = time.monotonic() - began_at

    assert waited_seconds >= 1.0
    assert in_time(waited_seconds, 4.0)
    assert spool.state.refused_batches == 0


def test_retry_after_as_a_date_is_bounded(tmp_path: Path) -> None:
    """A Retry-After of a date counts from the service's own clock, and one a year away is cut to five minutes."""
    with agent_service() as service:
        client = Client(settings_of(service), CLOCK)
        dates = {"Date": formatdate(1_000_000, usegmt=True)}
        service.script.append(Reply(503, {**dates, "Retry-After": formatdate(1_000_060, usegmt=True)}))
        service.script.append(Reply(503, {**dates, "Retry-After": formatdate(40_000_000, usegmt=True)}))
        service.script.append(Reply(503, {"Retry-After": "soon"}))
        answers = [client.call("POST", "/v1/records", body=b"x").retry_after_seconds for _ in range(3)]
        client.close()

    assert answers == [60.0, 300.0, None]


def test_a_new_token_is_picked_up(tmp_path: Path) -> None:
    """A batch that an outdated token could not deliver stays, and goes out once the token's file holds another."""
    token_file = tmp_path / "token"
    token_file.write_text("fh_old\n")
    with agent_service() as service:
        service.token = "fh_new"
        spool = spool_with(tmp_path, 1)
        with shipping(spool, settings_of(service, token_file=token_file)) as shipper:
            assert service.wait(lambda: bool(shipper.shipped.trouble))
            assert shipper.shipped.trouble.startswith("401")
            token_file.write_text("fh_new\n")
            assert service.wait(lambda: len(service.batches) == 1)

    assert spool.state.refused_batches == 0


def test_rejected_records_are_counted(tmp_path: Path) -> None:
    """Records of an acknowledged batch that the service would not take are counted, not sent again."""
    with agent_service() as service:
        service.script.append(Reply(202, body={"rejected": [{"index": 0, "detail": "no"}]}, take=True))
        spool = spool_with(tmp_path, 1)
        with shipping(spool, settings_of(service)):
            assert service.wait(lambda: spool.held() == (0, 0))

    assert spool.state.rejected_records == 1


def test_a_batch_that_the_disk_lost_is_counted(tmp_path: Path) -> None:
    """A batch file that is gone costs itself, counted as dropped, and holds up nothing."""
    with agent_service() as service:
        spool = spool_with(tmp_path, 1, 2)
        min(tmp_path.glob("*.fhb")).unlink()
        with shipping(spool, settings_of(service)):
            assert service.wait(lambda: len(service.batches) == 1)

        assert numbers(service) == [2]
    assert (spool.state.dropped.batches, spool.state.dropped.records) == (1, 1)


def test_a_batch_that_cannot_be_read_now_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the agent is out of descriptors or memory a batch is tried again, and none is dropped."""
    failures = [errno.EMFILE, errno.ENOMEM]
    read = Batch.read

    def short_of_something(batch: Batch) -> bytes:
        if failures:
            raise OSError(failures.pop(), "short of something")
        return read(batch)

    monkeypatch.setattr(Batch, "read", short_of_something)
    with agent_service() as service:
        spool = spool_with(tmp_path, 1, 2)
        with shipping(spool, settings_of(service)):
            assert service.wait(lambda: len(service.batches) == 2)

        assert numbers(service) == [1, 2]
    assert spool.state.dropped.batches == 0


def test_an_answer_without_end_is_cut(tmp_path: Path) -> None:
    """An answer of more than a megabyte is an error of the service, not memory of the agent."""
    with agent_service() as service:
        service.script.append(Reply(202, body={"rejected": ["x" * (2 << 20)]}, take=True))
        client = Client(settings_of(service), CLOCK)
        with pytest.raises(Unreachable, match="more than 1,048,576 bytes"):
            client.call("POST", "/v1/records", body=b"x")
        client.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate authority of our own with a certificate for 127.0.0.1, made by openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: no certificate can be made here")
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "rsa:2048", "-nodes")
    usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test", "-days", "2", *usage)
    openssl("req", *key, "-keyout", "service.key", "-out", "service.csr", "-subj", "/CN=127.0.0.1")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
    openssl("x509", "-req", "-in", "service.csr", *signed, "-out", "service.pem")
    return folder


def test_tls_with_a_ca_file(tmp_path: Path, authority: Path) -> None:
    """A service whose certificate our own authority signed is trusted with ca_file, and not without it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "service.pem", authority / "service.key")
    with agent_service(tls=context) as service:
        spool = spool_with(tmp_path, 1)
        with shipping(spool, settings_of(service)) as shipper:
            assert service.wait(lambda: bool(shipper.shipped.trouble))
        assert "CERTIFICATE_VERIFY_FAILED" in shipper.shipped.trouble
        assert service.batches == {}
        with shipping(spool, settings_of(service, ca_file=authority / "ca.pem")):
            assert service.wait(lambda: len(service.batches) == 1)


def test_a_ca_file_that_is_none_is_reported() -> None:
    """A ca_file that is missing or no certificate is an error at the start that names the file."""
    with pytest.raises(Misconfigured, match=r"/srv/none\.pem"):
        Client(Settings(service="https://127.0.0.1:1", ca_file=Path("/srv/none.pem")), CLOCK)


def test_a_service_that_does_not_answer_is_named_by_its_address() -> None:
    """In the log of an agent that may have been given a wrong one; without what its URL may hold of a login."""
    client = Client(Settings(service="http://ann:secret@127.0.0.1:1/base", node="gpu-0001"), CLOCK)
    with pytest.raises(Unreachable, match=r"^http://127\.0\.0\.1:1: ConnectionRefusedError: "):
        client.call("GET", "/healthz")
