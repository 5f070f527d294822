"""A job's inference servers over real sockets: what they report, how they fail, and which ports are never asked."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from collectors.live import NothingToCollect, engines
from collectors.live.engines import Engines, server_of
from collectors.live.sources import listeners
from collectors.records import RoleState, Unread
from tests.collectors.formats.test_engine_metrics import VLLM
from tests.support.tailed_jobs import Node, of

pytestmark = pytest.mark.system

SERVER = """
import http.server, sys, time
mode, port, text = sys.argv[4], int(sys.argv[-2]), sys.argv[-1]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/health" and mode == "hung":
            time.sleep(60)
        while mode == "drip":
            self.wfile.write(b"H")
            self.wfile.flush()
            time.sleep(0.05)
        codes = {"dead": 503, "old": 404}
        code = codes.get(mode, 200) if self.path == "/health" else 404 if mode == "silent" else 200
        body = text.encode() if self.path == "/metrics" and code == 200 else b""
        if self.path == "/model_info":
            code, body = (404, b"") if mode == "weights old" else (200, b'{"weight_version": "12", "model_path": "m"}')
        if self.path == "/get_weight_version":
            code, body = 200, b'{"weight_version": "11"}'
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@contextmanager
def serving(
    node: Node, *, mode: str = "live", command: tuple[str, ...] = ("vllm", "serve"), text: str = VLLM
) -> Iterator[int]:
    """Run a server that a rollout's rank is, with a command of this kind; yield its pid."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [sys.executable, "-c", SERVER, *command, mode, "--port", str(port), text]
    words = [sys.executable, "-c", SERVER.replace("sys.argv[4]", f"sys.argv[{1 + len(command)}]"), *words[3:]]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            node.rank(3, pid=process.pid, real=True)
            yield process.pid
        finally:
            process.kill()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """Return a node whose own network namespace is known."""
    made = Node(tmp_path)
    (made.folder / "proc" / "self").symlink_to("/proc/self")
    return made


COMMANDS: dict[str, tuple[bytes, tuple[str, int] | None]] = {
    "vllm": (b"/usr/bin/python\0/opt/bin/vllm\0serve\0m\0--port\0" + b"8100\0", ("vllm", 8100)),
    "vllm, a module": (b"python3\0-m\0vllm.entrypoints.openai.api_server\0--port=8200\0", ("vllm", 8200)),
    "vllm, its title": (b"VLLM::APIServer_0\0", ("vllm", 8000)),
    "sglang": (b"python\0-m\0sglang.launch_server\0--model-path\0m\0", ("sglang", 30000)),
    "sglang, a command": (b"sglang\0serve\0--port\0" + b"31000\0", ("sglang", 31000)),
    "a trainer": (b"python\0train.py\0--port\0" + b"8000\0", None),
    "a client": (b"python\0bench.py\0--backend\0vllm\0--port\0" + b"8000\0", None),
    "an engine's core": (b"VLLM::EngineCore_DP0\0", None),
    "a scheduler": (b"sglang::scheduler_TP0\0", None),
    "a router": (b"python\0-m\0sglang_router.launch_router\0--port\0" + b"8000\0", None),
    "no port": (b"vllm\0serve\0--port\0auto\0", None),
    "nothing": (b"", None),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_a_command_names_the_port(case: str) -> None:
    """Only a server's command does."""
    assert server_of(COMMANDS[case][0]) == COMMANDS[case][1]


@pytest.mark.parametrize(
    ("mode", "answers", "running"),
    [
        ("live", True, 7),
        ("dead", False, 7),
        ("hung", False, 7),
        ("drip", False, None),
        ("old", None, 7),
        ("silent", True, None),
    ],
)
def test_a_server_is_asked(
    mode: str, answers: bool | None, running: int | None, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its health and its metrics are independent: a dead engine may still export, a live one may export nothing."""
    monkeypatch.setattr(engines, "ANSWER_SECONDS", 1.0)
    with serving(node, mode=mode) as pid:
        collector = Engines(node.host)
        (server,) = collector._servers()
        collector.answered.add((pid, server.address))
        (found,) = of(node.run(collector, "engines"), RoleState)
    assert (found.answers, found.requests_running) == (answers, running)
    assert (found.job, found.attempt, found.role, found.instance, found.pid) == ("llama-8b", 2, "trainer", "3", pid)


@pytest.mark.parametrize("mode", ["dead", "hung"])
def test_a_server_that_has_not_answered_yet_is_not_called_dead(
    mode: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be loading its model."""
    monkeypatch.setattr(engines, "ANSWER_SECONDS", 1.0)
    with serving(node, mode=mode):
        (found,) = of(node.run(Engines(node.host), "engines"), RoleState)
    assert found.answers is None


def test_garbage_gives_no_value(node: Node) -> None:
    """A server may send anything."""
    with serving(
        node, text='vllm:num_requests_running{a="' + "x" * 20_000 + "\nvllm:generation_tokens_total 1e999\n{{{"
    ):
        (found,) = of(node.run(Engines(node.host), "engines"), RoleState)
    assert (found.answers, found.requests_running, found.tokens_total) == (True, None, None)


@pytest.mark.parametrize("command", [("train", "x"), ("router", "vllm")])
def test_a_process_that_is_no_server_is_not_asked(command: tuple[str, ...], node: Node) -> None:
    """It listens, and hears nothing: its port may be a collective library's."""
    with serving(node, command=command), pytest.raises(NothingToCollect):
        node.run(Engines(node.host), "engines")


def test_a_port_of_another_process_is_not_asked(node: Node, tmp_path: Path) -> None:
    """A command that names a port at which its own process does not listen leads nowhere."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        words = [
            sys.executable,
            "-c",
            "import time; time.sleep(60)",
            "vllm",
            "serve",
            "--port",
            str(other.getsockname()[1]),
        ]
        with subprocess.Popen(words) as process:
            node.rank(3, pid=process.pid, real=True)
            try:
                with pytest.raises(NothingToCollect):
                    node.run(Engines(node.host), "engines")
            finally:
                process.kill()


def test_a_stranger_at_the_same_port_is_reported(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where another user listens beside it, the server is not asked."""
    monkeypatch.setattr(listeners, "owners", lambda *_: {os.geteuid(), 65534})
    with serving(node):
        (found,) = node.run(Engines(node.host), "engines")
    assert isinstance(found, Unread)
    assert "65534" in found.reason


@pytest.mark.parametrize(("mode", "weights"), [("weights", 12), ("weights old", 11)])
def test_sglang_is_asked_for_the_version_of_its_weights(mode: str, weights: int, node: Node) -> None:
    """By the endpoint of its release."""
    with serving(node, mode=mode, command=("sglang", "serve")):
        (found,) = of(node.run(Engines(node.host), "engines"), RoleState)
    assert (found.answers, found.weights) == (True, weights)


def test_a_run_that_is_ended_early_goes_on_with_the_next_server(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that hangs costs its own turn: the next run begins with one that was not asked."""
    rank = node.rank(0)
    servers = [engines._Server(rank, rank.pid, "vllm", f"127.0.0.1:{port}", several=True) for port in (1, 2, 3)]
    monkeypatch.setattr(Engines, "_servers", lambda _self: servers)
    monkeypatch.setattr(Engines, "_ask", lambda _self, server: Unread(reason=server.address))
    collector, asked = Engines(node.host), list[str]()
    for _ in servers:
        run = collector(None)
        asked.append(next(run).reason)  # type: ignore[union-attr]
        run.close()  # type: ignore[attr-defined]

    assert sorted(asked) == [server.address for server in servers]
