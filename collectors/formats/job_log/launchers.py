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
from collectors.records import LogEvent

MAX_TASKS_IN_A_LINE = 65_536
MAX_SUMMARY_LINES = 200  # of one failure's block, which may hold a whole traceback

_WORDS = {
    "killed": 9, "terminated": 15, "segmentation fault": 11, "bus error": 7, "aborted": 6, "abort": 6,
    "illegal instruction": 4, "floating point exception": 8, "out of memory": 9, "interrupt": 2, "quit": 3,
}  # fmt: skip
"""What srun, bash and mpirun call a death by signal. "Out Of Memory" is Slurm's word for a cgroup's kill."""

_FIELD = re.compile(r"\s+(time|host|rank|exitcode|error_file|traceback)\s*: ?(.*)")
_INDEX = re.compile(r"\[\d+\]:\s*$")
_LAST_EXCEPTION = re.compile(r"\s*([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit|Warning|Failure)): ?(.{0,1000})")

Build = Callable[[re.Match[str], Line], Iterator[LogEvent]]


def fate(code: int) -> dict[str, int]:
    """An exit code as the record's fields: −9 and 137 both are death by signal 9."""
    if code < 0:
        return {"exit_code": code, "signal": -code}
    return {"exit_code": code, "signal": code - 128} if 128 < code < 128 + 65 else {"exit_code": code}


def death_of(word: str) -> dict[str, int]:
    """The fields of a launcher's phrase: ``Killed``, ``Exited with exit code 1``, ``Segmentation fault (core dumped)``."""
    text = word.lower().replace("(core dumped)", "").strip(" .")
    if found := re.search(r"exit(?:ed)? (?:with )?(?:exit )?code (-?\d{1,6})", text):
        return fate(int(found[1]))
    return {"signal": _WORDS[text]} if text in _WORDS else {}


def tasks_of(text: str) -> list[int]:
    """The numbers of a range list such as ``5-7,9``, at most MAX_TASKS_IN_A_LINE."""
    tasks: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        if low.isdigit() and (not high or high.isdigit()):
            room = MAX_TASKS_IN_A_LINE - len(tasks)
            tasks += range(int(low), min(int(high or low), int(low) + room - 1) + 1)
    return tasks


def event(line: Line, name: str, **fields: Any) -> LogEvent:
    """One event of this line; its prefix fills what the fields leave open."""
    fields.setdefault("rank", line.rank)
    fields.setdefault("node", line.node)
    fields.setdefault("pid", line.pid)
    fields.setdefault("local_rank", line.local_rank)
    fields.setdefault("at", line.at)
    fields.setdefault("text", line.text.strip()[:500])
    return LogEvent(source=str(line.number), event=name, **fields)


def _host(name: str) -> str | None:
    """The node a launcher names; a list of them (``gpu-[01-04]``) or the loopback names none."""
    return None if "[" in name or name in {"localhost", "127.0.0.1", "<N/A>"} else name


def _srun_task(found: re.Match[str], line: Line) -> Iterator[LogEvent]:
    fields = death_of(found[3])
    name = "oom_kill" if "out of memory" in found[3].lower() else "exit"
    for task in tasks_of(found[2]):
        yield event(line, name, **fields, rank=task, node=_host(found[1]), group="task")


def _cancelled(found: re.Match[str], line: Line) -> Iterator[LogEvent]:
    reason = (found[3] or "").upper()
    words = {"PREEMPTION": "preempted", "TIME LIMIT": "time_limit", "NODE FAILURE": "node_failure"}
    name = next((name for word, name in words.items() if word in reason), None)
    node = _host(found[2]) if name == "node_failure" else None
    # A cancelled step is srun's own clean-up after a task's failure; a cancelled job is a person's decision.
    yield event(line, name or ("step_cancelled" if found[1] == "STEP" else "cancelled"), node=node)


def _agent_failure(found: re.Match[str], line: Line) -> Iterator[LogEvent]:
    yield event(line, "exit", local_rank=int(found[2]), pid=int(found[3]), first=True, **fate(int(found[1])))


def _mpi_signal(found: re.Match[str], line: Line) -> Iterator[LogEvent]:
    yield event(line, "exit", rank=int(found[1]), node=_host(found[2]), signal=int(found[3]), first=True)


def _signal_number(name: str) -> int | None:
    return next((number.value for number in signals.Signals if number.name == name), None)


def _spawned(found: re.Match[str], line: Line) -> Iterator[LogEvent]:
    how = found[2] or found[3]
    fields: dict[str, Any] = fate(int(how)) if how.isdigit() else {"signal": _signal_number(how)}
    yield event(line, "exit", rank=int(found[1]), first=True, **fields)


def _ray_worker(found: re.Match[str], line: Line) -> Iterator[LogEvent]:
    yield event(line, "exit", pid=int(found[1]), text="a Ray worker died unexpectedly: " + line.text[:300])


def _plain(name: str, **fields: Any) -> Build:
    def build(found: re.Match[str], line: Line) -> Iterator[LogEvent]:
        named = {key: int(value) if value.isdigit() else value for key, value in found.groupdict().items() if value}
        yield event(line, name, **{**fields, **named})

    return build


