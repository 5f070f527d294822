"""A Slurm in memory that passes its time, kills its client or hangs at any command: for what no real one does on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from service.adapters.scheduler import CommandRefused, SchedulerAway
from service.adapters.slurm.slurm_commands import COMMAND_SECONDS, Slurm
from service.adapters.slurm.slurm_output import SlurmJob, SlurmNode, expanded

EPOCH = 1_000_000.0  # its clock has nothing to do with anybody else's
ENDS_SECONDS = 3.0  # that a requeued job's processes take to end
NODES = ("gpu0", "gpu1", "gpu2", "gpu3")
T = TypeVar("T")
At = Callable[[int, str], None]


class Killed(BaseException):
    """The adapter has been killed."""


class PretendedTime:
    """Time that passes when somebody sleeps."""

    CLOCK_BOOTTIME = 7

    def __init__(self) -> None:
        self.seconds = 100.0

    def monotonic(self) -> float:
        """Return the time."""
        return self.seconds

    def clock_gettime(self, _which: int) -> float:
        """Return the time."""
        return self.seconds

    def sleep(self, seconds: float) -> None:
        """Let it pass."""
        self.seconds += seconds


class Pretended(Slurm):
    """One job on three of four nodes. ``at`` is called before and after each command with its number."""

    def __init__(self, clock: PretendedTime, at: At) -> None:
        super().__init__()
        self._clock, self._at = clock, at
        self.commands = 0
        self.changes: dict[int, str] = {}  # number of the command → what it was
        self.restarts = 0  # by whomever
        self._nodes = {name: SlurmNode(name=name, flags=frozenset({"IDLE"})) for name in NODES}
        self._job = SlurmJob(number="7", state="RUNNING", started_at=EPOCH - 3_600, nodes=NODES[:3], name="llama")
        self._since = clock.seconds

    def goes_on(self) -> None:
        """Let nothing more happen to whoever calls."""
        self._at = nothing

    def drained(self) -> list[str]:
        """Return the nodes that are out; no command asks."""
        return [name for name, node in self._nodes.items() if node.drained]

    def put_back(self) -> bool:
        """Let Slurm put the job back into the queue by itself; return whether it ran."""
        if self._now().state != "RUNNING":
            return False
        self.restarts += 1
        self._job, self._since = replace(self._job, state="COMPLETING"), self._clock.seconds
        return True

    def runs_on(self) -> tuple[str, ...]:
        """Return the nodes that the job runs on; no command asks."""
        return self._now().nodes

    def node(self, name: str) -> SlurmNode | None:
        """Return a node."""
        return self._told(lambda: self._nodes.get(name))

    def job(self, number: str) -> SlurmJob | None:
        """Return the job."""
        return self._told(lambda: self._now() if number == "7" else None)

    def parts(self, number: str) -> list[SlurmJob]:
        """Return the job."""
        return self._told(lambda: [self._now()] if number == "7" else [])

    def unrequeueable(self, number: str) -> str | None:
        """Return that it can be put back."""
        return self._told(lambda: None)

    def has_run(self, number: str) -> bool:
        """Return that it has."""
        return self._told(lambda: True)

    def clock(self) -> float:
        """Return Slurm's own time, whole seconds."""
        return self._told(lambda: float(int(EPOCH + self._clock.seconds)))

    def change(self, command: Sequence[str]) -> None:
        """Do what a command says."""
        self._told(lambda: self._change(list(command)))

    def _told(self, what: Callable[[], T]) -> T:
        self.commands += 1
        number = self.commands
        self._clock.seconds += 0.05
        self._at(number, "before")
        found = what()
        self._at(number, "after")
        return found

    def _now(self) -> SlurmJob:
        """Let a job that was put back end, and one that may start do so, as time has passed."""
        waited = self._clock.seconds - self._since
        if self._job.state == "COMPLETING" and waited > ENDS_SECONDS:
            self._job = replace(self._job, state="PENDING", reason="BeginTime", nodes=(), started_at=None)
            self._since = self._clock.seconds
        elif self._job.state == "PENDING" and self._job.reason == "None" and waited > 1.0:
            free = [name for name in NODES if not self._nodes[name].drained and name not in self._job.excluded]
            self._job = replace(
                self._job, state="RUNNING", nodes=tuple(free[:3]), started_at=float(int(EPOCH + self._clock.seconds))
            )
        return self._job

    def _change(self, command: list[str]) -> None:
        self.changes[self.commands] = " ".join(command[1:4])
        reported = dict(word.split("=", 1) for word in command if "=" in word)
        if command[1] == "requeue":
            if not self.put_back():
                raise CommandRefused("Job is pending execution")
        elif "NodeName" in reported:
            name, drains = reported["NodeName"], reported["State"] == "DRAIN"
            flags = frozenset({"IDLE", "DRAIN"} if drains else {"IDLE"})
            self._nodes[name] = SlurmNode(name=name, flags=flags, reason=reported.get("Reason", ""), by="slurm")
        elif self._now().state == "PENDING":
            self._job = replace(self._job, reason="None", excluded=expanded(reported.get("ExcNodeList", "")))
            self._since = self._clock.seconds


def nothing(_number: int, _when: str) -> None:
    """Let a command be."""


def hangs(clock: PretendedTime, at: int, when: str, meanwhile: Callable[[], None] = lambda: None) -> At:
    """Return what lets one command hang until it is ended: before it had its effect, or after."""

    def hang(number: int, now: str) -> None:
        if (number, now) == (at, when):
            clock.seconds += COMMAND_SECONDS
            meanwhile()
            raise SchedulerAway("scontrol did not answer within 20 s")

    return hang


def kills(at: int, when: str) -> At:
    """Return what kills the client before or after a command."""

    def kill(number: int, now: str) -> None:
        if (number, now) == (at, when):
            raise Killed

    return kill
