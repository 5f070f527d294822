"""What a rank's main thread waits on, by real sockets: the process at the other end, its state, and what that waits for."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

import pytest

from collectors.live.sources.host import Host
from collectors.live.sources.ranks import TrainingProcess
from collectors.live.sources.socket_waits import SocketLook
from collectors.records import Hop, SocketWait

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(os.geteuid() != 0, reason="another process's system call is shown to root"),
]

SERVER = """
import socket, sys, time
server = socket.socket(socket.AF_UNIX) if sys.argv[1:2] == ["unix"] else socket.create_server(("127.0.0.1", 0))
if sys.argv[1:2] == ["unix"]:
    server.bind(sys.argv[2]); server.listen(); print(sys.argv[2], flush=True)
else:
    print(server.getsockname()[1], flush=True)
taken = [server.accept()[0] for _ in range(int(sys.argv[-1]))]
time.sleep(600)
"""
PROXY = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
client, _ = server.accept()
socket.create_connection(("127.0.0.1", int(sys.argv[1]))).recv(10)
"""
CALLS = {
    "recv": "socket.create_connection(where).recv(10)",
    "recv with a timeout": "socket.create_connection(where, timeout=600).recv(10)",
    "file": "socket.create_connection(where).makefile('rb').readline()",
    "select": "s = socket.create_connection(where); select.select([s], [], [], 600)",
    "epoll": "s = socket.create_connection(where); q = selectors.DefaultSelector(); q.register(s, 1); q.select(600)",
    "urlopen": "urllib.request.urlopen(f'http://127.0.0.1:{where[1]}/')",
    "unix": "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.recv(10)",
}
CLIENT = """
import select, selectors, socket, sys, urllib.request
where = ("127.0.0.1", int(sys.argv[1]) if sys.argv[1].isdigit() else 0)
print("begun", flush=True)
{call}
"""


class Programs:
    """Programs that end with the test."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[str]] = []

    def start(self, program: str, *words: str, before: Sequence[str] = ()) -> tuple[subprocess.Popen[str], str]:
        """Start one; return it and its first line."""
        made = subprocess.Popen(
            [*before, sys.executable, "-c", program, *words],
            stdout=subprocess.PIPE,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        self.started.append(made)
        assert made.stdout is not None
        return made, made.stdout.readline().strip()


@pytest.fixture
def programs() -> Iterator[Programs]:
    """Start programs, and leave none behind."""
    made = Programs()
    yield made
    for one in made.started:
        one.kill()
        one.wait()
        assert one.stdout is not None
        one.stdout.close()


class Node(Host):
    """This machine, where these processes are the ranks of a job."""

    pids: tuple[int, ...] = ()

    def training(self) -> tuple[TrainingProcess, ...]:
        """Return them."""
        return tuple(TrainingProcess(pid, rank, "run") for rank, pid in enumerate(self.pids))


def waits(*pids: int, candidates: bool = False, accepted: bool = True) -> tuple[SocketWait, ...]:
    """Look until the first of these ranks is seen to wait, and where it will be, until it is accepted."""
    node = Node("gpu-1")
    node.pids = pids
    for _ in range(400):
        found = SocketLook(node).waits(node.training()[0], pids[0], candidates=candidates)
        if found and (not accepted or all(hop.accepted for one in found for hop in one.hops)):
            return found
        time.sleep(0.05)
    return found


def last(found: Sequence[SocketWait]) -> Hop:
    """Return where the one chain ends."""
    [one] = found
    return one.hops[-1]


@pytest.mark.parametrize("call", [name for name in CALLS if name != "unix"])
def test_a_blocked_call_names_the_process_at_the_other_end(programs: Programs, call: str) -> None:
    """Whatever call the interpreter makes of it, the connection leads to the server's process."""
    server, port = programs.start(SERVER, "1")
    rank, _ = programs.start(CLIENT.format(call=CALLS[call]), port)

    found = last(waits(rank.pid))

    assert (found.pid, found.remote, found.accepted) == (server.pid, f"127.0.0.1:{port}", True)
    assert found.process_state == "S"
    assert found.rank is None


