"""A launcher's lines about its processes' ends: torchrun, srun, slurmstepd, mpirun, DeepSpeed, Ray, the shell, Kubernetes.

A launcher sees exits, not reasons; and when one process fails it ends the others itself. Those lines are kept under their
own names (``closing_signal``, ``step_cancelled``), so that they do not count as failures.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Callable, Iterator
from typing import Any

from collectors.formats.job_log.job_lines import Line, instant
from collectors.formats.job_log.shapes import event, fate, fields_of, host_of, members_of
from collectors.records import LogEvent

MAX_SUMMARY_LINES = 200  # of one failure's block, which may hold a whole traceback

_WORDS = {
    "killed": 9, "terminated": 15, "segmentation fault": 11, "bus error": 7, "aborted": 6, "abort": 6,
    "illegal instruction": 4, "floating point exception": 8, "out of memory": 9, "interrupt": 2, "quit": 3,
}  # fmt: skip
"""What srun, bash and mpirun call a death by signal. "Out Of Memory" is Slurm's word for a cgroup's kill."""

_FIELD = re.compile(r"\s*(time|host|rank|exitcode|error_file|traceback)\s*: ?(.*)")
_CUT_SUMMARY = re.compile(r"\s{0,8}rank\s{1,8}: \d{1,7} \(local_rank: \d{1,4}\)\s*$")
_INDEX = re.compile(r"\[\d+\]:\s*$")
_LAST_EXCEPTION = re.compile(r"\s*([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning|Failure)): ?(.{0,1000})")

Build = Callable[[re.Match[str], Line], Iterator[LogEvent]]


def death_of(word: str) -> dict[str, int]:
    """The fields of a launcher's phrase: ``Killed``, ``Exited with exit code 1``, ``Segmentation fault (core dumped)``."""
    text = word.lower().replace("(core dumped)", "").strip(" .")
    if found := re.search(r"exit(?:ed)? (?:with )?(?:exit )?code (-?\d{1,6})", text):
        return fate(int(found[1]))
    return {"signal": _WORDS[text]} if text in _WORDS else {}


def _srun_task(found: re.Match[str], line: Line) -> Iterator[LogEvent]:
    fields = death_of(found[3])
    name = "oom_kill" if "out of memory" in found[3].lower() else "exit"
    for task in members_of(found[2]):
        yield event(line, name, **fields, rank=task, node=host_of(found[1]), group="task")


def _cancelled(found: re.Match[str], line: Line) -> Iterator[LogEvent]:
    reason = (found[3] or "").upper()
    words = {
        "PREEMPTION": "preempted",
        "TIME LIMIT": "time_limit",
        "NODE FAILURE": "node_failure",
        "REQUEUE": "preempted",
    }
    name = next((name for word, name in words.items() if word in reason), None)
    # The node in the line is the one that reports it. A cancelled step is srun's own clean-up after a task's failure; a
    # cancelled job is a person's decision.
    yield event(line, name or ("step_cancelled" if found[1] == "STEP" else "cancelled"), node=None)


def _agent_failure(found: re.Match[str], line: Line) -> Iterator[LogEvent]:
    yield event(line, "exit", local_rank=int(found[2]), pid=int(found[3]), first=True, **fate(int(found[1])))


def _mpi_signal(found: re.Match[str], line: Line) -> Iterator[LogEvent]:
    yield event(line, "exit", rank=int(found[1]), node=host_of(found[2]), signal=int(found[3]), first=True)


def _signal_number(name: str) -> int | None:
    return next((number.value for number in signals.Signals if number.name == name), None)


def _spawned(found: re.Match[str], line: Line) -> Iterator[LogEvent]:
    how = found[2] or found[3]
    fields: dict[str, Any] = fate(int(how)) if how.isdigit() else {"signal": _signal_number(how)}
    yield event(line, "exit", rank=int(found[1]), first=True, **fields)


