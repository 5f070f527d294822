"""The gpu collector on a stub of the library, nodes that are empty, and ranks that run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.agent.worker import Worker as AgentWorker
from collectors.live import registry
from collectors.live.sources.host import Host, Roots
from tests.support.followed_ranks import Ranks
from tests.support.nvml_stub import Worker, build
from tests.support.process_tree import ProcessTree
from tests.support.tailed_jobs import Node


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stub of a present-day driver."""
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc of one boot."""
    boot = tmp_path / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("0f0e0d0c-0000-4000-8000-000000000001\n")
    return tmp_path / "proc"


@pytest.fixture
def worker(library: Path, tmp_path: Path, proc: Path) -> Iterator[Worker]:
    """The collector in a process of its own, on eight healthy GPUs until a test changes them."""
    with Worker(tmp_path / "scenario", library, proc) as worker:
        worker.says("* gpus 8")
        yield worker


@pytest.fixture
def host(proc: Path) -> Host:
    """The node, with the cursors that its agent keeps."""
    return Host("gpu-0001", Roots(proc=proc))


@pytest.fixture
def agents(library: Path, tmp_path: Path, host: Host, monkeypatch: pytest.MonkeyPatch) -> Iterator[AgentWorker]:
    """The agent's own end of the collector's process, with a short bound."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))
    monkeypatch.setenv("NVML_STUB_SCENARIO", str(tmp_path / "scenario"))
    end = AgentWorker(dataclasses.replace(registry()["gpu"], limit_seconds=4.0), host)
    yield end
    end.close()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """Return a node with an empty tree."""
    return Node(tmp_path)


@pytest.fixture
def tree(tmp_path: Path) -> ProcessTree:
    """An empty node with its first process."""
    made = ProcessTree(tmp_path / "proc")
    made.add(1, 0, name="systemd", command="/sbin/init")
    return made


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    """Real ranks that end with the test."""
    made = Ranks()
    yield made
    made.end()
