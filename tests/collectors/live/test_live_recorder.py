"""Flight recorders on demand: over real sockets and pipes, from a real torch process, from processes that misbehave."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import pwd
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.live import NothingToCollect, Request
from collectors.live.recorder import ASKING_SECONDS, Recorders
from collectors.live.sources.recorder_endpoints import endpoints_of
from collectors.records import FlightRecorderDump, Unread
from tests.support.bounds import in_time
from tests.support.recorder_servers import ASKED, DUMP, ENTRY, Behaviour, http, serving, silent, stem_of
from tests.support.tailed_jobs import Node, of

pytestmark = pytest.mark.system
EMPTY = {"version": "2.10", "pg_config": {}, "pg_status": {}}
TORCH = """
    import sys, time, torch, torch.distributed as dist
    server = torch._C._distributed_c10d._WorkerServer(sys.argv[1])
    other = torch._C._distributed_c10d._WorkerServer("127.0.0.1", 0)
    dist.init_process_group("gloo", "file://" + sys.argv[2], rank=0, world_size=1)
    for _ in range(3):
        dist.all_reduce(torch.zeros(4))
    print(other.port, flush=True)
    time.sleep(120)
"""


def saying(data: bytes) -> Behaviour:
    """Say the same whatever comes."""

    def behave(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(data)

    return behave


def flooding(connection: socket.socket) -> None:
    """Answer without an end."""
    connection.recv(65536)
    connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
    while True:
        connection.sendall(b"{" * (1 << 20))


def dripping(connection: socket.socket) -> None:
    """Answer a byte at a time."""
    connection.recv(65536)
    for letter in b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 10_000:
        connection.sendall(bytes([letter]))
        time.sleep(0.05)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """Return a node with an empty tree."""
    return Node(tmp_path)


@pytest.fixture(scope="module")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[str], Path, int]]:
    """Give a real torch process with a worker server at a path and one at a port."""
    folder = tmp_path_factory.mktemp("torch")
    command = [sys.executable, "-c", textwrap.dedent(TORCH), str(folder / "w.sock"), str(folder / "store")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process, folder / "w.sock", int(process.stdout.readline())
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.system
def test_a_real_worker_server_is_asked(node: Node, trainer: tuple[subprocess.Popen[str], Path, int]) -> None:
    """torch's own worker server gives the dump of its rank, with job, attempt, pid and the instant of the answer."""
    process, path, _ = trainer
    node.rank(3, pid=process.pid, real=True, labels={"TORCH_WORKER_SERVER_SOCKET": str(path)})

    (dump,) = of(node.run(Recorders(node.host), "recorder", ASKED), FlightRecorderDump)

    assert (dump.rank, dump.job, dump.attempt, dump.role, dump.pid) == (3, "llama-8b", 2, "trainer", process.pid)
    assert (dump.at, dump.count >= 3, "gloo:all_reduce" in dump.strings) == (node.clock.at, True, True)


def test_listening_sockets_are_found(node: Node, trainer: tuple[subprocess.Popen[str], Path, int]) -> None:
    """A worker server that no variable names is found by its UNIX socket, one at a port where the option allows it."""
    process, path, port = trainer
    node.rank(0, pid=process.pid, real=True)

    (found,) = of(node.run(Recorders(node.host), "recorder", ASKED), FlightRecorderDump)
    assert found.source == f"rank 0: worker server {path}/handler/fr_trace_json"

    node.options["recorder"] = {"listening": True}
    assert f"127.0.0.1:{port}" in [door.address for door in endpoints_of(node.host, node.host.processes[0])]


def test_a_port_gives_the_dump(node: Node, trainer: tuple[subprocess.Popen[str], Path, int]) -> None:
    """A worker server at a port of this node is asked when a label names it."""
    process, _, port = trainer
    node.rank(0, pid=process.pid, labels={"FAULTHOUND_WORKER_SERVER": f"127.0.0.1:{port}"})

    (dump,) = of(node.run(Recorders(node.host), "recorder", ASKED), FlightRecorderDump)

    assert dump.source == f"rank 0: worker server 127.0.0.1:{port}/handler/fr_trace_json"


