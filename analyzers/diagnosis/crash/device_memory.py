"""Whose memory filled a GPU: what an error of PyTorch says of other processes on it.

Formats: torch 1.0 to 2.13 (``CUDACachingAllocator.cpp``). A container's processes do not know their own numbers: a process that
the message lists may be the one that fails, unless "this process" is listed, too.
"""

from __future__ import annotations

import re

_SIZE = r"(\d{1,7}(?:\.\d{1,3})?) ([KMG]iB)"
_UNITS = {"KiB": 1 / (1 << 20), "MiB": 1 / (1 << 10), "GiB": 1.0}
_WANTED = re.compile(rf"Tried to allocate {_SIZE}")
_CAPACITY = re.compile(rf"has a total capac(?:i)?ty of {_SIZE} of which {_SIZE} is free")
_PROCESS = re.compile(rf"Process \d{{1,10}} has {_SIZE} memory in use")
_OWN = re.compile(rf"this process has {_SIZE} memory in use")
_OLD = re.compile(
    rf"{_SIZE} total capacity; {_SIZE} already allocated; {_SIZE} free; {_SIZE} reserved in total by PyTorch"
)


def held_by_others(said: str) -> float:
    """Return which part of the GPU other processes held, 0 where the message does not say, or an empty GPU were too small."""
    if found := _OLD.search(said):
        total, _, free, own = (_gib(*found.group(at, at + 1)) for at in (1, 3, 5, 7))
        return max(0.0, total - free - own) / total if total else 0.0
    capacity, process, wanted = _CAPACITY.search(said), _OWN.search(said), _WANTED.search(said)
    if capacity is None or process is None:
        return 0.0
    total = _gib(capacity[1], capacity[2])
    if wanted is not None and _gib(*process.groups()) + _gib(*wanted.groups()) > total:
        return 0.0
    return sum(_gib(*each.groups()) for each in _PROCESS.finditer(said)) / total if total else 0.0


def _gib(number: str, unit: str) -> float:
    return float(number) * _UNITS[unit]
