"""The costs of actions: ``knowledge/plan.toml``, with the packaged value wherever a site's is unusable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeGuard

import msgspec

from analyzers.knowledge import Knowledge

MOST_SECONDS = 30 * 86_400.0
_BOUNDS = {"seconds": MOST_SECONDS, "hours": MOST_SECONDS / 3_600}


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """One field a cost, named ``key_table``. ``cures``: pattern of fault classes → share that a plain restart cures."""

    restart_seconds: float = 600.0
    redetect_seconds: float = 600.0
    unattended_seconds: float = 1_800.0
    lost_work_seconds: float = 900.0
    reset_seconds: float = 60.0
    reboot_seconds: float = 600.0
    innocent_hours: float = 4.0
    replacement_hours: float = 4.0
    cures: dict[str, float] = msgspec.field(default_factory=lambda: {"*": 0.227})

    @classmethod
    def from_knowledge(cls, knowledge: Knowledge) -> Costs:
        """Read the table; an unusable value leaves the cost as it is."""
        document = knowledge.table("plan")
        values: dict[str, Any] = {}
        for cost in cls.__struct_fields__:
            key, _, table = cost.rpartition("_")
            value = _mapping(document.get(table)).get(key)
            if _is_within(value, _BOUNDS.get(table, 0.0)):
                values[cost] = float(value)
        rates = {name: float(rate) for name, rate in _mapping(document.get("cures")).items() if _is_within(rate, 1.0)}
        return cls(**values, cures=cls().cures | rates)

    def cured_by_restart(self, fault_class: str) -> float:
        """Return the share of this class that a restart on the same nodes cures."""
        matching = [name for name in self.cures if fnmatchcase(fault_class, name)]
        return self.cures[max(matching, key=lambda name: (len(name), name))] if matching else 0.0


def problems(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of a site's document: the entry, its value, and what it must be."""
    for table, value in document.items():
        if table in (*_BOUNDS, "cures") and not isinstance(value, Mapping):
            yield f"{table}: must be a table of numbers"
        elif table not in (*_BOUNDS, "cures", "meta", "source", "date"):
            yield f"{table}: there is no such table; there are seconds, hours and cures"
    for table, most in _BOUNDS.items():
        for key, value in _mapping(document.get(table)).items():
            if f"{key}_{table}" not in Costs.__struct_fields__:
                yield f"{table}.{key}: no cost is called that"
            elif not _is_within(value, most):
                yield f"{table}.{key} = {value!r}: must be a number from 0 to {most:,.0f}"
    for name, rate in _mapping(document.get("cures")).items():
        if not _is_within(rate, 1.0):
            yield f"cures.{name} = {rate!r}: must be a share from 0 to 1"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_within(value: object, most: float) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most  # NaN is not
