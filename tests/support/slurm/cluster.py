"""A real Slurm on this machine: munge, one controller and a slurmd a node, all below one folder, with ports of their own.

What is missing for it is said by ``missing()``. Everything that is started here, and every job below it, is ended with it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "scontrol", "squeue", "sinfo", "sbatch", "munged")
NODES = ("gpu0", "gpu1", "gpu2", "gpu3")
READY_SECONDS = 30.0
COMMAND_SECONDS = 60.0  # a client waits for a controller that is away; on a busy machine for long
STOP_SECONDS = 10.0
POLL_SECONDS = 0.05

CONFIGURATION = """\
ClusterName=tested
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
SlurmdParameters=config_overrides
SlurmctldParameters=idle_on_node_suspend
SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000,bf_interval=1
SlurmctldTimeout=60
SlurmdTimeout=300
MessageTimeout=60
KillWait=2
MinJobAge=600
ReturnToService=2
JobRequeue=1
StateSaveLocation={folder}/state
SlurmdSpoolDir={spool}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmctldDebug=info
SlurmdDebug=info
"""


def missing() -> str | None:
    """Say why there can be no Slurm here, None where there can."""
    if os.geteuid() != 0:
        return "a Slurm of several nodes on one machine needs root: slurmd starts jobs"
    absent = [name for name in PROGRAMS if program(name) is None]
    if absent:
        return f"{', '.join(absent)} not installed: apt-get install slurmctld slurmd slurm-client munge"
    return None


def program(name: str) -> str | None:
    """Return where a program is; Debian puts the daemons where a user's PATH does not go."""
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


class SlurmFailed(RuntimeError):
    """A command of Slurm failed, or Slurm did not come up."""


