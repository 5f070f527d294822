"""Starts the job as plain processes, and restarts the role of a process that ends: only that, while the others go on.

    faulthound serve &
    python examples/rl_job/launch.py --folder out/rl

The ranks of the trainer are one group: they are restarted together. The controller's end is the end of the job.

With `--restarts faulthound` it restarts nothing by itself: it receives the signed webhook of `faulthound adapter webhook`, claims
what was approved, and restarts that role, or the whole job (receiver.py).
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from receiver import Receiver

HERE = Path(__file__).resolve().parent
CLIENT = (
    HERE.parents[1] / "collectors" / "faulthound_roles.py"
)  # `faulthound-agent roles --write DIR` copies it elsewhere
MOST_RESTARTS = 20
END_SECONDS = 5.0


@dataclass
class Member:
    """One process of the job."""

    role: str
    instance: str
    command: list[str]
    process: subprocess.Popen[bytes] | None = None
    restarts: int = 0
    noticed: bool = False  # its end was reported


@dataclass
class Job:
    """The processes, and the folder of their logs."""

    folder: Path
    variables: dict[str, str]
    members: list[Member] = field(default_factory=list)
    receiver: Receiver | None = None  # by which Faulthound restarts; None: the launcher does
    whole: bool = False  # restart everything when anything ends: what role restarts are compared with

    def add(self, role: str, instance: str, *arguments: str) -> None:
        """Plan one process."""
        self.members.append(Member(role, instance, [sys.executable, "-u", str(HERE / f"{role}.py"), *arguments]))

    def start(self, members: list[Member]) -> None:
        """Start processes, those of a trainer as one group."""
        trainers = [member for member in members if member.role == "trainer"]
        port = free_port()
        for member in members:
            own = {**self.variables, "FAULTHOUND_ROLE": member.role, "RANK": member.instance}
            if member in trainers:
                own |= {"WORLD_SIZE": str(len(trainers)), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            with (self.folder / f"{member.role}-{member.instance}.log").open("ab") as log:
                member.process = subprocess.Popen(
                    member.command, env=os.environ | own, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
                )
            member.noticed = False

    def restart_fenced(self, role: str, instances: frozenset[str] | None) -> dict[str, str]:
        """End instances that are fenced already, and start them anew; return what was done."""
        chosen = [one for one in self.members if one.role == role and (instances is None or one.instance in instances)]
        for member in chosen:
            _kill(member)
            member.restarts += 1
        self.start(chosen)
        return {f"{one.role} {one.instance}": f"pid {one.process.pid}" for one in chosen if one.process is not None}

    def restart_all(self) -> None:
        """End the whole job and start it anew, as the next attempt: the former holders have lost their instances."""
        for member in self.members:
            _kill(member)
        attempt = int(self.variables.get("FAULTHOUND_ATTEMPT", "0")) + 1
        self.variables["FAULTHOUND_ATTEMPT"] = str(attempt)
        self.start(self.members)

    def restart(self, role: str, instance: str | None = None) -> None:
        """End a role, or one instance of it, refuse what it still sends, and start it anew."""
        chosen = [
            one for one in self.members if one.role == role and (instance in (None, one.instance) or role == "trainer")
        ]
        for member in chosen:
            _kill(member)
            _fence(member, self.variables)
            member.restarts += 1
        self.start(chosen)

    def run(self) -> int:
        """Start all and watch them until the controller has ended; return its exit code."""
        self.start(self.members)
        try:
            while True:
                if self.receiver is not None:
                    self.receiver.turn()
                for member in self.members:
                    if member.process is None or (code := member.process.poll()) is None:
                        continue
                    if member.role == "controller" and (code == 0 or not (self.receiver or self.whole)):
                        return code
                    if code == 0:  # the job is ending
                        continue
                    if self.receiver is not None:
                        if not member.noticed:
                            print(f"{member.role} {member.instance} ended with {code}: left to Faulthound", flush=True)
                        member.noticed = True
                        continue
                    if self.whole:
                        print(f"{member.role} {member.instance} ended with {code}: all are restarted", flush=True)
                        self.restart_all()
                        break
                    if member.restarts >= MOST_RESTARTS:
                        print(f"{member.role} {member.instance} ended {MOST_RESTARTS} times: given up", flush=True)
                        return 1
                    print(f"{member.role} {member.instance} ended with {code}: restarted", flush=True)
                    self.restart(member.role, member.instance)
                time.sleep(0.2)
        finally:
            _end(self.members)


def _end(members: list[Member]) -> None:
    """End what still runs: the reward and the tool serve until they are asked to leave."""
    running = [one.process for one in members if one.process is not None and one.process.poll() is None]
    for process in running:
        process.terminate()
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline and any(process.poll() is None for process in running):
        time.sleep(0.05)
    for member in members:
        _kill(member)


def _kill(member: Member) -> None:
    if member.process is not None:
        with suppress(ProcessLookupError):
            os.killpg(member.process.pid, signal.SIGKILL)
        member.process.wait()


def _fence(member: Member, variables: dict[str, str]) -> None:
    """Refuse what the ended process still sends. Without the service the new one waits for the lease of the old one."""
    import faulthound_roles

    service = faulthound_roles.Service(job=variables["FAULTHOUND_JOB"])
    with suppress(faulthound_roles.Refused, OSError):
        for one in service.call("GET")["items"]:
            if (one["role"], one["instance"]) == (member.role, member.instance):
                # By its epoch: a request that comes late must not end the process that is started now.
                own = {name: one[name] for name in ("role", "instance", "epoch")}
                service.call("POST", "/fence", {**own, "reason": "its process is started anew"})


def free_port() -> int:
    """Return a port that nothing listens at now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def planned(options: argparse.Namespace) -> Job:
    """Return the job that the options describe."""
    options.folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(CLIENT, options.folder / CLIENT.name)
    sys.path.insert(0, str(options.folder))
    path = os.pathsep.join([str(options.folder), os.environ.get("PYTHONPATH", "")])
    job = Job(options.folder, {"FAULTHOUND_JOB": options.job, "PYTHONPATH": path})
    folder = ("--folder", str(options.folder))
    off_policy = ("--off-policy", "1") if options.off_policy else ()
    counts = ("--steps", str(options.steps), "--trainers", str(options.trainers))
    job.add("controller", "0", *folder, *counts, "--lease-seconds", str(options.lease_seconds), *off_policy)
    job.add("reward", "0")
    job.add("tool", "0", "--median-seconds", str(options.tool_seconds))
    for number in range(options.trainers):
        job.add("trainer", str(number), *folder)
    for number in range(options.rollouts):
        job.add("rollout", str(number), "--instance", str(number))
    return job


