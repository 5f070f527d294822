"""A plain torchrun job over gloo in which one rank asks a server that does not answer, seen by the agents' own collectors.

The four nodes have a process table each, and their collectors answer as for a command, twice. What is right: the verdict names
the server's address, and its process where an agent of the job's nodes sees it; no rank and no node, no action on any. The
control names the rank that is in no collective, by the same stacks. When a server is ended the job goes on, to the next trial.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from analyzers.model.frames import FrameRules
from analyzers.model.standings import standings
from analyzers.model.topology import infer
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.live import NothingToCollect, Request, registry
from collectors.live.sources.host import Host, Roots
from collectors.records import Record
from service.packaged_knowledge import load
from tests.support.jobs.farm import Farm
from tests.support.jobs.job import NICE

RANKS = 4  # one a node
NODES = [f"node-{number}" for number in range(RANKS)]
HERE = Path(__file__).parent
START_SECONDS, APART_SECONDS = 240.0, 6.0  # between the two rounds of evidence
COLLECTED = ("placement", "process", "stacks")
SERVER = """
import ctypes, signal, socket, sys, time
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
def answer(client):
    client.recv(100)
    time.sleep(3600)
server = socket.create_server((sys.argv[1], 0), backlog=64)
print("%s:%d" % server.getsockname(), flush=True)
taken = []
while True:
    taken.append(server.accept()[0])
    answer(taken[-1])
"""
SEEN, STOPPED, ELSEWHERE, UNSEEN, OWN_NETWORK = "seen", "stopped", "elsewhere", "unseen", "own network"
WHERES = (SEEN, STOPPED, ELSEWHERE, UNSEEN, OWN_NETWORK)


@dataclass(frozen=True)
class Trial:
    """One rank that asks, with which client, and where the server is."""

    number: int
    rank: int
    client: str
    where: str

    @property
    def name(self) -> str:
        """Return a name for folders."""
        return f"{self.number}-{self.where}-{self.client}-rank{self.rank}".replace(" ", "-")


@dataclass
class Outcome:
    """What was seen of a trial: the verdict after each round of evidence."""

    trial: Trial
    address: str = ""
    pid: int = 0
    verdicts: list[Verdict] = field(default_factory=list)
    control: list[int] = field(default_factory=list)  # ranks that the control names


@dataclass
class Asking:
    """The running job, and the process tables of its nodes."""

    private: Path
    farm: Farm

    def run(self, trial: Trial) -> Outcome:
        """Run one trial; afterwards the job trains again."""
        outcome, window = Outcome(trial), Window()
        with _server(trial) as (server, outcome.address):
            outcome.pid = server
            sees = {SEEN: trial.rank, STOPPED: trial.rank, OWN_NETWORK: trial.rank, ELSEWHERE: (trial.rank + 1) % RANKS}
            link = self.farm.proc(NODES[sees[trial.where]]) / str(server) if trial.where in sees else None
            if link is not None:
                link.symlink_to(f"/proc/{server}")
            if trial.where == STOPPED:
                os.kill(server, signal.SIGSTOP)
            self._strike(trial, outcome.address)
            records: list[Record] = []
            for looks in (1, 2):
                time.sleep(APART_SECONDS)
                records += self.look()
                window = Window.build(records, live=True)
                outcome.verdicts.append(judge(window, infer(window), load(), rounds=looks))
            if link is not None:
                link.unlink()
            if (self.private / f"asked{trial.number}").exists():
                raise RuntimeError(f"{trial.name}: the call ended while its server was there")
        found = standings(window, infer(window), FrameRules.from_knowledge(load()))
        outcome.control = [rank for rank, one in found.items() if not one.waiting]
        steps = self._steps()
        _until(60.0, lambda: self._steps() > steps, "the job does not go on")
        return outcome

    def look(self) -> list[Record]:
        """Return what the collectors of all nodes answer to a command."""
        with ThreadPoolExecutor(RANKS) as threads:
            return [record for found in threads.map(self._look, NODES) for record in found]

    def _look(self, node: str) -> list[Record]:
        host = Host(node, Roots(proc=self.farm.proc(node)))
        found = []
        for name in COLLECTED:
            with suppress(NothingToCollect):
                found += [one for one in registry()[name].make(host)(Request("stacks")) if isinstance(one, Record)]
        now = time.time()
        return [
            msgspec.structs.replace(
                one, node=node, received_at=now, at=one.at or now, boot_id=one.boot_id or host.boot_id
            )
            for one in found
        ]

    def _strike(self, trial: Trial, address: str) -> None:
        reported = {"number": trial.number, "rank": trial.rank, "client": trial.client, "address": address}
        (self.private / "part").write_text(json.dumps(reported))
        (self.private / "part").replace(self.private / "strike")
        _until(60.0, (self.private / f"struck{trial.number}").exists, "no rank asks")

    def _steps(self) -> int:
        return (self.private / "torchrun.log").read_text(errors="replace").count(" step ")


@contextmanager
def asking() -> Iterator[Asking]:
    """Start the job, and show each node its rank and the launcher; end it."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    with ExitStack() as stack:
        private = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="asks-")))
        labels = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "FAULTHOUND_JOB": "asks"}
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
        log = stack.enter_context((private / "torchrun.log").open("wb"))
        made = subprocess.Popen(
            [*NICE, *launcher, str(HERE / "asking.py")], cwd=private, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env=kept | labels | {"ASKING_PRIVATE": str(private), "PYTHONDONTWRITEBYTECODE": "1"}, start_new_session=True,
        )  # fmt: skip
        stack.callback(_end, made, private)
        _until(START_SECONDS, lambda: len(_pids(private)) == RANKS, "the job does not start")
        farm = Farm(private / "nodes", NODES)
        for node, rank in zip(NODES, _pids(private), strict=True):
            for pid in (rank, made.pid):
                (farm.proc(node) / str(pid)).symlink_to(f"/proc/{pid}")
        yield Asking(private, farm)


