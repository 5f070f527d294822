"""Pipes and dump files of flight recorders: whose they are, and what the dead left."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from pathlib import Path

import pytest

from collectors.live import NothingToCollect
from collectors.live.recorder import ASKING_SECONDS, Recorders
from collectors.live.sources.socket_requests import Budget, RequestFailed
from collectors.records import FlightRecorderDump, Unread
from tests.support.bounds import in_time
from tests.support.recorder_servers import ASKED, DUMP, http, serving, silent, stem_of
from tests.support.tailed_jobs import Node, of

pytestmark = pytest.mark.system


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """Return a node with an empty tree."""
    return Node(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can open what is another user's")
def test_another_users_pipe_and_dump_are_left_alone(node: Node) -> None:
    """A job's path that leads to another user's pipe or file, a link above it included, is neither written to nor read."""
    elsewhere = node.folder / "files" / "elsewhere"
    elsewhere.mkdir()
    (node.folder / "files" / "mine").symlink_to(elsewhere)
    os.mkfifo(elsewhere / "0.pipe")
    (elsewhere / "0").write_text(json.dumps(DUMP))
    for name in ("0.pipe", "0"):
        os.chown(elsewhere / name, 12345, -1)
    reader = os.open(elsewhere / "0.pipe", os.O_RDONLY | os.O_NONBLOCK)
    node.rank(0, labels={"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "/mine/", "TORCH_FR_DUMP_TEMP_FILE": "/mine/"})

    found = node.run(Recorders(node.host), "recorder", ASKED)

    (reported,) = of(found, Unread)
    assert reported.reason.count("it belongs to user 12345") == 2
    assert (of(found, FlightRecorderDump), os.read(reader, 10)) == ([], b"")
    os.close(reader)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can open what is another user's")
def test_what_the_dead_left_is_theirs(node: Node) -> None:
    """After a rank's end its user is still known: another user's file at the path of its dump is not taken for it."""
    named, stem = stem_of(node, "dump_")
    Path(f"{stem}0").write_text(json.dumps(DUMP))
    os.chown(f"{stem}0", 12345, -1)
    process, collector = node.rank(0, labels={"TORCH_FR_DUMP_TEMP_FILE": named}), Recorders(node.host)
    with contextlib.suppress(NothingToCollect):
        node.run(collector, "recorder")
    node.host.processes = ()
    shutil.rmtree(node.folder / "proc" / str(process.pid))

    (reported,) = node.run(collector, "recorder", ASKED)

    assert "it belongs to user 12345, its process to 0" in reported.reason  # type: ignore[union-attr]


def test_a_dump_that_is_a_trap_costs_its_rank(node: Node, tmp_path: Path) -> None:
    """A pickle that asks for a class or for all memory, a FIFO and a link in the dump's place are reported, nothing is run."""
    named, stem = stem_of(node, "dump_")
    Path(f"{stem}0").write_bytes(b"\x80\x02cos\nsystem\n(X\x04\x00\x00\x00trueR.")
    Path(f"{stem}1").write_bytes(b"\x80\x04" + b"\x8e" + (1 << 40).to_bytes(8, "little") + b"x.")
    os.mkfifo(f"{stem}2")
    Path(f"{stem}3").symlink_to("/proc/self/environ")
    for rank in range(4):
        node.rank(rank, labels={"TORCH_FR_DUMP_TEMP_FILE": named})

    found = node.run(Recorders(node.host), "recorder", ASKED)

    assert sorted(reported.rank or 0 for reported in of(found, Unread)) == [0, 1, 2, 3]
    assert of(found, FlightRecorderDump) == []


def test_many_ranks_answer_within_the_bound(node: Node, tmp_path: Path) -> None:
    """Sixteen ranks of which half never answer take no longer than one such rank does."""
    with contextlib.ExitStack() as servers:
        for rank in range(16):
            behave = silent if rank % 2 else http({"/handler/fr_trace_json": DUMP})
            address = servers.enter_context(serving(behave))
            node.rank(rank, labels={"FAULTHOUND_WORKER_SERVER": address})
        begun = time.monotonic()
        found = node.run(Recorders(node.host), "recorder", ASKED)
        took = time.monotonic() - begun

        assert sorted(dump.rank or 0 for dump in of(found, FlightRecorderDump)) == list(range(0, 16, 2))
        assert sorted(reported.rank or 0 for reported in of(found, Unread)) == list(range(1, 16, 2))
        assert in_time(took, ASKING_SECONDS)


def test_no_training_process_is_nothing_to_collect(node: Node) -> None:
    """A node without training processes has no rank to ask."""
    with pytest.raises(NothingToCollect, match="no training process"):
        node.run(Recorders(node.host), "recorder", ASKED)


def test_a_budget_comes_back() -> None:
    """What one purse spent is refused to another, and free again once the first is closed."""
    budget = Budget(100)
    with budget.reserve() as first:
        first(60)
        with budget.reserve() as second, pytest.raises(RequestFailed, match="longer than 100 bytes"):
            second(60)

    with budget.reserve() as third:
        third(100)