@pytest.mark.system
def test_a_stopped_rank_is_reported(
    node: Node, trainer: tuple[subprocess.Popen[str], Path, int], tmp_path: Path
) -> None:
    """Of a stopped and a running rank the running one's dump comes, the other's silence is reported, within the bound."""
    process, path, _ = trainer
    with serving(http({"/handler/fr_trace_json": DUMP}), tmp_path / "s.sock") as address:
        node.rank(0, pid=process.pid, real=True, labels={"TORCH_WORKER_SERVER_SOCKET": str(path)})
        node.rank(1, pid=os.getpid(), real=True, labels={"FAULTHOUND_WORKER_SERVER": address})
        process.send_signal(signal.SIGSTOP)
        try:
            begun = time.monotonic()
            found = node.run(Recorders(node.host), "recorder", ASKED)
            took = time.monotonic() - begun
        finally:
            process.send_signal(signal.SIGCONT)

    assert [dump.rank for dump in of(found, FlightRecorderDump)] == [1]
    (reported,) = of(found, Unread)
    assert (reported.rank, reported.outcome, "no answer in time" in reported.reason) == (0, "limit", True)
    assert in_time(took, ASKING_SECONDS)


def test_an_ordinary_run_only_looks(node: Node, tmp_path: Path) -> None:
    """Without a command no rank is asked; the run states how many could be."""
    asked = []
    with serving(asked.append, tmp_path / "s.sock") as address:
        node.rank(0, pid=os.getpid(), real=True, labels={"FAULTHOUND_WORKER_SERVER": address})
        node.rank(1)

        with pytest.raises(NothingToCollect, match="of 2 ranks could be asked: 1 by worker server; 1 have neither"):
            node.run(Recorders(node.host), "recorder")

    assert asked == []


def test_nccls_recorder_comes_before_the_cpus(node: Node, tmp_path: Path) -> None:
    """Of a build with both recorders NCCL's dump is taken, unless it is empty and the other is not."""
    own = {**DUMP, "entries": [{**ENTRY, "profiling_name": "gloo:barrier"}]}
    for name, nccl, expected in (("a", DUMP, "nccl:all_reduce"), ("b", EMPTY, "gloo:barrier")):
        answers = {"/handler/dump_nccl_trace_json": nccl, "/handler/fr_trace_json": own}
        with serving(http(answers), tmp_path / name) as address:
            fresh = Node(tmp_path / f"node{name}")
            fresh.rank(0, pid=os.getpid(), real=True, labels={"FAULTHOUND_WORKER_SERVER": address})

            (dump,) = of(fresh.run(Recorders(fresh.host), "recorder", ASKED), FlightRecorderDump)

        assert expected in dump.strings


