"""What nodes share: switches, racks and power by the site's table, file servers and driver versions by the agents' reports."""

from __future__ import annotations

import fnmatch
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from analyzers.incidents.fleet.rules import DOMAIN_KINDS
from analyzers.knowledge import Knowledge

_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Domain:
    """Some nodes that one thing serves, of those that are known here."""

    kind: str  # switch rack power storage driver
    name: str
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Row:
    kind: str
    name: str
    literal: frozenset[str]
    pattern: re.Pattern[str] | None

    def has(self, node: str) -> bool:
        return node in self.literal or (self.pattern is not None and self.pattern.match(node) is not None)


class Domains:
    """The site's table; which domains a node is in is found once a node."""

    def __init__(self, knowledge: Knowledge) -> None:
        self._rows = tuple(_rows(knowledge.table("fleet").get("domains")))
        self._of_node: dict[str, tuple[_Row, ...]] = {}

    @property
    def has_table(self) -> bool:
        """Whether the site's table has any row."""
        return bool(self._rows)

    def among(self, nodes: Iterable[str], reported: Mapping[tuple[str, str], Iterable[str]]) -> list[Domain]:
        """Return the domains of these nodes. ``reported``: (kind, name) → nodes, by the agents."""
        found: dict[tuple[str, str], set[str]] = defaultdict(set)
        for node in nodes:
            for row in self._rows_of(node):
                found[row.kind, row.name].add(node)
        for (kind, name), members in reported.items():
            found[kind, name].update(members)
        return [Domain(kind, name, frozenset(members)) for (kind, name), members in sorted(found.items()) if members]

    def _rows_of(self, node: str) -> tuple[_Row, ...]:
        rows = self._of_node.get(node)
        if rows is None:
            rows = self._of_node[node] = tuple(row for row in self._rows if row.has(node))
        return rows

    def forget(self, known: Iterable[str]) -> None:
        """Drop the nodes that are no longer known."""
        for node in self._of_node.keys() - set(known):
            del self._of_node[node]


def _rows(table: object) -> Iterable[_Row]:
    """Read the table; a row that is no list of names is left out (``rules.problems`` reports it at loading)."""
    for kind, named in table.items() if isinstance(table, Mapping) else ():
        if kind not in DOMAIN_KINDS or not isinstance(named, Mapping):
            continue
        for name, patterns in named.items():
            if isinstance(patterns, list) and all(isinstance(one, str) for one in patterns):
                yield _row(kind, name, patterns)


def _row(kind: str, name: str, patterns: list[str]) -> _Row:
    wild = [fnmatch.translate(one) for one in patterns if _WILD.search(one)]
    literal = frozenset(one for one in patterns if not _WILD.search(one))
    return _Row(kind, name, literal, re.compile("|".join(wild)) if wild else None)
