"""The owner of a file by its path: rank, node, attempt. A path that gives two answers gives none.

The names are those that PyTorch, torchrun, py-spy users and per-node collection scripts write. A directory name counts as
a node only with a word in it that means a machine, or a domain: a guess here would blame the wrong machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

# The longest number that is a rank: a date or a process id is longer.
_RANK = r"(?P<rank>\d{1,6})"
_TRACE = re.compile(rf"^(?:nccl|comm_lib)_trace_rank_(?:(?P<host>.*[A-Za-z].*)_)?{_RANK}$")
_DUMP = re.compile(rf"^_?dump_?{_RANK}$")
# "rank7", "rank_7", "global_rank=7", "stacks-rank3"; not "local_rank_3", "node_rank0", "rank0-7", "rank3of8".
_WORD = re.compile(
    rf"(?<![A-Za-z])(?:(?P<kind>[A-Za-z]+)[_-])?rank[_.=-]?{_RANK}(?![0-9]|-\d|of\d|\.\.)", re.IGNORECASE
)
_OTHER_RANKS = {"local", "node", "group", "tp", "pp", "dp", "ep", "cp", "role", "num"}
_RANK_FOLDER = re.compile(rf"^(?:global_?)?rank[_=-]?{_RANK}$", re.IGNORECASE)
_ATTEMPT = re.compile(r"^(?:attempt|restart)[_=-]?(?P<attempt>\d{1,6})$", re.IGNORECASE)
_ATTEMPT_WORD = re.compile(r"(?<![A-Za-z])(?:attempt|restart)[_=-]?(?P<attempt>\d{1,6})(?!\d)", re.IGNORECASE)
_TORCHRUN_FILES = {"stdout.log", "stderr.log", "error.json"}
_MACHINE = (
    r"(?:(?:[a-z0-9]+-)*(?:node|host|gpu|nid|compute|cn|dgx|hgx|srv|server|machine|vm|ip|"
    r"a100|h100|h200|h800|h20|b200|b300|gb200|gb300|mi300x?|trn\d)(?:[a-z]?-?\d+)(?:-\d+)*|"
    r"(?:node|host|compute|cn|srv|server)-[a-z]\d{1,2})"  # by row and place
)
_NODE = re.compile(rf"^(?P<node>{_MACHINE}(?:\.[a-z0-9-]+)*)$", re.IGNORECASE)
_DOMAIN = re.compile(r"^(?P<node>[a-z0-9][a-z0-9-]*(?:\.[a-z0-9-]+)+\.(?:local|internal|cluster|com|net|org|edu|gov))$")
_NODE_WORD = re.compile(rf"(?:^|[_.])(?P<node>{_MACHINE})(?=$|[_.])", re.IGNORECASE)
_EXPLICIT = re.compile(r"^(?:node|host|hostname)=(?P<node>[A-Za-z0-9][A-Za-z0-9.-]*)$")
_SUFFIXES = re.compile(
    r"(?:\.(?:gz|zst|json|jsonl|txt|log|out|err|pkl|pickle|dump|pt|bin|trace|prom|stacks?|gdb|pyspy|tar|zip|tgz))+$",
    re.IGNORECASE,
)
# "gpu0" names a device, and "host_id" a field, not a machine.
_DEVICE = re.compile(r"^gpu_?\d{1,2}$", re.IGNORECASE)


class Whose(NamedTuple):
    """The owner that a path gives; None: unknown."""

    rank: int | None = None
    node: str | None = None
    attempt: int | None = None
    local_rank: int | None = None


def stem_of(name: str) -> str:
    """Return a file's name without the suffixes that say how it is written."""
    return _SUFFIXES.sub("", name)


def _only(values: set[int]) -> int | None:
    return values.pop() if len(values) == 1 else None


def _ranks_of_file(stem: str) -> set[int]:
    if found := _TRACE.match(stem) or _DUMP.match(stem):
        return {int(found["rank"])}
    return {int(word["rank"]) for word in _WORD.finditer(stem) if (word["kind"] or "").lower() not in _OTHER_RANKS}


def _node_of(stem: str, folders: list[str]) -> str | None:
    if (found := _TRACE.match(stem)) and found["host"]:
        return found["host"]
    named = {word["node"] for word in _NODE_WORD.finditer(stem) if not _DEVICE.match(word["node"])}
    if named:
        return named.pop() if len(named) == 1 else None
    for folder in reversed(folders):
        found = _EXPLICIT.match(folder) or _NODE.match(folder) or _DOMAIN.match(folder)
        if found and not _DEVICE.match(found["node"]):
            return found["node"]
    return None


def parts_of(source: str) -> tuple[str, ...]:
    """Return the folders and the name of a path; an archive is a folder of its members."""
    return tuple(part for part in re.split(r"[/:\\]", source) if part)


def common_depth(folders: Iterable[tuple[str, ...]]) -> int:
    """Return how many leading folders all of them have."""
    ends = sorted(set(folders)) or [()]
    pairs = zip(ends[0], ends[-1], strict=False)
    return next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(ends[0]), len(ends[-1])))


@lru_cache(maxsize=4096)
def whose(source: str) -> Whose:
    """Read rank, node, attempt and local rank off a path; an archive's member is a path of its own."""
    parts = parts_of(source)
    if not parts:
        return Whose()
    folders = [stem_of(part) for part in parts[:-1]]
    stem = stem_of(parts[-1])
    ranks = _ranks_of_file(stem) | {int(found["rank"]) for part in folders if (found := _RANK_FOLDER.match(part))}
    attempts = {int(found["attempt"]) for part in folders if (found := _ATTEMPT.match(part))}
    attempts = attempts or {int(found["attempt"]) for found in _ATTEMPT_WORD.finditer(stem)}
    local = None
    if parts[-1] in _TORCHRUN_FILES and len(folders) > 1 and folders[-1].isdigit() and _ATTEMPT.match(folders[-2]):
        local = int(folders[-1])
    return Whose(_only(ranks), _node_of(stem, folders), _only(attempts), local)


def torchrun_run(source: str) -> str | None:
    """Return the folder of a run in torchrun's ``--log-dir``: each node's torchrun makes its own. None for other files."""
    parts = re.split(r"[/\\]", source)
    return "/".join(parts[:-3]) if whose(source).local_rank is not None else None


_TRAILING = re.compile(r"[A-Za-z_.-](\d{1,6})$")


def trailing_number(source: str) -> int | None:
    """Return the number that the file's name ends in, as every Flight Recorder dump's does, whatever its prefix."""
    found = _TRAILING.search(stem_of(re.split(r"[/:\\]", source)[-1]))
    return int(found[1]) if found else None