def test_the_probes_socket_is_found(node: Node) -> None:
    """A socket at <shm>/faulthound-<uid>/<pid>.sock needs no label, also where the path is longer than a socket's may be."""
    folder = node.folder / "dev" / "shm" / f"faulthound-{os.getuid()}"
    folder.mkdir(parents=True)
    node.rank(0, pid=os.getpid(), real=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with serving(http({"/handler/fr_trace_json": DUMP}), Path(f"/proc/self/fd/{descriptor}/{os.getpid()}.sock")):
            assert len(of(node.run(Recorders(node.host), "recorder", ASKED), FlightRecorderDump)) == 1
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("behave", "reason"),
    [
        (silent, "no answer in time"),
        (dripping, "no answer in time"),
        (flooding, "longer than"),
        (saying(b"220 mail.example ESMTP\r\n"), "does not speak HTTP"),
        (saying(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{}"), "cut"),
        (saying(b"HTTP/1.1 200 OK\r\n\r\n{\"status\": \"ok\"}"), "no Flight Recorder dump"),
        (saying(b"HTTP/1.1 500 Oops\r\n\r\n"), "HTTP 500"),
        (saying(b""), "does not speak HTTP"),
    ],
    ids=["silent", "dripping", "flooding", "mail", "cut", "other", "error", "closing"],
)  # fmt: skip
def test_a_server_that_misbehaves_is_reported(node: Node, behave: Behaviour, reason: str, tmp_path: Path) -> None:
    """Whatever a rank's server does, the run ends within its bound with one reason for that rank and no dump."""
    with serving(behave, tmp_path / "s.sock") as address:
        node.rank(0, pid=os.getpid(), real=True, labels={"FAULTHOUND_WORKER_SERVER": address})
        begun = time.monotonic()
        found = node.run(Recorders(node.host), "recorder", ASKED)

    assert in_time(time.monotonic() - begun, ASKING_SECONDS + 1)
    assert [(reported.rank, reason in reported.reason) for reported in of(found, Unread)] == [(0, True)]
    assert of(found, FlightRecorderDump) == []


def test_another_process_is_not_asked(node: Node, tmp_path: Path) -> None:
    """A path that another process listens at, and an address beyond this node, are not asked for a job that names them."""
    asked: list[socket.socket] = []
    with serving(asked.append, tmp_path / "s.sock") as address, subprocess.Popen(["sleep", "60"]) as other:
        node.rank(0, pid=other.pid, real=True, labels={"FAULTHOUND_WORKER_SERVER": address})
        node.rank(1, labels={"FAULTHOUND_WORKER_SERVER": "192.0.2.7:80"})
        reported = of(node.run(Recorders(node.host), "recorder", ASKED), Unread)
        other.kill()

    reasons = {each.rank: each.reason for each in reported}
    assert f"process {os.getpid()} listens there, not {other.pid}" in reasons[0]
    assert "neither a worker server" in reasons[1]


def write_dump_when_asked(stem: str, rank: int) -> threading.Thread:
    """Do what NCCL's monitor does: wait for a line in the pipe, then write the dump, in two parts."""

    def monitor() -> None:
        Path(f"{stem}{rank}.pipe").read_bytes()
        data = pickle.dumps({**DUMP, "entries": [{**ENTRY, "process_group": ("0", "default_pg")}]}, 2)
        with Path(f"{stem}{rank}").open("wb") as file:
            file.write(data[:40])
            file.flush()
            time.sleep(0.3)
            file.write(data[40:])

    thread = threading.Thread(target=monitor, daemon=True)
    thread.start()
    return thread


def test_the_debug_pipe_is_written_to(node: Node, tmp_path: Path) -> None:
    """A line in NCCL's debug pipe brings the pickle that the rank then writes, whole, and not the one before it."""
    named, stem = stem_of(node, "nccl_trace_rank_")
    os.mkfifo(f"{stem}5.pipe")
    Path(f"{stem}5").write_bytes(pickle.dumps({**EMPTY, "version": "2.1"}))
    monitor = write_dump_when_asked(stem, 5)
    node.rank(5, labels={"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": named, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": named})
    time.sleep(0.1)

    (dump,) = of(node.run(Recorders(node.host), "recorder", ASKED), FlightRecorderDump)
    monitor.join(60)

    assert (dump.rank, dump.version, dump.count, dump.at) == (5, "2.10", 1, node.clock.at)


def test_a_pipe_without_a_reader_leads_to_the_file(node: Node, tmp_path: Path) -> None:
    """Where no process reads the pipe, the dump that is already there is read, as of when it was written."""
    named, stem = stem_of(node, "dump_")
    os.mkfifo(f"{stem}0.pipe")
    Path(f"{stem}0").write_bytes(pickle.dumps(DUMP))
    os.utime(f"{stem}0", (node.clock.at - 30, node.clock.at - 30))
    node.rank(0, labels={"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": named, "TORCH_FR_DUMP_TEMP_FILE": named})

    (dump,) = of(node.run(Recorders(node.host), "recorder", ASKED), FlightRecorderDump)

    assert dump.at == node.clock.at - 30


def test_the_dead_leave_their_dumps(node: Node, tmp_path: Path) -> None:
    """A rank that has ended since the last run is asked by the file that it left, one of an earlier run is not."""
    named, stem = stem_of(node, "dump_")
    for rank, at in ((0, node.clock.at), (1, node.clock.at - 86_400)):
        Path(f"{stem}{rank}").write_text(json.dumps(DUMP))
        os.utime(f"{stem}{rank}", (at, at))
        process = node.rank(rank, labels={"TORCH_FR_DUMP_TEMP_FILE": named})
        object.__setattr__(process, "started_at", node.clock.at - 600)
    collector = Recorders(node.host)
    with contextlib.suppress(NothingToCollect):
        node.run(collector, "recorder")
    node.host.processes = ()

    found = node.run(collector, "recorder", ASKED)

    assert [dump.rank for dump in of(found, FlightRecorderDump)] == [0]
    assert [(reported.rank, "before this process began" in reported.reason) for reported in of(found, Unread)] == [
        (1, True)
    ]


def test_dumps_are_found_where_pytorch_writes_by_itself(node: Node) -> None:
    """Without any variable the user's cache is looked into, then /tmp, as PyTorch's releases do; also behind a pipe."""
    home = pwd.getpwuid(os.getuid()).pw_dir
    files = node.folder / "files"
    for rank, folder, name in ((0, home, ".cache/torch/comm_lib_trace_rank_0"), (1, "/tmp", "nccl_trace_rank_1")):
        path = files / folder.lstrip("/") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(DUMP))
        node.rank(rank)
    named, stem = stem_of(node, "pipe_")
    os.mkfifo(f"{stem}2.pipe")
    (files / "tmp" / "nccl_trace_rank_2.pipe").symlink_to(f"{stem}2.pipe")
    monitor = write_dump_when_asked(f"{files}/tmp/nccl_trace_rank_", 2)
    node.rank(2, labels={"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": named})
    time.sleep(0.1)

    found = of(node.run(Recorders(node.host), "recorder", ASKED), FlightRecorderDump)
    monitor.join(60)

    assert sorted(dump.rank or 0 for dump in found) == [0, 1, 2]


def test_only_the_named_ranks_are_asked(node: Node, tmp_path: Path) -> None:
    """A command that names ranks is for these alone; one that names none here finds nothing."""
    named, stem = stem_of(node, "dump_")
    for rank in range(3):
        Path(f"{stem}{rank}").write_text(json.dumps(DUMP))
        node.rank(rank, labels={"TORCH_FR_DUMP_TEMP_FILE": named})
    collector = Recorders(node.host)

    found = node.run(collector, "recorder", Request("recorders", {"ranks": [1, 7]}))

    assert [dump.rank for dump in of(found, FlightRecorderDump)] == [1]
    with pytest.raises(NothingToCollect, match="none of the requested ranks"):
        node.run(collector, "recorder", Request("recorders", {"ranks": [7]}))


def test_roles_that_count_from_zero_are_all_asked(node: Node) -> None:
    """Rank 0 of the rollouts and rank 0 of the trainers of one job are two, also beside another job's, which may be left out."""
    for pid, role, job in ((4001, "trainer", "a"), (4002, "rollout", "a"), (4003, "trainer", "b")):
        process = node.rank(0, pid=pid)
        object.__setattr__(process, "role", role)
        object.__setattr__(process, "job", job)
    collector = Recorders(node.host)

    every, of_one = (
        of(node.run(collector, "recorder", Request("recorders", arguments)), Unread)
        for arguments in ({}, {"job": "a", "ranks": [0]})
    )

    assert sorted((reported.job, reported.role) for reported in every) == [
        ("a", "rollout"),
        ("a", "trainer"),
        ("b", "trainer"),
    ]
    assert sorted((reported.job, reported.role) for reported in of_one) == [("a", "rollout"), ("a", "trainer")]