def _end(launcher: subprocess.Popen[bytes], private: Path) -> None:
    for pid in (launcher.pid, *_pids(private)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    launcher.wait()


def _pids(private: Path) -> list[int]:
    """Return the process ids of the ranks that have begun, by rank."""
    paths = [private / f"pid_rank{rank}" for rank in range(RANKS)]
    return [int(text) for path in paths if path.exists() and (text := path.read_text())]


def _until(seconds: float, true: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{otherwise} within {seconds:.0f} s")
        time.sleep(0.1)


@contextmanager
def _server(trial: Trial) -> Iterator[tuple[int, str]]:
    """Start the server: on another address where it is to be another node's, in a network where it is to have its own."""
    address = {ELSEWHERE: "127.0.0.2", OWN_NETWORK: "10.77.0.2"}.get(trial.where, "127.0.0.1")
    with ExitStack() as stack:
        before = stack.enter_context(_network()) if trial.where == OWN_NETWORK else []
        made = subprocess.Popen([*before, sys.executable, "-c", SERVER, address], stdout=subprocess.PIPE, text=True)
        assert made.stdout is not None
        stack.enter_context(made.stdout)
        stack.callback(made.wait)
        stack.callback(made.kill)
        yield made.pid, made.stdout.readline().strip()


@contextmanager
def _network() -> Iterator[list[str]]:
    """Make a network namespace with one link to this one; yield the words before a program that is to run in it."""
    name = f"asks{os.getpid() % 10_000}"
    commands = (
        f"ip netns add {name}", f"ip link add {name} type veth peer name eth0 netns {name}",
        f"ip addr add 10.77.0.1/24 dev {name}", f"ip link set {name} up",
        f"ip -n {name} addr add 10.77.0.2/24 dev eth0", f"ip -n {name} link set eth0 up", f"ip -n {name} link set lo up",
    )  # fmt: skip
    try:
        for command in commands:
            subprocess.run(command.split(), check=True, capture_output=True)
        yield ["ip", "netns", "exec", name]
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", name], check=False, capture_output=True)


def wrong(outcome: Outcome) -> list[str]:
    """Return what was wrong with a trial's verdicts; empty where nothing was."""
    return [
        f"after {looks} rounds: {what}"
        for looks, one in enumerate(outcome.verdicts, 1)
        for what in (*_innocents(one), *_unnamed(outcome, one))
    ]


def _innocents(verdict: Verdict) -> Iterator[str]:
    """No verdict blames a machine: the server's is none that the job runs on."""
    if verdict.action.kind != "none" or verdict.action.nodes:
        yield f"would {verdict.action.kind} {verdict.action.nodes} {verdict.action.ranks}"
    yield from (f"names {one.kind} {one.id}" for one in verdict.culprits if one.kind in ("rank", "node", "device"))


def _unnamed(outcome: Outcome, verdict: Verdict) -> Iterator[str]:
    """It names the server, with its process where it is seen, and all ranks as waiting."""
    if [(one.kind, one.id) for one in verdict.culprits] != [("service", outcome.address)]:
        yield f"names {[(one.kind, one.id) for one in verdict.culprits]}, not {outcome.address}"
        return
    sees, why = outcome.trial.where != UNSEEN, verdict.culprits[0].why
    if (f"process {outcome.pid} " in why) is not sees:
        yield f"{'does not name' if sees else 'names'} process {outcome.pid}: {why}"
    if (verdict.roots[0].fault_class == "service_stopped") is not (outcome.trial.where == STOPPED):
        yield f"class {verdict.roots[0].fault_class}"
    if verdict.victims.ranks != f"0-{RANKS - 1}":
        yield f"victims {verdict.victims.ranks}"
