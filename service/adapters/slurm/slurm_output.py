"""What Slurm's commands print, as values. Pure.

Jobs are read from ``squeue`` with a format of our own and not from ``scontrol show job``: there a job's name, which its
user chose, stands before the fields that matter and can look like them. Here it comes last.
"""

from __future__ import annotations

import re

import msgspec
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

from service.adapters.scheduler import CommandRefused

JOB_FORMAT = "%A|%T|%r|%S|%e|%n|%x|%N|%j"
STEP_FORMAT = "%i|%S|%N|%j"
FLAGS_FORMAT = "JobID:20,BatchFlag:4,Requeue:4"
RESTARTS_FORMAT = "JobID:20,RestartCnt:12"
LONGEST_REASON = 200
_CLOCK = re.compile(r"^sdiag output at .*\((\d{1,12})\)$", re.MULTILINE)
RUNS = frozenset({"RUNNING", "SUSPENDED", "STOPPED"})
FAILED = frozenset({"FAILED", "NODE_FAIL", "BOOT_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "LAUNCH_FAILED"})
"""Ended by a fault. A job that was cancelled, ran out of its time or is done is not to run again."""

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_NAMED = re.compile(r"\s*NodeName=(\S+)")
_STATE = re.compile(r"(?:^|\s)State=(\S+)")
_REASON = re.compile(r"\sReason=(?P<reason>.*?)\s\[(?P<by>[^\s@\[\]]*)@[^\s\]]*\](?=\s|$)", re.DOTALL)
_REASON_WITHOUT_USER = re.compile(r"\sReason=(?P<reason>.*)$", re.DOTALL)
_MARK = re.compile(r"faulthound (?P<incident>inc-[0-9a-f]{12}) (?P<remediation>rem-[0-9a-f]{12}):")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._:@+-]+")
_NOT_IN_A_REASON = re.compile(r"[^ -~]+|[\"'\\|`$]+")


class Unreadable(CommandRefused):
    """A command printed something unexpected; the message has its beginning."""


class SlurmNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node as Slurm has it."""

    name: str
    flags: frozenset[str]  # IDLE, ALLOCATED, DOWN …, and DRAIN, NOT_RESPONDING …
    reason: str = ""
    by: str = ""  # the user who gave the reason

    @property
    def drained(self) -> bool:
        """Whether it is drained: nothing new is started on it."""
        return "DRAIN" in self.flags

    @property
    def state(self) -> str:
        """Its state in words: ``idle+drain``."""
        return "+".join(sorted(self.flags, key=lambda flag: (flag in ("DRAIN", "NOT_RESPONDING"), flag))).lower()


class SlurmJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as Slurm has it."""

    number: str
    state: str
    reason: str = ""  # why it waits, or how it ended
    started_at: float | None = None
    ended_at: float | None = None  # of one that has not: when it is to end
    required: tuple[str, ...] = ()  # nodes that its user asked for by name
    excluded: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    name: str = ""

    @property
    def known_as(self) -> frozenset[str]:
        """The names under which agents may have reported it."""
        return frozenset({self.name, _NOT_IN_A_NAME.sub("-", f"{self.name}-{self.number}").strip("-")})


class SlurmStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a job: what one ``srun`` has started. The number before the dot is the job's, or its component's."""

    id: str
    started_at: float | None = None
    nodes: tuple[str, ...] = ()
    name: str = ""

    @property
    def job(self) -> str:
        """The number of its job, or of the component of a heterogeneous one."""
        return self.id.partition(".")[0]


def is_plain(name: str) -> bool:
    """Whether a name stands for itself in every command: no host list, no option, and not Slurm's word for all nodes."""
    return _PLAIN.fullmatch(name) is not None and name.upper() != "ALL"


def node(text: str, name: str) -> SlurmNode:
    """Return the node of ``scontrol show node --oneliner NAME``; a reason may hold line ends."""
    named, state = _NAMED.match(text), _STATE.search(text)
    if named is None or named[1] != name or state is None:
        raise Unreadable(f"scontrol prints for node {name}: {_begin(text)}")
    flags = frozenset(flag.rstrip("*~#!%$@^-") for flag in state[1].upper().split("+"))
    found = _REASON.search(text, state.end()) or _REASON_WITHOUT_USER.search(text, state.end())
    if found is None:
        return SlurmNode(name=name, flags=flags)
    return SlurmNode(name=name, flags=flags, reason=found["reason"].strip(), by=found.groupdict().get("by") or "")


def jobs(text: str) -> list[SlurmJob]:
    """Return the jobs of ``squeue --format JOB_FORMAT`` with SLURM_TIME_FORMAT=%s."""
    return [_job(line) for line in text.splitlines() if line.strip()]


def steps(text: str) -> list[SlurmStep]:
    """Return the steps of ``squeue --steps --format STEP_FORMAT``; not the batch script, and not what is beside it."""
    found = []
    for line in filter(str.strip, text.splitlines()):
        parts = line.split("|", 3)
        if len(parts) != 4:
            raise Unreadable(f"squeue prints {_begin(line)}")
        id, started, nodes, name = parts
        if re.fullmatch(r"\d{1,10}\.\d{1,10}", id):
            found.append(SlurmStep(id=id, started_at=_instant(started), nodes=expanded(nodes), name=name))
    return found


def requeueable(text: str, number: str) -> str | None:
    """Return why a job cannot be put back into the queue, None where it can, of ``squeue --Format FLAGS_FORMAT``."""
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and words[0] == number and set(words[1:]) <= {"0", "1"}:
            if words[1] == "0":
                return "it is no batch job: only what sbatch has submitted can run again by itself"
            return None if words[2] == "1" else "it was submitted with --no-requeue, or the cluster has JobRequeue=0"
    raise Unreadable(f"squeue prints for job {number}: {_begin(text)}")


def restarts(text: str, number: str) -> int:
    """Return how often a job was put back into the queue, of ``squeue --Format RESTARTS_FORMAT``."""
    for line in text.splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == number and words[1].isdecimal():
            return int(words[1])
    raise Unreadable(f"squeue prints for job {number}: {_begin(text)}")


def clock(text: str) -> float:
    """Return the controller's time, UTC seconds, of ``sdiag``."""
    found = _CLOCK.search(text)
    if found is None:
        raise Unreadable(f"sdiag prints {_begin(text)}")
    return float(found[1])


def expanded(nodes: str) -> tuple[str, ...]:
    """Return the nodes of a host list, ``gpu[0-2,7]``."""
    if nodes.strip() in ("", "(null)", "N/A"):
        return ()
    try:
        return tuple(NodeSet(nodes, resolver=RESOLVER_NOGROUP))
    except NodeSetException:
        raise Unreadable(f"no host list: {_begin(nodes)}") from None


def folded(nodes: tuple[str, ...] | list[str]) -> str:
    """Return nodes as a host list. All their names are plain."""
    return str(NodeSet.fromlist(nodes, resolver=RESOLVER_NOGROUP)) if nodes else ""


def mark(incident: str, remediation: str) -> str:
    """Return what every reason of one remediation begins with: it identifies our drains."""
    return f"faulthound {incident} {remediation}:"


def marked(text: str) -> tuple[str, str] | None:
    """Return the incident and the remediation that a reason is of, None where it is not ours."""
    found = _MARK.match(text)
    return None if found is None else (found["incident"], found["remediation"])


def reason(incident: str, remediation: str, why: str) -> str:
    """Return the reason of a drain, one short line that survives Slurm's own quoting."""
    text = f"{mark(incident, remediation)} {why}"
    plain = " ".join(_NOT_IN_A_REASON.sub(" ", text).split())
    return plain if len(plain) <= LONGEST_REASON else f"{plain[: LONGEST_REASON - 3].rstrip()}..."


def _job(line: str) -> SlurmJob:
    parts = line.split("|", 8)
    if len(parts) != 9 or not parts[0].isdecimal():
        raise Unreadable(f"squeue prints {_begin(line)}")
    number, state, why, started, ended, required, excluded, nodes, name = parts
    return SlurmJob(
        number=number, state=state, reason=why, started_at=_instant(started), ended_at=_instant(ended),
        required=expanded(required), excluded=expanded(excluded), nodes=expanded(nodes), name=name,
    )  # fmt: skip


def _instant(text: str) -> float | None:
    return float(text) if text.isdecimal() else None


def _begin(text: str) -> str:
    return f"{text.strip()[:100]!a}"
