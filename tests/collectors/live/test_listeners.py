"""Only a listener of the job's own user is asked: another user's at the same port is reported, and hears nothing."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from collectors.live import Request
from collectors.live.dcgm import DcgmCollector
from collectors.live.ras import Ras
from collectors.live.recorder import Recorders
from collectors.live.sources import listeners
from collectors.live.sources.host import Host
from collectors.live.sources.listeners import ForeignListener, owners, refuse_strangers
from collectors.records import Unread
from tests.support.tailed_jobs import Node, of

STRANGER = 65534
LISTENS = """
import os, socket, sys
os.setuid(int(sys.argv[1]))
server = socket.create_server(("127.0.0.1", 0))
server.settimeout(60)
print(server.getsockname()[1], flush=True)
try:
    connection, _ = server.accept()
except OSError:
    sys.exit()
connection.settimeout(10)
print("heard", connection.recv(100), flush=True)
"""


@contextmanager
def stranger() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Let another user listen at a port."""
    if os.geteuid() != 0:
        pytest.skip("only root can start a process of another user")
    process = subprocess.Popen([sys.executable, "-S", "-c", LISTENS, str(STRANGER)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"127.0.0.1:{process.stdout.readline().strip()}", process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def heard(process: subprocess.Popen[str]) -> str:
    """Return what the stranger heard."""
    process.kill()
    assert process.stdout is not None
    return process.stdout.read()


@pytest.mark.system
def test_ras_of_another_user_is_not_asked(tmp_path: Path) -> None:
    """A listener of another user at the address of RAS is reported as refused and hears nothing; the run is no failure."""
    node = Node(tmp_path)
    node.rank(0)
    with stranger() as (address, process):
        node.options["ras"] = {"address": address}
        (found,) = of(node.run(Ras(node.host), "ras"), Unread)
        assert heard(process) == ""

    assert (found.outcome, found.job) == ("refused", "llama-8b")
    assert found.reason == f"not asked: user {STRANGER} listens there, not {os.geteuid()}"


@pytest.mark.system
def test_a_recorder_of_another_user_is_not_asked(tmp_path: Path) -> None:
    """A port that a job names is asked only where the job's own user listens: root's services are not asked for a job."""
    node = Node(tmp_path)
    with stranger() as (address, process):
        node.rank(0, labels={"FAULTHOUND_WORKER_SERVER": address})
        (found,) = of(node.run(Recorders(node.host), "recorder", Request("recorders")), Unread)
        assert heard(process) == ""

    assert f"not asked: user {STRANGER} listens there" in found.reason


@pytest.mark.system
def test_dcgm_is_a_systems_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the default address no ordinary user is taken for the exporter, and the message names the option that would."""
    with stranger() as (address, process):
        monkeypatch.setattr("collectors.live.dcgm.URL", f"http://{address}/metrics")
        with pytest.raises(ForeignListener, match=f"user {STRANGER}, who is no system user.*option url of dcgm"):
            list(DcgmCollector(Host("gpu-0001"))(None))
        assert heard(process) == ""


def test_owners_are_those_that_loopback_reaches() -> None:
    """Sockets on loopback and on any address count, IPv4 and IPv6, those of a network's own address do not."""
    for host, family in (("127.0.0.1", socket.AF_INET), ("0.0.0.0", socket.AF_INET), ("::1", socket.AF_INET6)):
        try:
            server = socket.create_server((host, 0), family=family)
        except OSError:  # no IPv6 here
            continue
        with server:
            assert owners(server.getsockname()[1]) == {os.geteuid()}
            refuse_strangers(f"127.0.0.1:{server.getsockname()[1]}", {os.geteuid()})
            with pytest.raises(ForeignListener, match="listens there, not 4711"):
                refuse_strangers(f"[::1]:{server.getsockname()[1]}", {4711})


TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:6D7C 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 1 1 0 100 0 0 10 0
   1: 0200000A:6D7C 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1002        0 2 1 0 100 0 0 10 0
   2: 0100007F:6D7C 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1003        0 3 1 0 100 0 0 10 0
"""
TABLE_6 = """\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when uid
   0: 0000000000000000FFFF00000100007F:6D7C 00000000000000000000000000000000:0000 0A 0:0 00:0 0  1004        0 4 1 0
   1: 00000000000000000000000000000000:6D7C 00000000000000000000000000000000:0000 0A 0:0 00:0 0  1005        0 5 1 0
   2: 000080FE00000000000000000100007F:6D7C 00000000000000000000000000000000:0000 0A 0:0 00:0 0  1006        0 6 1 0
"""


@pytest.mark.skipif(sys.byteorder != "little", reason="the table is of a little-endian machine")
def test_a_table_is_read_as_the_kernel_writes_it(tmp_path: Path) -> None:
    """Addresses are little-endian words; a node's other addresses and connections are no listeners of loopback."""
    (tmp_path / "tcp").write_text(TABLE)
    assert owners(28028, tmp_path) == {1001}
    (tmp_path / "tcp6").write_text(TABLE_6)

    assert owners(28028, tmp_path) == {1001, 1004, 1005}
    assert owners(28029, tmp_path) == set()
    assert listeners.owners(28028, tmp_path / "absent") == set()