def _ray_worker(found: re.Match[str], line: Line) -> Iterator[LogEvent]:
    yield event(
        line, "exit", pid=int(found[1]) if found[1] else None, text="a Ray worker died unexpectedly: " + line.text[:300]
    )


def _ended(found: re.Match[str], line: Line) -> Iterator[LogEvent]:
    """An exit with its code; DeepSpeed's launcher and Lightning's report the first process that failed.

    The command in DeepSpeed's line is that of the process that it started last, whichever failed (``launcher/launch.py``).
    """
    yield event(line, "exit", first=True, **fields_of(found))


def _plain(name: str, **fields: Any) -> Build:
    def build(found: re.Match[str], line: Line) -> Iterator[LogEvent]:
        yield event(line, name, **{**fields, **fields_of(found)})

    return build


_LINES: tuple[tuple[str, re.Pattern[str], Build], ...] = (
    ("srun: error", re.compile(r"srun: error: ([\w.\[\],-]+): tasks? ([\d,-]+): (.{3,120})"), _srun_task),
    ("CANCELLED ", re.compile(r"\*\*\* (JOB|STEP) \S+ (?:ON (\S+) )?CANCELLED (?:AT \S+ ?)?(?:DUE (?:TO|to) (.+?))? ?\*\*\*"),
     _cancelled),
    ("srun: sending Ctrl-C to ", re.compile(r"^srun: sending Ctrl-C to (?:StepId=|job )"), _plain("terminated", signal=2)),
    ("srun: forcing job term", re.compile(r"^srun: forcing job termination"), _plain("terminated")),
    ("abort is already in progress", re.compile(r"abort is already in progress\.{3}hit ctrl-c again"),
     _plain("terminated", signal=2)),
    ("Detected KeyboardInterrupt, att", re.compile(r"^Detected KeyboardInterrupt, attempting graceful shutdown"),
     _plain("traceback", exception="KeyboardInterrupt")),
    ("kill event", re.compile(r"Detected \d+ oom[-_]kill event"), _plain("oom_kill", signal=9)),
    ("OOMKilled", re.compile(r"\bOOMKilled\b"), _plain("oom_kill", signal=9)),
    ("reempt", re.compile(r"(?i)\b(?:job|pod|node|instance|\w*vm) (?:\S+ )?(?:was|is being|has been|will be) preempted"),
     _plain("preempted")),
    ("reempt", re.compile(r"\bReason: (?:Preempted|Preempting)\b|DisruptionTarget.{0,400}[Pp]reempt|spot instance interruption"),
     _plain("preempted")),
    ("local_rank", re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid: (\d+)\)"), _agent_failure),
    ("closing signal", re.compile(r"Sending process (?P<pid>\d+) closing signal (?:SIGTERM|SIGINT|SIGKILL)"),
     _plain("closing_signal", signal=15)),
    ("forcefully exiting via", re.compile(r"Unable to shutdown process (?P<pid>\d+) via \S{1,20}, forcefully exiting via"),
     _plain("closing_signal", signal=15)),
    ("sigkill_handler", re.compile(r"Killing subprocess (?P<pid>\d+)"), _plain("closing_signal", signal=15)),
    ("death signal", re.compile(
        r"Received (?:(?P<signal>15|1|2)|Signals\.(?P<death>SIG\w{2,5})) death signal, shutting down workers"),
     _plain("terminated")),
    ("got signal", re.compile(r"SignalException: Process (?P<pid>\d+) got signal: (?P<signal>\d+)"), _plain("terminated")),
    ("noticed that", re.compile(
        r"noticed that process rank (\d+) with PID \S{1,20} on node (\S+) exited on\s+signal (\d+)"), _mpi_signal),
    ("terminated with", re.compile(r"process (\d+) terminated with (?:signal (SIG[A-Z0-9]+)|exit code (\d+))", re.IGNORECASE),
     _spawned),
    ("orker died or was killed", re.compile(r"[Aa] worker died or was killed(?:.*Worker PID: (\d{1,9}))?"), _ray_worker),
    ("died with <Signals", re.compile(r"CalledProcessError: .* died with <Signals\.SIG\w+: (?P<signal>\d+)>"), _plain("exit")),
    ("exits with return code", re.compile(r"exits with return code = (?P<exit>-?\d{1,3})"), _ended),
    ("Child process with PID", re.compile(
        r"(?:\[rank: (?P<rank>\d{1,7})\] )?Child process with PID (?P<pid>\d{1,9}) terminated with code "
        r"(?P<exit>-?\d{1,3})"), _ended),
    ("] Received SIG", re.compile(r"^\[rank: (?P<rank>\d{1,7})\] Received SIG\w{2,5}: (?P<signal>\d{1,2})"),
     _plain("terminated")),
)  # fmt: skip
"""(a cheap word, the line's shape, what it becomes): the word spares most lines the expression."""

