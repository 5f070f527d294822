"""Four nodes with a network of their own each, joined by a bridge, and a job of one rank a node; a link can be limited.

Network namespaces and a token bucket filter (tc-tbf(8)) of the kernel: the packets, their queues and their round trips are real.
Needs root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.jobs.farm import Farm, settling
from tests.support.slow_jobs.slowed_job import REPOSITORY, Running

NODES = 4
OUTGOING, INCOMING = "outgoing", "incoming"
LIMIT = ("rate", "24mbit", "burst", "16kb", "latency", "200ms")
MODEL_WIDTH = 512  # a megabyte of gradients


@dataclass(frozen=True)
class LinkedNodes:
    """The networks, by number. ``tag`` keeps their names apart from those of other runs."""

    tag: str

    @property
    def names(self) -> list[str]:
        """Return the nodes' names."""
        return [f"link-{number}" for number in range(NODES)]

    def space(self, number: int) -> str:
        """Return the name of a node's network namespace."""
        return f"{self.tag}n{number}"

    def pids(self, number: int) -> list[int]:
        """Return the processes in a node's network."""
        return [int(word) for word in _ip("netns", "pids", self.space(number)).split()]

    def settle(self, farm: Farm) -> None:
        """Let each node's processes appear in its process table, and who has ended disappear."""
        for number, name in enumerate(self.names):
            for pid in self.pids(number):
                with suppress(FileExistsError):
                    (farm.proc(name) / str(pid)).symlink_to(f"/proc/{pid}")
        farm.drop_ended()

    @contextmanager
    def limited(self, number: int, way: str) -> Iterator[None]:
        """Limit what leaves a node, or what arrives there."""
        inside = ("ip", "netns", "exec", self.space(number)) if way == OUTGOING else ()
        device = "eth0" if way == OUTGOING else f"{self.tag}v{number}"
        _run(*inside, "tc", "qdisc", "add", "dev", device, "root", "tbf", *LIMIT)
        try:
            yield
        finally:
            _run(*inside, "tc", "qdisc", "del", "dev", device, "root")


def why_not() -> str:
    """Return what this machine lacks, "" where nothing."""
    if os.geteuid():
        return "only root makes network namespaces"
    if lacking := next((name for name in ("ip", "tc") if shutil.which(name) is None), None):
        return f"there is no {lacking} here"
    space = f"fh{os.getpid() % 100_000}t"
    try:
        _ip("netns", "add", space)
        _run("ip", "netns", "exec", space, "tc", "qdisc", "add", "dev", "lo", "root", "tbf", *LIMIT)
    except subprocess.CalledProcessError as error:
        return f"{' '.join(error.cmd)}: {error.stderr.strip()}"
    finally:
        subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)
    return ""


@contextmanager
def linked_nodes() -> Iterator[LinkedNodes]:
    """Make the networks, and remove them with all that runs there."""
    nodes = LinkedNodes(f"fh{os.getpid() % 100_000}")
    bridge = f"{nodes.tag}b"
    with ExitStack() as stack:
        _ip("link", "add", bridge, "type", "bridge")
        stack.callback(_ip, "link", "del", bridge)
        _ip("link", "set", bridge, "up")
        for number in range(NODES):
            space, outer = nodes.space(number), f"{nodes.tag}v{number}"
            _ip("netns", "add", space)
            stack.callback(_ip, "netns", "del", space)
            _ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", outer, "master", bridge, "up")
            for words in (f"addr add 10.77.0.{number + 1}/24 dev eth0", "link set eth0 up", "link set lo up"):
                _ip("-n", space, *words.split())
        yield nodes


def start(stack: ExitStack, nodes: LinkedNodes, farm: Farm, folder: Path, name: str) -> Running:
    """Start a data parallel job with the probe, one rank and launcher a node; it is ended with the stack."""
    folder.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("slowed_training.py"), folder)
    shutil.copy(REPOSITORY / "collectors" / "faulthound_probe.py", folder)
    own = {"FAULTHOUND_JOB": name, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0", "WIDTH": str(MODEL_WIDTH),
           "WITH_PROBE": "1", "FAULTHOUND_PROBE_SERVER": "0"}  # fmt: skip
    launchers = []
    for number in range(NODES):
        command = ["ip", "netns", "exec", nodes.space(number), sys.executable, "-m", "torch.distributed.run",
                   "--nnodes", str(NODES), "--nproc-per-node", "1", "--node-rank", str(number), "--master-addr", "10.77.0.1",
                   "--master-port", "29400", str(folder / "slowed_training.py"), str(folder), "ddp"]  # fmt: skip
        log = folder / ("log" if number == NODES - 1 else f"log{number}")  # the last rank reports the steps
        launchers.append(
            subprocess.Popen(command, env=os.environ | own, stdin=subprocess.DEVNULL, stdout=log.open("wb"),
                             stderr=subprocess.STDOUT, start_new_session=True)
        )  # fmt: skip
    stack.callback(_end, nodes)
    stack.enter_context(settling(lambda: nodes.settle(farm), 1.0))
    return Running(name, "ddp", folder, launchers[-1], {})


def _end(nodes: LinkedNodes) -> None:
    for number in range(NODES):
        for pid in nodes.pids(number):
            with suppress(ProcessLookupError):
                os.kill(pid, 9)


def _ip(*words: str) -> str:
    return _run("ip", *words)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