def test_a_unix_socket_leads_to_its_process(programs: Programs, tmp_path: object) -> None:
    """The kernel pairs the two ends of a unix socket by their inodes."""
    server, path = programs.start(SERVER, "unix", f"{tmp_path}/s", "1")
    rank, _ = programs.start(CLIENT.format(call=CALLS["unix"]), path)

    found = last(waits(rank.pid))

    assert (found.pid, found.remote) == (server.pid, path)


def test_a_unix_socket_that_nobody_has_accepted_yet_says_so(programs: Programs, tmp_path: object) -> None:
    """It is in the listener's queue: the process that will take it is not known yet."""
    _, path = programs.start(SERVER, "unix", f"{tmp_path}/s", "0")
    rank, _ = programs.start(CLIENT.format(call=CALLS["unix"]), path)

    found = last(waits(rank.pid, accepted=False))

    assert (found.pid, found.accepted) == (None, False)


def test_a_stopped_server_that_accepted_nothing_is_the_listener(programs: Programs) -> None:
    """A connection that lies in the queue has no process yet: it is the listener's, whose state is shown."""
    server, port = programs.start(SERVER, "1")
    server.send_signal(signal.SIGSTOP)
    rank, _ = programs.start(CLIENT.format(call=CALLS["recv"]), port)

    found = last(waits(rank.pid, accepted=False))

    assert (found.pid, found.process_state, found.accepted) == (server.pid, "T", False)


def test_a_chain_goes_on_through_a_process_that_waits_itself(programs: Programs) -> None:
    """A proxy that waits for its own server is passed through."""
    server, port = programs.start(SERVER, "1")
    proxy, front = programs.start(PROXY, port)
    rank, _ = programs.start(CLIENT.format(call=CALLS["recv"]), front)
    for _ in range(400):
        [one] = waits(rank.pid)
        if len(one.hops) > 1:
            break
        time.sleep(0.05)

    assert [hop.pid for hop in one.hops] == [proxy.pid, server.pid]


def test_another_rank_at_the_other_end_is_named_as_one(programs: Programs) -> None:
    """A rank that serves another is known by its number, and its own stack shows what it does."""
    server, port = programs.start(SERVER, "1")
    rank, _ = programs.start(CLIENT.format(call=CALLS["recv"]), port)

    found = last(waits(rank.pid, server.pid))

    assert (found.rank, found.job) == (1, "run")


def test_a_thread_elsewhere_has_candidates_on_request_only(programs: Programs) -> None:
    """A client library that waits in a condition of its own leaves the process's connections to choose from."""
    server, port = programs.start(SERVER, "1")
    asleep = "s = socket.create_connection(where); import time; time.sleep(600)"
    rank, _ = programs.start(CLIENT.format(call=asleep), port)
    node = Node("gpu-1")
    node.pids = (rank.pid,)

    assert SocketLook(node).waits(node.training()[0], rank.pid, candidates=False) == ()
    [one] = waits(rank.pid, candidates=True)
    assert (one.call, one.hops[0].pid) == ("", server.pid)


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_a_rank_in_a_network_of_its_own_is_looked_at_there(programs: Programs) -> None:
    """A pod's loopback is not the node's: the same address there is another server."""
    script = f"import subprocess, sys\nsubprocess.run(['ip', 'link', 'set', 'lo', 'up'])\nexec({SERVER!r})"
    server, port = programs.start(script, "1", before=("unshare", "-n"))
    enter = ("nsenter", "-t", str(server.pid), "-n")
    rank, _ = programs.start(CLIENT.format(call=CALLS["recv"]), port, before=enter)

    assert last(waits(rank.pid)).pid == server.pid


def test_connections_to_other_addresses_are_reported_with_their_processes(programs: Programs) -> None:
    """What another node's rank may wait for is known by the pair of addresses, seen from its other end."""
    far = SERVER.replace('("127.0.0.1", 0)', '("127.0.0.2", 0)')
    server, port = programs.start(far, "1")
    client = CLIENT.format(call="socket.create_connection(('127.0.0.2', where[1])).recv(10)")
    rank, _ = programs.start(client, port)
    [one] = waits(rank.pid)

    rows = {row.pid: row.connections for row in SocketLook(Node("gpu-2")).elsewhere()}

    assert f"{one.hops[0].remote}>{one.hops[0].local}" in rows[server.pid]