WORDS = (
    *(word for word, _, _ in _LINES), "torch/distributed/elastic", "torch.distributed.elastic", "distributed/run.py",
    "Root Cause (first", "Failures:", "Killed", "Segmentation fault", "Bus error", "Aborted", "RUNNING AT", "Process name:",
    "BAD TERMINATION",
)  # fmt: skip
"""A line with none of these is no launcher's, unless it goes on with a summary."""

_SHELL = re.compile(
    r"(?:.{1,200}: line \d+: +(?:\d+ )?)?(Killed|Segmentation fault|Bus error|Aborted)\b(?: \(core dumped\))?"
)
_MPICH_BAD = re.compile(r"=\s+BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES")
_MPICH_RANK = re.compile(r"=\s+(?:RANK (\d+) )?PID (\d+) RUNNING AT (\S+)")
_MPICH_END = re.compile(r"=\s+(?:EXIT CODE: (\d+)|KILLED BY SIGNAL: (\d+))")
_DEADLY = frozenset({4, 6, 7, 8, 9, 11})
_PRRTE_NAME = re.compile(r"\s*Process name: \[\S{1,200},(\d{1,7})\](?:\s{1,8}Exit code:\s{1,8}(\d{1,3}))?")
_PRRTE_CODE = re.compile(r"[\s#]*Exit code:\s+(\d+)")  # "#": a paste's ruler below it made it a heading


