"""Which job each record is of, where files of several were read together.

A job is known by what records state, by the run's name in torchrun's folders, by Slurm's number in the name of its output, or
because one process cannot have written both: an entry of a rank's recorder has other instants in another folder. Steps show no
such thing: an evaluation, a node in another time zone or a resumed run counts the same steps at other times.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations

from collectors.files.path_owner import common_depth, parts_of
from collectors.records import FLIGHT_RECORDER_COLUMNS, FlightRecorderDump, Record
from service.cli.record_columns import values
from service.client import UserError

MOST_NAMED, MOST_FOLDERS = 8, 64
_TORCHRUN = re.compile(r"(?:^|/)([^/]+)_[a-z0-9_]{8}/attempt_\d+/\d+/[^/]+$")
_NO_NAME = "none"  # torchrun's, where it was given none
_SLURM = re.compile(r"(?:^|/)slurm-(\d+(?:_\d+)?)(?:\.\w+)*$")
_LINE = re.compile(r":\d+$")

Folder = tuple[str, ...]
Labels = list[str | None]


def of_one_job(records: Sequence[Record], job: str | None) -> Sequence[Record]:
    """Return the records of the chosen job, or all where they are of one.

    What names no job is of the one whose files lie beside it, else of each. UserError: there are several and none is chosen, or
    another one is.
    """
    labels = _labels(records)
    names = sorted({label for label in labels if label is not None})
    if job is not None and job not in names:
        known = f"only {_listed(names)}" if names else "nothing read names its job"
        raise UserError(f"job {job} is not among what was read ({known}): choose another or leave --job out")
    if len(names) < 2:
        return records
    if job is None:
        raise UserError(
            f"the files are of {len(names)} jobs, {_listed(names)}: choose one, with --job {names[-1]} for example"
        )
    beside = _beside(records, labels)
    return [one for one, label in zip(records, labels, strict=True) if (label or _nearest(one, beside)) in {None, job}]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")


def _labels(records: Sequence[Record]) -> Labels:
    """Return the job of each record that shows one, in the first way that shows several; else as records state it."""
    stated: Labels = [record.job for record in records]
    if len(set(stated) - {None}) > 0:
        return stated
    for way in (_runs, _slurm_numbers, _contradictions):
        labels = way(records)
        if len(set(labels) - {None}) > 1:
            return labels
    return stated


def _runs(records: Sequence[Record]) -> Labels:
    """Return torchrun's names of the runs, unless each is of another role: a job may have one torchrun a role."""
    labels = [_named(_TORCHRUN, record.source) for record in records]
    labels = [None if label == _NO_NAME else label for label in labels]
    runs: dict[str | None, set[str]] = defaultdict(set)
    for record, label in zip(records, labels, strict=True):
        if label is not None:
            runs[record.role].add(label)
    return labels if any(len(of_role) > 1 for of_role in runs.values()) else [None] * len(labels)


def _slurm_numbers(records: Sequence[Record]) -> Labels:
    return [_named(_SLURM, record.source) for record in records]


@lru_cache(maxsize=65_536)
def _named(pattern: re.Pattern[str], source: str) -> str | None:
    found = pattern.search(_LINE.sub("", source))
    return found[1] if found is not None else None


@lru_cache(maxsize=65_536)
def _folders(source: str) -> Folder:
    return parts_of(_LINE.sub("", source))[:-1]


def _beside(records: Sequence[Record], labels: Labels) -> dict[Folder, set[str]]:
    """Map each folder to the jobs of the records in it and below."""
    found: dict[Folder, set[str]] = defaultdict(set)
    for folder, label in {(_folders(one.source), label) for one, label in zip(records, labels, strict=True) if label}:
        for depth in range(len(folder) + 1):
            found[folder[:depth]].add(label)
    return found


def _nearest(record: Record, beside: dict[Folder, set[str]]) -> str | None:
    """Return the only job of the nearest folder with any; None: it has several, or the record came from no file."""
    folder = _folders(record.source)
    jobs = next((beside[folder[:depth]] for depth in range(len(folder), -1, -1) if folder[:depth] in beside), set())
    return next(iter(jobs)) if len(jobs) == 1 and record.source else None


def _contradictions(records: Sequence[Record]) -> Labels:
    """Return the name of the folder for the records in folders of which two cannot be of one run."""
    of_folder: dict[Folder, dict[tuple[object, ...], list[FlightRecorderDump]]] = defaultdict(lambda: defaultdict(list))
    placed = [_folders(record.source) for record in records]
    shared = common_depth(placed)
    for record, folder in zip(records, placed, strict=True):
        if isinstance(record, FlightRecorderDump) and len(folder) > shared:
            name = "" if record.rank is not None else parts_of(_LINE.sub("", record.source))[-1]
            key = (type(record), record.attempt, record.role, record.rank, name)
            of_folder[folder[shared : shared + 1]][key].append(record)
    apart: set[Folder] = set()
    for one, other in combinations(sorted(of_folder)[:MOST_FOLDERS], 2):
        shown = of_folder[one].keys() & of_folder[other].keys()
        if any(_differ(a, b) for key in shown for a in of_folder[one][key] for b in of_folder[other][key]):
            apart |= {one, other}
    return [folder[shared] if folder[shared : shared + 1] in apart else None for folder in placed]


def _differ(one: FlightRecorderDump, other: FlightRecorderDump) -> bool:
    """Whether no process can have written both: an entry of one number has two instants."""
    first, second = (_instants(dump) for dump in (one, other))
    return any(first[number] != second[number] for number in first.keys() & second.keys())


def _instants(dump: FlightRecorderDump) -> dict[int, float]:
    """Map the numbers of a dump's entries to their instants, where they have one."""
    numbers, instants = (
        values(dump.columns.get(name, b""), FLIGHT_RECORDER_COLUMNS[name])[: dump.count]
        for name in ("record_id", "created_ns")
    )
    return {row: when for row, when in zip(numbers, instants, strict=False) if when > 0}
