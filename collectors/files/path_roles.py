"""The role of a file by its path, where the files read together are of several roles of one job.

Launchers of RL post-training write ``trainer_0.log`` beside ``rollout-3.out``, or ``rollout/rank_2.log``. One such name alone
is nothing: a role counts only beside another one in names of the same kind. A number beside a role is the process's rank unless
it comes again in another folder, as the numbers within each node do.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from collectors.files.path_owner import common_depth, parts_of, stem_of, torchrun_run, trailing_number, whose

_WORD = r"(?:trainer|learner|rollout|generator|actor|critic|reward|reference|ref|policy|environment|env|controller|explorer)s?"
_ROLE = (
    rf"(?P<role>{_WORD}(?:[_-]{_WORD})*)(?:[_-]?(?:workers?|servers?|engines?|models?|group|process|replica|instance))*"
)
_NUMBER = r"[_.=-]?(?:rank[_.=-]?)?(?P<number>\d{1,4})"
_FILE = re.compile(
    rf"^(?P<prefix>.{{0,100}}?[_.-])??{_ROLE}{_NUMBER}(?:[_.-](?:stdout|stderr|std_?out|std_?err|out|err|log))?$",
    re.IGNORECASE,
)
_FOLDER = re.compile(rf"^{_ROLE}(?:[_-]logs?)?(?:{_NUMBER})?$", re.IGNORECASE)
_OF_ONE_PROCESS = frozenset({"stdout", "stderr", "out", "err", "output", "log", "console", "main", "run"})
_YEARS = range(1990, 2100)
_TEXT = (".log", ".out", ".err", ".txt", ".json", ".jsonl")


class Seat(NamedTuple):
    """The role that a path gives, and the number beside it; None: only its lines show whose they are."""

    role: str
    number: int | None = None


class _Named(NamedTuple):
    seat: Seat
    prefix: str  # of the name: only names with the same one are of one kind
    place: str  # the folder: a number that comes again in another is not of the whole job


def seats(sources: Iterable[str]) -> Mapping[str, Seat]:
    """Return the seat of each file whose path gives one; none at all where the names could mean something else.

    That is where they give one role only, where a file has a rank and no role, and where one seat is in two folders.
    """
    found: dict[str, _Named] = {}
    split = {source: parts_of(source) for source in sources}
    shared = common_depth(parts[:-1] for parts in split.values())  # a word in the way to a job's folder is no role
    for source, parts in split.items():
        if parts and (named := _named(source, parts[shared:])) is not None:
            found[source] = named
        elif _has_rank(source):
            return {}
    roles: dict[str, set[str]] = defaultdict(set)
    for named in found.values():
        roles[named.prefix].add(named.seat.role)
    kept = {source: named for source, named in found.items() if len(roles[named.prefix]) > 1}
    places: dict[tuple[str, int | None, int | None], str] = {}
    for source, named in kept.items():
        key = (*named.seat, whose(source).attempt)
        if named.seat.number is not None and places.setdefault(key, named.place) != named.place:
            return {}
    return {source: named.seat for source, named in kept.items()}


def _named(source: str, parts: Sequence[str]) -> _Named | None:
    stem = stem_of(parts[-1])
    if found := _FILE.match(stem):
        number = int(found["number"])
        return (
            None
            if number in _YEARS
            else _Named(Seat(_role(found), number), found["prefix"] or "", "/".join(parts[:-1]))
        )
    above = next(((at, found) for at in range(len(parts) - 2, -1, -1) if (found := _FOLDER.match(parts[at]))), None)
    if above is None:
        return None
    at, found = above
    place, rank = "/".join(parts[: at + 1]), whose(source).rank
    if rank is not None:
        return _Named(Seat(_role(found), rank), "", place)
    if torchrun_run(source) is not None:
        return _Named(Seat(_role(found)), "", place)
    if found["number"] and stem.lower() in _OF_ONE_PROCESS:
        return _Named(Seat(_role(found), int(found["number"])), "", "/".join(parts[:at]))
    return None


def _role(found: re.Match[str]) -> str:
    words = re.split(r"[_-]", found["role"].lower())
    return "_".join(word.removesuffix("s") for word in words)


def _has_rank(source: str) -> bool:
    """Whether it is of a rank, by its name: a dump's ends in one whatever its prefix is."""
    return whose(source).rank is not None or (trailing_number(source) is not None and not source.endswith(_TEXT))