def main() -> int:
    """Run the job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--folder", type=Path, required=True, help="journal, checkpoint and logs; a second call goes on there"
    )
    parser.add_argument("--job", default="rl-sums", help="the job's name (default: rl-sums)")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--trainers", type=int, default=2)
    parser.add_argument("--rollouts", type=int, default=4)
    parser.add_argument("--off-policy", action="store_true", help="rollouts may be one step behind")
    parser.add_argument("--tool-seconds", type=float, default=0.005, help="median delay of the tool")
    parser.add_argument(
        "--lease-seconds", type=float, default=20.0, help="after which another rollout gets a question (default: 20)"
    )
    parser.add_argument(
        "--restarts",
        choices=("launcher", "faulthound", "whole"),
        default="launcher",
        help="who restarts the role that failed; whole: the launcher restarts everything",
    )
    parser.add_argument("--hook-secret", type=Path, metavar="FILE", help="of the webhook: whsec_ and Base64")
    parser.add_argument(
        "--hook-port", type=int, default=0, metavar="N", help="of the webhook (default: any that is free)"
    )
    parser.add_argument("--hook-token", type=Path, metavar="FILE", help="a token with the scope execute")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that it ends its processes
    options = parser.parse_args()
    job = planned(options)
    job.whole = options.restarts == "whole"
    if options.restarts == "faulthound":
        if options.hook_secret is None:
            parser.error("--restarts faulthound takes --hook-secret FILE, the secret of `faulthound adapter webhook`")
        url = os.environ.get("FAULTHOUND_SERVICE", "http://127.0.0.1:4747")
        token = options.hook_token.read_text().strip() if options.hook_token else ""
        job.receiver = Receiver(url, token, options.job, options.hook_secret, job.restart_fenced, job.restart_all)
        print(f"receiver on port {job.receiver.listen(options.hook_port)}", flush=True)
    return job.run()


if __name__ == "__main__":
    sys.exit(main())
