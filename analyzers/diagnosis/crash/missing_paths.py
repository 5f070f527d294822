"""Whether what ranks asked a file system for was never there, or a file system that served them no longer does."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from analyzers.diagnosis.crash.failures import Failure
from analyzers.diagnosis.crash.suspects import says
from analyzers.model.window import Window
from collectors.records import KernelEvent, LogEvent, Steps

_OF_STORAGE = frozenset({"nfs_not_responding", "hung_task", "fs_error", "io_error"})
_FAILED = frozenset({"file_system", "file_system_part"})


def has_served(window: Window, classified: Sequence[tuple[str, LogEvent]]) -> bool:
    """Return whether the job took steps, and so has read what it needs, or a file system is reported to have failed."""
    kernel = any(event.event in _OF_STORAGE for event in window.records_of(KernelEvent))
    return kernel or any(window.records_of(Steps)) or any(kind in _FAILED for kind, _ in classified)


def are_answered(group: Sequence[Failure], row: Mapping[str, Any], nodes: Collection[str]) -> bool:
    """Return whether a file system answered each process about its path; what one node of several lacks is its own mount.

    ``nodes``: of the job.
    """
    own = {failure.node for failure in group}
    alone = len(own) == 1 and None not in own and bool(set(nodes) - own)
    return not alone and all(says(failure, row["words"]) for failure in group)
