"""Where a log begins again: a launcher starts the job's processes anew, or another run writes into the same file.

Formats: torch 1.13 to 2.13 (``elastic/agent/server/api.py``, ``distributed/run.py``), Ray Train 2.0 to 2.50, DeepSpeed's runner,
the shell's ``set -x``; and what programs say once, when they begin: transformers, Megatron-LM, Lightning, NCCL.
"""

from __future__ import annotations

import re

FATAL = frozenset(
    {"traceback", "cuda_error", "oom", "fatal_python", "worker_killed", "watchdog_timeout", "watchdog_abort"}
)
"""What ends a process: one that goes on with its steps has printed it of something else, or has handled it."""
ENDS = frozenset(
    {"exit", "torchrun_failure", "oom_kill", "preempted", "cancelled", "time_limit", "node_failure", "daemon_lost"}
)
"""What a launcher or the scheduler reports of an end."""

OUTLIVED = frozenset(
    {
        "network_error", "connection_closed", "nccl_error", "cuda_warned", "fabric_error", "fabric_warned", "nvml_error",
        "disk_warned",
    }
)  # fmt: skip
"""What links recover from, or a run finds another way for: a job that goes on with its steps has outlived it."""

STALLS = frozenset({"collective_behind", "collective_unfinished"})
"""What a monitor reports of ranks that wait: once all of them go on for long, they have come."""

_BANNER = re.compile(
    r"^(?:\+ echo )?[=*#\s-]{3,80}(?:[Aa]ttempt|ATTEMPT|[Rr]estart|RESTART)\s{1,3}(?:#|no\.? )?(?:[2-9]|\d{2,4})\b"
)
"""What a job's own script prints before the next attempt."""
_BY_LAUNCHER = (
    ("restart_count=", re.compile(r"Rendezvous complete for workers\. Result:.{0,20}restart_count=[1-9]")),
    ("restart_count=", re.compile(r"^\s{0,8}restart_count=[1-9]\d{0,5}\s*$")),
    ("Starting elastic_operator", re.compile(r"Starting elastic_operator with launch configs")),
    ("Setting OMP_NUM_THREADS", re.compile(r"Setting OMP_NUM_THREADS environment variable for each process")),
    ("Attempting to start training worker group", re.compile(r"Attempting to start training worker group of size")),
    ("Restarting all workers", re.compile(r"Restarting all workers")),
    # A job that Slurm requeued has this variable. In a list of variables it shows no beginning.
    ("RESTART_COUNT=", re.compile(r"(?<!export )(?<!declare -x )\bSLURM_RESTART_COUNT=[1-9]\d{0,5}(?=\W{0,2}\s+\S)")),
    *((word, _BANNER) for word in ("ttempt ", "ATTEMPT ", "estart ", "RESTART ")),
    (":main] cmd = ", re.compile(r"\[runner\.py:\d{1,5}:main\] cmd = ")),
    ("+ ", re.compile(r"^\++ (?:exec )?(?:torchrun|srun|mpirun|deepspeed|accelerate launch|python3? \S{1,200}\.py)\b")),
)
_BY_PROGRAM = (
    ("Running training", re.compile(r"\*{5} Running training \*{5}")),
    ("using world size:", re.compile(r"^using world size: \d{1,7}, ")),
    ("GLOBAL_RANK: 0", re.compile(r"GLOBAL_RANK: 0, MEMBER: 1/")),
    # torch ends the text of each error of NCCL with ", NCCL version 2.28.9": nothing begins there.
    ("NCCL version ", re.compile(r"(?:^|\bNCCL INFO )NCCL version \d{1,3}\.\d{1,3}")),
)
_ANNOUNCED = re.compile(
    r"\bSLURM_RESTART_COUNT=[1-9]|\b(?:[Rr]e-?(?:start|launch|spawn)(?:ing|ed)|[Rr]esum(?:ing|ed)) "
    r"(?:[\w-]{1,24} ){0,4}(?:workers?|job|ranks?|process(?:es)?|training|run|checkpoint|step|epoch)\b"
)
"""What a program or its launcher says when it goes on after a failure; whether it did, only its further steps show."""
_RESUMED = re.compile(r"\b[Rr]esum(?:ing|ed) (?:[\w-]{1,24} ){0,4}(?:checkpoint|step|epoch)\b")
"""What a process says that has begun anew, in distinction to a launcher that is about to start one."""
_OF_ANNOUNCEMENTS = ("RESTART_COUNT=", "estart", "elaunch", "espawn", "esuming ", "esumed ")
WORDS = (
    *(word for word, _ in _BY_LAUNCHER if word != "+ "), *(word for word, _ in _BY_PROGRAM), *_OF_ANNOUNCEMENTS,
    "+ torchrun", "+ srun", "+ mpirun", "+ deepspeed", "+ accelerate", "+ python", "+ exec",
)  # fmt: skip
"""A line with none of these begins no attempt."""


def by_launcher(text: str) -> bool:
    """Whether a launcher starts the processes: after a failure it is the next attempt."""
    return any(word in text and pattern.search(text) for word, pattern in _BY_LAUNCHER)


def by_program(text: str) -> bool:
    """Whether a program says that it begins: while a job starts up, some of its processes may have failed already."""
    return any(word in text and pattern.search(text) for word, pattern in _BY_PROGRAM)


def is_announced(text: str) -> bool:
    """Whether a line says that the job goes on after a failure."""
    return any(word in text for word in _OF_ANNOUNCEMENTS) and _ANNOUNCED.search(text) is not None


def is_resumed(text: str) -> bool:
    """Whether a line says that its process has begun where an earlier one had come to."""
    return "esum" in text and _RESUMED.search(text) is not None