_LINES: tuple[tuple[str, re.Pattern[str], Build], ...] = (
    ("srun: error", re.compile(r"srun: error: ([\w.\[\],-]+): tasks? ([\d,-]+): (.{3,120})"), _srun_task),
    ("CANCELLED AT", re.compile(r"\*\*\* (JOB|STEP) \S+ ON (\S+) CANCELLED AT \S+ ?(?:DUE TO (.+?))? ?\*\*\*"), _cancelled),
    ("kill event", re.compile(r"Detected \d+ oom[-_]kill event"), _plain("oom_kill", signal=9)),
    ("OOMKilled", re.compile(r"\bOOMKilled\b"), _plain("oom_kill", signal=9)),
    ("reempt", re.compile(r"(?i)\b(?:job|pod|node|instance|\w*vm) (?:\S+ )?(?:was|is being|has been|will be) preempted"),
     _plain("preempted")),
    ("reempt", re.compile(r"\bReason: (?:Preempted|Preempting)\b|DisruptionTarget.{0,400}[Pp]reempt|spot instance interruption"),
     _plain("preempted")),
    ("local_rank", re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid: (\d+)\)"), _agent_failure),
    ("closing signal", re.compile(r"Sending process (?P<pid>\d+) closing signal (?:SIGTERM|SIGINT|SIGKILL)"),
     _plain("closing_signal", signal=15)),
    ("sigkill_handler", re.compile(r"Killing subprocess (?P<pid>\d+)"), _plain("closing_signal", signal=15)),
    ("death signal", re.compile(r"Received (?P<signal>15|1|2) death signal, shutting down workers"), _plain("terminated")),
    ("got signal", re.compile(r"SignalException: Process (?P<pid>\d+) got signal: (?P<signal>\d+)"), _plain("terminated")),
    ("noticed that", re.compile(
        r"noticed that process rank (\d+) with PID \d+ on node (\S+) exited on\s+signal (\d+)"), _mpi_signal),
    ("terminated with", re.compile(r"process (\d+) terminated with (?:signal (SIG[A-Z0-9]+)|exit code (\d+))", re.IGNORECASE),
     _spawned),
    ("Worker PID", re.compile(r"[Aa] worker died or was killed.*Worker PID: (\d+)"), _ray_worker),
    ("returned non-zero", re.compile(r"CalledProcessError: .* died with <Signals\.SIG\w+: (?P<signal>\d+)>"), _plain("exit")),
)  # fmt: skip
"""(a cheap word, the line's shape, what it becomes): the word spares most lines the expression."""

WORDS = (
    *(word for word, _, _ in _LINES), "torch/distributed/elastic", "torch.distributed.elastic", "distributed/run.py",
    "Root Cause (first", "Failures:", "Killed", "Segmentation fault", "Bus error", "Aborted", "RUNNING AT", "Process name:",
)  # fmt: skip
"""A line with none of these is no launcher's, unless it goes on with a summary."""

_SHELL = re.compile(
    r"(?:.{1,200}: line \d+: +(?:\d+ )?)?(Killed|Segmentation fault|Bus error|Aborted)\b(?: \(core dumped\))?"
)
_MPICH_RANK = re.compile(r"=\s+RANK (\d+) PID (\d+) RUNNING AT (\S+)")
_MPICH_END = re.compile(r"=\s+(?:EXIT CODE: (\d+)|KILLED BY SIGNAL: (\d+))")
_PRRTE_NAME = re.compile(r"\s*Process name: \[\S+,(\d+)\]")
_PRRTE_CODE = re.compile(r"\s*Exit code:\s+(\d+)")


class Launcher:
    """The launcher's words in one stream. ``feed`` returns None for a line that is not a launcher's."""

    def __init__(self) -> None:
        self.is_torchrun = False
        self._section: bool | None = None  # inside a torchrun summary: are we under "Root Cause"?
        self._block: dict[str, str] = {}
        self._block_line: Line | None = None
        self._block_lines = 0
        self._mpi: dict[str, Any] = {}

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
        """Give what is still open: the file ended inside a summary."""
        return self._end_block()

    def _summary(self, line: Line) -> list[LogEvent] | None:
        text = line.text
        if text.startswith("Root Cause (first observed failure)"):
            ended, self._section = self._end_block(), True
            return ended
        if text.startswith("Failures:"):
            self._section = False
            return []
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
        if not block or line is None or "exitcode" not in block:
            return []
        rank = re.match(r"(\d+)(?: \(local_rank: (\d+)\))?", block.get("rank", ""))
        code = re.match(r"(-?\d+)(?:\s+\(pid: (\d+)\))?", block["exitcode"])
        fields: dict[str, Any] = fate(int(code[1])) if code else {}
        return [
            event(
                line, "torchrun_failure", **fields, first=bool(self._section),
                rank=int(rank[1]) if rank else None, local_rank=int(rank[2]) if rank and rank[2] else None,
                pid=int(code[2]) if code and code[2] else None, node=_host(block.get("host", "")) or None,
                at=instant(block.get("time", "")), exception=block.get("exception"), message=block.get("message"),
                text=f"exitcode {block['exitcode']}: {block.get('traceback', '')}"[:500],
            )
        ]  # fmt: skip

    def _mpirun(self, line: Line) -> list[LogEvent] | None:
        text = line.text
        if found := _MPICH_RANK.match(text):
            self._mpi = {"rank": int(found[1]), "pid": int(found[2]), "node": _host(found[3])}
            return []
        if found := _PRRTE_NAME.match(text):
            self._mpi = {"rank": int(found[1])}
            return []
        ends = self._mpi and (_MPICH_END.match(text) or _PRRTE_CODE.match(text))
        if not ends:
            return None
        fields = fate(int(ends[1])) if ends[1] else {"signal": int(ends[2])}
        ended, self._mpi = {**self._mpi, **fields}, {}
        return [event(line, "exit", first=True, **ended)]
