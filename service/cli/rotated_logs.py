"""Logs that were rotated: ``train.log.1`` and ``train.log`` are one log, and their steps one series."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median

import msgspec

from collectors.records import STEP_COLUMNS, Record, Steps
from service.cli.record_columns import values

_DATE = r"\d{4}-?\d\d-?\d\d(?:[T_-]?\d\d[:-]?\d\d(?:[:-]?\d\d)?)?"
_PART = re.compile(  # appended as by logrotate and Python's handlers, or before the ending, as train-2026-11-22.log
    rf"[.-](?:\d{{1,3}}|{_DATE})(?:\.(?:gz|bz2|xz|zst))?$|[._-](?:\d{{1,4}}|{_DATE})(?=\.[A-Za-z]+$)"
)
_NUMBER = re.compile(r"\d+")
MOST_APART = 2.0  # usual distances of two rows, between the last of one part and the first of the next


def joined(records: Iterable[Record]) -> list[Record]:
    """Return the records with the steps of rotated logs in one record each, in place of the newest part's.

    Parts are logs of one name but for what rotation adds or the numbers in it, as of jobs that were submitted one after the
    other, of which each goes on where the one before it ends.
    """
    found, parts = list(records), dict[tuple[object, ...], list[int]]()
    for place, one in enumerate(found):
        if isinstance(one, Steps) and one.count:
            whose = one.node, one.job, one.attempt, one.role, one.rank, one.told_by
            key = (_series_of(one.source), *whose, tuple(one.columns))
            parts.setdefault(key, []).append(place)
    gone = set[int]()
    for places in parts.values():
        ordered = sorted(places, key=lambda place: _ends(found[place]))
        for before, after in pairwise(ordered):
            older, newer = found[before], found[after]
            if isinstance(older, Steps) and isinstance(newer, Steps) and _goes_on(older, newer):
                columns = {name: older.columns[name] + newer.columns[name] for name in newer.columns}
                found[after] = msgspec.structs.replace(newer, columns=columns, count=older.count + newer.count)
                gone.add(before)
    return [one for place, one in enumerate(found) if place not in gone]


def name_of(source: str) -> str:
    """Return the name that all parts of a log have, without what rotation adds to it."""
    return _PART.sub("", source)


def _series_of(source: str) -> str:
    """Return what the names of logs have in common that may follow each other."""
    folder, slash, name = name_of(source).rpartition("/")
    return folder + slash + _NUMBER.sub("0", name)


def _values(record: Steps, name: str) -> Sequence[float]:
    return values(record.columns.get(name, b""), STEP_COLUMNS[name])


def _ends(record: Record) -> tuple[float, float]:
    steps = _values(record, "step") if isinstance(record, Steps) else []
    return (steps[0], steps[-1]) if steps else (0, 0)


def _goes_on(older: Steps, newer: Steps) -> bool:
    """Whether a log begins with the step after the last of another, and was not written before that."""
    if older.source == newer.source:
        return False  # two processes without a rank in one log
    before, after = (_values(one, "step") for one in (older, newer))
    if not before or not after:
        return False
    usual = max(median(abs(b - a) for a, b in pairwise(one)) if len(one) > 1 else 1 for one in (before, after))
    ended, began = _values(older, "at")[-1:], _values(newer, "at")[:1]
    earlier = bool(ended and began) and began[0] < ended[0]
    return not earlier and 0 < after[0] - before[-1] <= MOST_APART * max(usual, 1.0)
