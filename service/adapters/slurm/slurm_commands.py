"""Slurm's commands, run as lists with a time bound. Reading is safe to repeat; the callers make changes safe to repeat."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress

from service.adapters.scheduler import CommandRefused, SchedulerAway
from service.adapters.slurm import slurm_output
from service.adapters.slurm.slurm_output import (
    FLAGS_FORMAT,
    JOB_FORMAT,
    RESTARTS_FORMAT,
    STEP_FORMAT,
    SlurmJob,
    SlurmNode,
    SlurmStep,
)

COMMAND_SECONDS = 20.0  # a client gives up on a controller that is away after 9 to 15 s
MOST_OUTPUT = 64 << 20
_AWAY = (
    "unable to contact slurm controller", "socket timed out", "connection refused", "connection reset", "zero bytes",
    "unable to establish", "controller is in standby", "slurmctld is", "communication connection failure",
    "protocol authentication error", "resource temporarily unavailable",
)  # fmt: skip


class Slurm:
    """The Slurm that this machine's commands talk to."""

    def __init__(self, seconds: float = COMMAND_SECONDS) -> None:
        self._seconds = seconds
        self._environment = os.environ | {"SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}

    def node(self, name: str) -> SlurmNode | None:
        """Return a node, None where Slurm has none of that name."""
        if not slurm_output.is_plain(name):
            return None
        try:
            return slurm_output.node(self._run(["scontrol", "show", "node", "--oneliner", name]), name)
        except CommandRefused as refusal:
            if "not found" in str(refusal):
                return None
            raise

    def job(self, number: str) -> SlurmJob | None:
        """Return a job, None where Slurm does not remember it."""
        return next((job for job in self.parts(number) if job.number == number), None)

    def parts(self, number: str) -> list[SlurmJob]:
        """Return a job, and with it those that have their number from it: of an array, or of a heterogeneous job."""
        try:
            return self._jobs(["--jobs", number])
        except CommandRefused as refusal:
            if "Invalid job id" in str(refusal):
                return []
            raise

    def jobs_on(self, nodes: Sequence[str]) -> list[SlurmJob]:
        """Return the jobs that run, or have lately run, on any of these nodes, which Slurm knows."""
        return self._jobs(["--nodelist", slurm_output.folded(list(nodes))])

    def jobs_named(self, name: str) -> list[SlurmJob]:
        """Return the jobs of this name."""
        return self._jobs(["--name", name])

    def steps(self, numbers: Sequence[str]) -> list[SlurmStep]:
        """Return the steps of these jobs that have not ended. Each component of a heterogeneous job has its own number."""
        which = ["--jobs", ",".join(numbers), "--format", STEP_FORMAT]
        try:
            return slurm_output.steps(self._run(["squeue", "--noheader", "--all", "--steps", *which]))
        except CommandRefused as refusal:
            if "Invalid job id" in str(refusal):
                return []
            raise

    def clock(self) -> float:
        """Return the controller's time, to which Slurm's instants compare: whole seconds, UTC."""
        return slurm_output.clock(self._run(["sdiag"]))

    def unrequeueable(self, number: str) -> str | None:
        """Return why a job cannot be put back into the queue, None where it can."""
        return slurm_output.requeueable(self._squeue_field(number, FLAGS_FORMAT), number)

    def has_run(self, number: str) -> bool:
        """Return whether a job that waits has run before."""
        return slurm_output.restarts(self._squeue_field(number, RESTARTS_FORMAT), number) > 0

    def change(self, command: Sequence[str]) -> None:
        """Run one of the commands below."""
        self._run(command)

    def _jobs(self, which: list[str]) -> list[SlurmJob]:
        return slurm_output.jobs(
            self._run(["squeue", "--noheader", "--all", "--states=all", "--format", JOB_FORMAT, *which])
        )

    def _squeue_field(self, number: str, what: str) -> str:
        return self._run(["squeue", "--noheader", "--all", "--states=all", "--jobs", number, "--Format", what])

    def _run(self, command: Sequence[str]) -> str:
        try:
            done = self._ended(command)
        except OSError as error:
            raise CommandRefused(f"{command[0]} cannot be run ({error.strerror}): is slurm-client installed?") from None
        text = done.stderr.decode("utf-8", "replace").strip() or done.stdout[:300].decode("utf-8", "replace").strip()
        if done.returncode:
            away = any(phrase in text.lower() for phrase in _AWAY)
            raise (SchedulerAway if away else CommandRefused)(
                f"{' '.join(command[:3])}: {' '.join(text.split())[:300]}"
            )
        if len(done.stdout) > MOST_OUTPUT:
            raise CommandRefused(
                f"{' '.join(command[:3])} printed {len(done.stdout):,} bytes: more than any answer has"
            )
        return done.stdout.decode("utf-8", "replace")

    def _ended(self, command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
        """Run a command; end it with all that it has started: ``scontrol`` may be a script, and nothing may act later."""
        with subprocess.Popen(
            command, env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:  # fmt: skip
            try:
                out, err = process.communicate(timeout=self._seconds)
            except BaseException as problem:
                with suppress(OSError):  # it has just ended, or is root's: then its end is waited for
                    os.killpg(process.pid, signal.SIGKILL)
                if not isinstance(problem, subprocess.TimeoutExpired):
                    raise
                away = f"{' '.join(command[:3])} did not answer within {self._seconds:.0f} s"
                raise SchedulerAway(away) from None
        return subprocess.CompletedProcess(command, process.returncode, out, err)


# --- the commands that change something: what a dry run prints


def drain(node: str, reason: str) -> list[str]:
    """Let nothing new start on a node."""
    return ["scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}"]


def undrain(node: str) -> list[str]:
    """Take a drain back. Not RESUME: that would also bring back a node that has gone down meanwhile."""
    return ["scontrol", "update", f"NodeName={node}", "State=UNDRAIN"]


def requeue(job: str) -> list[str]:
    """End a job's processes and put it back into the queue, where it would wait for two minutes."""
    return ["scontrol", "requeue", job]


def start_now(job: str, excluded: Sequence[str]) -> list[str]:
    """Let a waiting job start at once, on other nodes than these."""
    elsewhere = [f"ExcNodeList={slurm_output.folded(list(excluded))}"] if excluded else []
    return ["scontrol", "update", f"JobId={job}", "StartTime=now", *elsewhere]


def exclude(job: str, excluded: Sequence[str]) -> list[str]:
    """Let a waiting job start on other nodes than these; on any, where there are none."""
    return ["scontrol", "update", f"JobId={job}", f"ExcNodeList={slurm_output.folded(list(excluded))}"]


def end_step(step: str) -> list[str]:
    """End the processes of a step, and of nothing else of its job."""
    return ["scancel", step]
