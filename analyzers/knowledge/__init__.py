"""What an analyzer knows beyond the window: packaged, dated, hashed TOML; parsed here, loaded and overridden by callers."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class Knowledge:
    """A frozen value. ``tables``: document name ("xid", "waits", "priors", …) → its parsed TOML."""

    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: MappingProxyType({}))
    hash: str = ""

    def table(self, name: str) -> Mapping[str, Any]:
        """Return one document, empty where there is none."""
        return self.tables.get(name, MappingProxyType({}))


def parse(documents: Mapping[str, str], overrides: Mapping[str, str] | None = None) -> Knowledge:
    """Parse documents (name → TOML text); an override replaces the top-level keys and table rows it names."""
    tables = {name: _loaded(text) for name, text in sorted(documents.items())}
    for name, text in sorted((overrides or {}).items()):
        tables[name] = _merged(tables.get(name, {}), _loaded(text))
    digest = hashlib.sha256(repr(sorted(tables.items())).encode()).hexdigest()
    return Knowledge(MappingProxyType(tables), f"sha256:{digest}")


@lru_cache(maxsize=32)
def _loaded(text: str) -> Mapping[str, Any]:
    """Return a document's values, which no caller changes; a process that judges often parses the packaged ones once."""
    return tomllib.loads(text)


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(old)
    for key, value in new.items():
        nested = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged(merged[key], value) if nested else value
    return merged
