"""NCCL RAS over a real socket: the protocol of several releases, and servers that hang, flood or are none."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from collectors.live import NothingToCollect, Request
from collectors.live import ras as live_ras
from collectors.live.ras import Ras
from collectors.live.sources.socket_requests import RequestFailed
from collectors.records import RasCommunicator, RasPeerDead, Unread
from tests.analyzers.diagnosis.test_ras import DEAD, TEXT, report
from tests.support.bounds import in_time
from tests.support.tailed_jobs import Node, of

REPORT = json.dumps(report({0: 5, 1: 5, 2: 4}, {3: DEAD}, "2026-11-21 03:00:00"), indent=2)
# NCCL 2.28.9 leaves out the comma before "status" in missing_ranks.
MALFORMED = REPORT.replace('"nvml_dev": 0,\n          "status": {\n            "unresponsive"',
                           '"nvml_dev": 0\n          "status": {\n            "unresponsive"')  # fmt: skip


@dataclass
class Server:
    """A RAS as far as its protocol goes. ``json`` None: a release that knows text alone."""

    json: str | None = REPORT
    text: str = TEXT
    hello: str = "SERVER PROTOCOL 2"
    closes: bool = False  # the connection, at a command that it does not know
    hangs: bool = False  # instead of a report
    floods: bool = False
    heard: list[str] = field(default_factory=list)
    address: str = ""

    @contextlib.contextmanager
    def serving(self) -> Iterator[Server]:
        """Serve until the end of the block."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.address = f"127.0.0.1:{server.getsockname()[1]}"
            threading.Thread(target=self._serve, args=(server,), daemon=True).start()
            yield self
            server.shutdown(socket.SHUT_RDWR)

    def _serve(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection, contextlib.suppress(OSError):
                    self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        asked_json = False
        with connection.makefile("r") as heard:
            for command in map(str.strip, heard):
                self.heard.append(command)
                if command.startswith("CLIENT PROTOCOL"):
                    connection.sendall(f"{self.hello}\n".encode())
                elif command.startswith("TIMEOUT"):
                    connection.sendall(b"OK\n")
                elif command == "SET FORMAT json":
                    asked_json = self.json is not None
                    if self.closes and not asked_json:
                        return
                    connection.sendall(b"OK\n" if asked_json else b'ERROR: Unknown command "SET FORMAT json"\n')
                elif command == "VERBOSE STATUS":
                    self._report(connection, (self.json or "") if asked_json else self.text)
                    return

    def _report(self, connection: socket.socket, answer: str) -> None:
        if self.hangs:
            connection.sendall(answer[:100].encode())
            connection.recv(1)
        while self.floods:
            connection.sendall(b"x" * (1 << 20))
        connection.sendall(answer.encode())


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """Return a node on which rank 0 trains."""
    node = Node(tmp_path)
    node.rank(0)
    return node


def test_json_is_asked_for_and_read(node: Node) -> None:
    """Communicators come with counts and lost ranks, as of now by the agent's clock, and with the job's name."""
    with Server().serving() as server:
        node.options["ras"] = {"address": server.address}

        (found,) = of(node.run(Ras(node.host), "ras"), RasCommunicator)

    assert server.heard == ["CLIENT PROTOCOL 2", "TIMEOUT 5", "SET FORMAT json", "VERBOSE STATUS"]
    assert [rank.counts.get("AllReduce") for rank in found.ranks] == [5, 5, 4, None]
    assert (found.ranks[3].dead, found.at, found.job, found.attempt) == (True, node.clock.at, "llama-8b", 2)


def test_the_malformed_release_is_read(node: Node) -> None:
    """The JSON of NCCL 2.28.9, which no parser takes, gives the same ranks."""
    with pytest.raises(ValueError, match="delimiter"):
        json.loads(MALFORMED)
    with Server(json=MALFORMED).serving() as server:
        node.options["ras"] = {"address": server.address}

        (found,) = of(node.run(Ras(node.host), "ras"), RasCommunicator)

    assert [(rank.rank, rank.dead) for rank in found.ranks] == [(0, False), (1, False), (2, False), (3, True)]


@pytest.mark.parametrize("closes", [False, True])
def test_an_older_release_gives_text(node: Node, *, closes: bool) -> None:
    """A RAS that knows no JSON, whether it says so or closes the connection, is asked for text instead."""
    with Server(json=None, closes=closes).serving() as server:
        node.options["ras"] = {"address": server.address}

        found = node.run(Ras(node.host), "ras")

    assert [(one.size, one.status) for one in of(found, RasCommunicator)] == [(8, "RUNNING"), (2, "RUNNING")]
    assert [(dead.pid, dead.at, dead.job) for dead in of(found, RasPeerDead)] == [(507, node.clock.at, "llama-8b")]


def test_a_server_that_hangs_costs_its_bound(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report that stops halfway fails the run within its time, with the address in the message."""
    monkeypatch.setattr(live_ras, "ANSWER_SECONDS", 0.5)
    with Server(hangs=True).serving() as server:
        node.options["ras"] = {"address": server.address}
        begun = time.monotonic()

        with pytest.raises(RequestFailed, match=f"{server.address}: no answer in time"):
            node.run(Ras(node.host), "ras")

    assert in_time(time.monotonic() - begun, 2)


def test_a_server_that_floods_is_cut(node: Node) -> None:
    """Of an answer without an end a bounded part is read, and that it was cut is reported."""
    with Server(floods=True).serving() as server:
        node.options["ras"] = {"address": server.address}

        found = node.run(Ras(node.host), "ras")

    assert [reported.outcome for reported in of(found, Unread)] == ["damaged", "limit"]
    assert of(found, RasCommunicator) == []


@pytest.mark.parametrize("answer", ["{" * (2 << 20), "[[" * 999, "all is well\n", '{"status": "ok"}'])
def test_an_answer_that_is_no_report_is_told(node: Node, answer: str) -> None:
    """Who speaks the protocol and then reports nothing of RAS is no RAS without communicators."""
    with Server(json=answer).serving() as server:
        node.options["ras"] = {"address": server.address}

        found = node.run(Ras(node.host), "ras")

    assert [(one.outcome, one.job) for one in of(found, Unread)] == [("damaged", "llama-8b")]
    assert of(found, RasCommunicator) == []


def test_a_report_without_communicators_is_one(node: Node) -> None:
    """A job that has none yet is no damage."""
    empty = {"nccl_version": "2.28.7", "communicators_count": 0, "communicators": []}
    with Server(json=json.dumps(empty)).serving() as server:
        node.options["ras"] = {"address": server.address}

        assert node.run(Ras(node.host), "ras") == []


@pytest.mark.parametrize("hello", ["220 mail.example ESMTP", "x" * 5000, ""])
def test_another_service_is_no_ras(node: Node, hello: str) -> None:
    """What answers at the port without being RAS is named as such, and is not asked any further."""
    with Server(hello=hello).serving() as server:
        node.options["ras"] = {"address": server.address}

        with pytest.raises(RequestFailed):
            node.run(Ras(node.host), "ras")

    assert server.heard == ["CLIENT PROTOCOL 2"]


def test_nobody_listening_is_nothing_to_collect(node: Node) -> None:
    """A job without RAS is quiet, not a failure."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    node.options["ras"] = {"address": address}

    with pytest.raises(NothingToCollect, match="Connection refused: the job has no NCCL"):
        node.run(Ras(node.host), "ras")


def test_one_node_asks_for_all(tmp_path: Path) -> None:
    """Where rank 0 is elsewhere no run asks periodically; a command asks all the same."""
    node = Node(tmp_path)
    node.rank(7)
    with Server().serving() as server:
        node.options["ras"] = {"address": server.address}
        with pytest.raises(NothingToCollect, match="rank 0 trains on another node"):
            node.run(Ras(node.host), "ras")
        assert server.heard == []

        assert len(of(node.run(Ras(node.host), "ras", Request("recorders")), RasCommunicator)) == 1


def test_two_jobs_are_asked_at_their_own_addresses(tmp_path: Path) -> None:
    """A job's NCCL_RAS_ADDR is asked where it is on this node, one that points elsewhere is not."""
    node = Node(tmp_path)
    with Server().serving() as first, Server(json=None).serving() as second:
        node.rank(0, labels={"NCCL_RAS_ADDR": first.address.replace("127.0.0.1", "localhost")})
        node.rank(1, labels={"NCCL_RAS_ADDR": second.address})
        found = node.run(Ras(node.host), "ras", Request("recorders"))
        assert len(of(found, RasCommunicator)) == 3

    stranger = Node(tmp_path / "other")
    stranger.rank(0, labels={"NCCL_RAS_ADDR": "192.0.2.9:28028"})
    collector = Ras(stranger.host)
    assert [job.address for job in collector._jobs(everywhere=True)] == [live_ras.DEFAULT_ADDRESS]