@dataclass
class SlurmCluster:
    """A running Slurm. ``variables`` is what its commands need in their environment."""

    folder: Path
    nodes: tuple[str, ...]
    variables: dict[str, str]
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def run(self, *command: str) -> str:
        """Run a command of Slurm and return what it prints."""
        done = subprocess.run(
            command, env=os.environ | self.variables, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=COMMAND_SECONDS, check=False,
        )  # fmt: skip
        if done.returncode:
            raise SlurmFailed(f"{' '.join(command)} left with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def node(self, name: str) -> tuple[str, str]:
        """Return a node's state, as sinfo writes it, and its reason."""
        line = self.run("sinfo", "-h", "-N", "-n", name, "-o", "%T|%E").splitlines()[0]
        state, _, reason = line.partition("|")
        return state.rstrip("*"), "" if reason == "none" else reason  # a star: not heard for a moment

    def job(self, number: str) -> tuple[str, str]:
        """Return a job's state and its nodes, as squeue writes them; empty where it is not known any more."""
        try:
            state, _, nodes = self.run("squeue", "-h", "-j", number, "-t", "all", "-o", "%T|%N").strip().partition("|")
        except SlurmFailed:
            return "", ""
        return state, nodes

    def restarts(self, number: str) -> int:
        """Return how often a job was put back into the queue."""
        return int(self.run("squeue", "-h", "-t", "all", "-j", number, "-O", "RestartCnt").strip())

    def submit(self, script: Path, *options: str) -> str:
        """Submit a batch script and return its job's number."""
        return self.run("sbatch", "--parsable", *options, str(script)).strip()

    def wait(self, what: str, seconds: float, true: Callable[[], bool]) -> float:
        """Wait until something is so, and return how long it took."""
        began = time.monotonic()
        while not true():
            if time.monotonic() - began > seconds:
                raise SlurmFailed(f"no {what} within {seconds:.0f} s\n{self.run('squeue', '-a')}{self.logs()}")
            time.sleep(POLL_SECONDS)
        return time.monotonic() - began

    def clear(self) -> None:
        """End every job, and make every node idle."""
        self.run("scancel", "--user=root")
        self.wait("empty queue", STOP_SECONDS * 3, lambda: not self.run("squeue", "-h", "-a").strip())
        for node in self.nodes:
            if self.node(node) != ("idle", ""):
                with suppress(SlurmFailed):
                    self.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        self.wait("idle nodes", READY_SECONDS, self._is_idle)

    def start_controller(self, *options: str) -> None:
        """Start the controller; without ``-c`` it goes on with what it knew."""
        self._start("slurmctld", "slurmctld", "-D", *options)
        self.wait("controller", READY_SECONDS, self._answers)

    def stop_controller(self) -> None:
        """Stop the controller as an administrator does: what it knows is saved."""
        self.daemons["slurmctld"].terminate()
        self.daemons.pop("slurmctld").wait(timeout=STOP_SECONDS * 3)

    def kill(self, name: str) -> None:
        """Kill one daemon: ``slurmctld``, or the slurmd of a node by the node's name."""
        self.daemons[name].kill()
        self.daemons.pop(name).wait(timeout=STOP_SECONDS)

    def start_node(self, name: str) -> None:
        """Start the slurmd of one node."""
        self._start(name, "slurmd", "-D", "-N", name)

    def logs(self) -> str:
        """Return the end of every daemon's log."""
        paths = sorted(self.folder.glob("*.log"))
        return "\n".join(f"== {path.name}\n{path.read_text(errors='replace')[-1500:]}" for path in paths)

    def stop(self) -> None:
        """End the jobs, then the daemons, then whatever of either is left."""
        if "slurmctld" in self.daemons:
            with suppress(SlurmFailed, subprocess.TimeoutExpired):
                self.run("scancel", "--signal=KILL", "--full", "--user=root")
                self.run("scancel", "--user=root")
        for process in self.daemons.values():
            process.kill()  # nothing of it is needed again
        for process in self.daemons.values():
            process.wait(timeout=STOP_SECONDS)
        for pid in self._left():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _is_idle(self) -> bool:
        """Whether every node is idle and was heard: a job is given none that was not."""
        reported = self.run("sinfo", "-h", "-N", "-o", "%N|%T|%E").splitlines()
        return sorted(reported) == sorted(f"{node}|idle|none" for node in self.nodes)

    def _answers(self) -> bool:
        try:
            self.run("scontrol", "ping")
            self.run("sinfo", "-h")
        except SlurmFailed:
            return False
        return True

    def _start(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.out.log").open("ab") as output:
            self.daemons[name] = subprocess.Popen(
                [program(command[0]) or command[0], *command[1:]], env=os.environ | self.variables, cwd=self.folder,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def _left(self) -> Iterator[int]:
        """Yield the processes that were started below this Slurm: its configuration is in their environment."""
        mark = f"SLURM_CONF={self.variables['SLURM_CONF']}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                with suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        yield int(entry.name)


@contextmanager
def slurm(folder: Path, nodes: Sequence[str] = NODES, more: str = "") -> Iterator[SlurmCluster]:
    """Run a Slurm with these nodes, one processor each, all idle. ``more``: further lines of its configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "state").mkdir()
    spool = tempfile.mkdtemp(prefix="slurm")  # short: the path of a step's Unix socket below it may have 108 bytes
    configuration = folder / "slurm.conf"
    ports = _free_ports(1 + len(nodes))
    lines = (
        CONFIGURATION.format(host=socket.gethostname().split(".")[0], port=ports[0], folder=folder, spool=spool) + more
    )
    for node, port in zip(nodes, ports[1:], strict=True):
        host = socket.gethostname().split(".")[0]
        lines += f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=1 RealMemory=1000\n"
    configuration.write_text(f"{lines}PartitionName=all Nodes={','.join(nodes)} Default=YES MaxTime=INFINITE\n")
    cluster = SlurmCluster(folder, tuple(nodes), {"SLURM_CONF": str(configuration)})
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, spool, ignore_errors=True)
        stack.enter_context(_munge(folder / "munge"))
        stack.callback(cluster.stop)
        cluster.start_controller("-c")
        for node in nodes:
            cluster.start_node(node)
        cluster.wait("idle nodes", READY_SECONDS, cluster._is_idle)
        yield cluster


@contextmanager
def _munge(folder: Path) -> Iterator[None]:
    """Run munge with a key of its own."""
    folder.mkdir(mode=0o755)
    key = folder / "key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    with (folder / "output.log").open("wb") as output:
        process = subprocess.Popen(
            [
                program("munged") or "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={folder}/socket",
                f"--pid-file={folder}/pid", f"--log-file={folder}/log", f"--seed-file={folder}/seed", "--num-threads=2",
            ],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + READY_SECONDS
        while not (folder / "socket").exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SlurmFailed(f"munged does not start: {(folder / 'output.log').read_text(errors='replace')}")
            time.sleep(POLL_SECONDS)
        yield
    finally:
        process.terminate()
        process.wait(timeout=STOP_SECONDS)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        bound = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in bound]
