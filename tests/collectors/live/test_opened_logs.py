"""Logs that a process writes by a handle of its own are read as its output is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collectors.live.sources.clock import NodeClock
from collectors.live.sources.opened_logs import OpenedLogs
from collectors.live.steps import JobLogs
from collectors.records import Steps
from tests.collectors.live.test_steps import append
from tests.support.tailed_jobs import Node, of

LINE = "2026-11-21 10:00:00 INFO step 1 loss 0.5\n"


def test_only_logs_that_are_open_to_write_are_found(tmp_path: Path) -> None:
    """A file that is read, and one that is no log by its name, are not the process's own."""
    written, read, other = tmp_path / "train.log", tmp_path / "old.log", tmp_path / "shard.bin"
    read.write_text(LINE)
    with written.open("a"), other.open("w"), read.open():
        found = OpenedLogs(Path("/proc"), NodeClock()).of(os.getpid())

    names = {name for _, name, _ in found}
    assert str(written) in names
    assert not names & {str(read), str(other)}


def test_its_steps_are_the_ranks(tmp_path: Path) -> None:
    """The process's standard streams go elsewhere; the steps come from the log that it has opened."""
    node = Node(tmp_path / "node")
    log = tmp_path / "train.log"
    append(log, LINE, node.clock.at)
    with log.open("a"):
        node.rank(3, pid=os.getpid(), real=True)
        steps = of(node.run(JobLogs(node.host), "steps"), Steps)

    assert (3, 1) in [(record.rank, record.step) for record in steps if record.source.endswith("train.log")]


@pytest.mark.parametrize("name", ["4194304", "fd"])
def test_a_process_that_is_gone_has_none(name: str, tmp_path: Path) -> None:
    """Nothing is raised where it has ended, or its handles are another user's."""
    (tmp_path / name).mkdir()

    assert OpenedLogs(tmp_path, NodeClock()).of(4194304) == []