class Launcher:
    """The launcher's words in one stream. ``feed`` returns None for a line that is not a launcher's."""

    def __init__(self) -> None:
        self.is_torchrun = False
        self._section: bool | None = None  # inside a torchrun summary: are we under "Root Cause"?
        self._block: dict[str, str] = {}
        self._block_line: Line | None = None
        self._block_lines = 0
        self._mpi: dict[str, Any] = {}
        self._mpi_line: Line | None = None

    @property
    def busy(self) -> bool:
        """True inside a summary, whose further lines have no mark of their own."""
        return self._section is not None or bool(self._mpi)

    def feed(self, line: Line) -> list[LogEvent] | None:
        """Give the events of one line; an empty list where the line belongs to a summary that is still going on."""
        text = line.text
        if "torch/distributed/elastic" in text or "torch.distributed.elastic" in text or "distributed/run.py" in text:
            self.is_torchrun = True
        if (summary := self._summary(line)) is not None:
            return summary
        for word, shape, build in _LINES:
            if word in text and (found := shape.search(text)):
                return list(build(found, line))
        if (text[:1] in "KSBA" or ": line " in text) and len(text) < 400 and (found := _SHELL.match(text)):
            # bash names its child, whose exit this is; `rank` stays open where the line's prefix gives none
            return [event(line, "exit", signal=_WORDS[found[1].lower()])]
        return self._mpirun(line)

    def close(self) -> list[LogEvent]:
        """Give what is still open: the file ended inside a summary, or before a process's exit code."""
        ended, named, self._mpi = self._end_block(), self._mpi, {}
        if named.get("rank") is not None and self._mpi_line is not None:
            ended.append(event(self._mpi_line, "exit", first=True, **named))
        return ended

    def _summary(self, line: Line) -> list[LogEvent] | None:
        text = line.text
        if text.startswith("Root Cause (first observed failure)"):
            ended, self._section = self._end_block(), True
            return ended
        if text.startswith("Failures:"):
            self._section = False
            return []
        if self._section is None and _CUT_SUMMARY.match(text):
            self._section, self._block, self._block_line, self._block_lines = False, {"index": ""}, line, 0
        if self._section is None:
            return None
        if _INDEX.match(text):
            ended = self._end_block()
            self._block, self._block_line, self._block_lines = {"index": text}, line, 0
            return ended
        if text.startswith(("----", "====")):
            ended = self._end_block()
            self._section = None if text[0] == "=" else self._section
            return ended
        return self._summary_field(text) if self._block else None

    def _summary_field(self, text: str) -> list[LogEvent] | None:
        self._block_lines += 1
        if self._block_lines > MAX_SUMMARY_LINES:
            ended, self._section = self._end_block(), None
            return ended
        if found := _FIELD.match(text):
            self._block[found[1]] = found[2].strip()
        elif found := _LAST_EXCEPTION.match(text):
            self._block["exception"], self._block["message"] = found[1], found[2]
        return []

    def _end_block(self) -> list[LogEvent]:
        block, line, self._block = self._block, self._block_line, {}
        cut = self._section is True and "rank" in block  # a paste ends in the block of the first failure
        if not block or line is None or not ("exitcode" in block or cut):
            return []
        rank = re.match(r"(\d+)(?: \(local_rank: (\d+)\))?", block.get("rank", ""))
        code = re.match(r"(-?\d+)(?:\s+\(pid: (\d+)\))?", block.get("exitcode", ""))
        fields: dict[str, Any] = fate(int(code[1])) if code else {}
        return [
            event(
                line, "torchrun_failure", **fields, first=bool(self._section),
                rank=int(rank[1]) if rank else None, local_rank=int(rank[2]) if rank and rank[2] else None,
                pid=int(code[2]) if code and code[2] else None, node=host_of(block.get("host", "")) or None,
                at=instant(block.get("time", "")), exception=block.get("exception"), message=block.get("message"),
                text=f"exitcode {block.get('exitcode', 'not shown')}: {block.get('traceback', '')}"[:500],
            )
        ]  # fmt: skip

    def _mpirun(self, line: Line) -> list[LogEvent] | None:
        text = line.text
        if text[:1] == "=" and _MPICH_BAD.match(text):
            self._mpi, self._mpi_line = {"rank": None}, line
            return []
        if text[:1] == "=" and (found := _MPICH_RANK.match(text)):
            self._mpi = {"rank": int(found[1]) if found[1] else None, "pid": int(found[2]), "node": host_of(found[3])}
            self._mpi_line = line
            return []
        if "Process name" in text and (found := _PRRTE_NAME.match(text)):
            self._mpi, self._mpi_line = {"rank": int(found[1])}, line
            if found[2] is None:
                return []
            ended, self._mpi = {**self._mpi, **fate(int(found[2]))}, {}
            return [event(line, "exit", first=True, **ended)]
        ends = self._mpi and (_MPICH_END.match(text) or _PRRTE_CODE.match(text))
        if not ends:
            return None
        # MPICH prints the status of a process that a signal ended as it is: 9, or 139 with its core's bit.
        bare = ends[1] is not None and int(ends[1]) in _DEADLY
        fields = fate(int(ends[1])) if ends[1] and not bare else {"signal": int(ends[1] or ends[2])}
        ended, self._mpi = {**self._mpi, **fields}, {}
        return [event(line, "exit", first=True, **ended)]
