"""The bounds of ``knowledge/fleet.toml``, with the packaged value wherever a site's is unusable."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from analyzers.knowledge import Knowledge
from analyzers.model.wait_channels import NetworkFileSystems

DOMAIN_KINDS = ("switch", "rack", "power", "storage", "driver")
MOST_PATTERNS = 20_000  # of one domain: a site that lists every node by name stays far below
_TABLES = ("silence", "same", "link", "storage", "explained", "coverage", "clock")


@dataclass(frozen=True, slots=True)
class Rules:
    """One field a bound, named ``table_key``."""

    silence_seconds: float = 45.0
    silence_intervals: float = 3.0
    silence_together_seconds: float = 20.0
    silence_nodes: float = 3
    silence_job_share: float = 0.2
    silence_settle_seconds: float = 20.0
    silence_grace_seconds: float = 60.0
    same_seconds: float = 60.0
    same_nodes: float = 3
    same_jobs: float = 2
    same_quiet_seconds: float = 300.0
    link_lasting_seconds: float = 20.0
    storage_lasting_seconds: float = 30.0
    explained_within: float = 0.9
    explained_hit: float = 0.8
    coverage_raised_below: float = 0.9
    coverage_over_from: float = 0.95
    coverage_settle_seconds: float = 180.0
    clock_raised_seconds: float = 2.0
    clock_over_seconds: float = 1.0
    file_systems: NetworkFileSystems = field(default=NetworkFileSystems(Knowledge()))
    events: Mapping[str, str] = field(default_factory=dict)  # "mlx5 fatal" → "link"

    @classmethod
    def from_knowledge(cls, knowledge: Knowledge) -> Rules:
        """Read the table; what is no positive number leaves the bound as it is."""
        document = knowledge.table("fleet")
        values: dict[str, Any] = {}
        for bound in fields(cls):
            table, _, key = bound.name.partition("_")
            value = _mapping(document.get(table)).get(key)
            if value is not None and _is_number(value):
                values[bound.name] = float(value)
        values["file_systems"] = NetworkFileSystems(knowledge)
        classes = _mapping(document.get("events")).items()
        values["events"] = {
            str(event): name for name, events in classes if isinstance(events, list) for event in events
        }
        return cls(**values)


def problems(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of a site's document: the entry, its value, and what it must be."""
    for kind, named in _mapping(document.get("domains")).items():
        if kind not in DOMAIN_KINDS:
            yield f"domains.{kind}: the kind must be one of {', '.join(DOMAIN_KINDS)}"
            continue
        for name, patterns in _mapping(named).items():
            if not _are_patterns(patterns):
                yield f"domains.{kind}.{name}: must be a list of node names or patterns, {MOST_PATTERNS:,} at most"
    for family, events in _mapping(document.get("events")).items():
        if not _are_patterns(events):
            yield f"events.{family}: must be a list of kernel events"
    bounds = {bound.name for bound in fields(Rules)}
    for table in _TABLES:
        for key, value in _mapping(document.get(table)).items():
            if f"{table}_{key}" not in bounds:
                yield f"{table}.{key}: is no bound of the packaged fleet.toml"
            elif not _is_number(value):
                yield f"{table}.{key} = {value!r}: must be a number above 0"


def _are_patterns(value: object) -> bool:
    return isinstance(value, list) and len(value) <= MOST_PATTERNS and all(isinstance(one, str) for one in value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
