"""``--expect``: what a verdict must name, so that a script, a test or a replay can check it.

Grammar: ``culprit=rank:14`` (also ``rank:12-15``, ``node:gpu-0413`` or any ``kind:id``, ``none``), ``cause=code``,
``symptom=hang``, ``class=desync``, ``action=evict``, ``abstained=true``. All culprits expected together must be exactly
what the verdict names: a ``rank:`` covers a culprit by its guilty ranks, whatever its kind; ``kind:id`` covers the culprit
of that name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from analyzers.model.ranges import ranges
from analyzers.model.verdict import Culprit, Verdict
from service.reports.hostlists import parse_ranks

FIELDS = ("culprit", "cause", "symptom", "class", "action", "abstained")


@dataclass(frozen=True, slots=True)
class Expectation:
    """All expectations. ``culprits``: whether culprits are among them; with neither ranks nor names, none may be named."""

    ranks: frozenset[int] = frozenset()
    names: frozenset[tuple[str, str]] = frozenset()
    culprits: bool = False
    fields: tuple[tuple[str, str], ...] = ()

    @property
    def of_abstention(self) -> bool:
        """Return whether an abstention is what was expected."""
        return ("abstained", "true") in self.fields


def parse(texts: Iterable[str]) -> Expectation:
    """Parse every ``--expect``; ValueError names the text that is wrong and what would be right."""
    ranks: set[int] = set()
    names: set[tuple[str, str]] = set()
    fields: list[tuple[str, str]] = []
    none = False
    for text in texts:
        field, separator, value = (part.strip() for part in text.partition("="))
        if not separator or field not in FIELDS or not value:
            raise ValueError(
                f"--expect {text!r} is not FIELD=VALUE with a field of {', '.join(FIELDS)}: write culprit=rank:14"
            )
        if field != "culprit":
            fields.append((field, _checked(field, value.lower())))
        elif value.lower() == "none":
            none = True
        else:
            _add_culprit(value, ranks, names)
    if none and (ranks or names):
        raise ValueError("--expect culprit=none excludes every other culprit: leave one of them out")
    return Expectation(frozenset(ranks), frozenset(names), none or bool(ranks or names), tuple(fields))


def _checked(field: str, value: str) -> str:
    if field == "abstained" and value not in ("true", "false"):
        raise ValueError(f"--expect abstained={value} is neither true nor false: write abstained=true")
    return value


def _add_culprit(value: str, ranks: set[int], names: set[tuple[str, str]]) -> None:
    kind, separator, name = value.partition(":")
    if not separator or not name:
        raise ValueError(
            f"--expect culprit={value} is not KIND:ID: write culprit=rank:14, culprit=node:gpu-0413 or culprit=none"
        )
    if kind == "rank":
        ranks.update(parse_ranks(name))
    else:
        names.add((kind, name))


def failures(expectation: Expectation, verdict: Verdict) -> Iterator[str]:
    """Yield one sentence for each expectation that the verdict does not meet, with what was found instead."""
    if expectation.culprits and not _culprits_met(expectation, verdict.culprits):
        yield f"expected culprit {_expected(expectation)}, found {_named(verdict)}"
    found = {
        "cause": {verdict.cause},
        "symptom": {verdict.symptom},
        "class": {root.fault_class for root in verdict.roots},
        "action": {verdict.action.kind},
        "abstained": {str(verdict.abstained).lower()},
    }
    for field, value in expectation.fields:
        if value not in found[field]:
            yield f"expected {field} {value}, found {', '.join(sorted(found[field])) or 'none'}"


def _culprits_met(expectation: Expectation, culprits: tuple[Culprit, ...]) -> bool:
    by_name = {(culprit.kind, culprit.id) for culprit in culprits}
    guilty = {rank for culprit in culprits for rank in culprit.ranks}
    covered = all(
        (culprit.kind, culprit.id) in expectation.names or (culprit.ranks and set(culprit.ranks) <= expectation.ranks)
        for culprit in culprits
    )
    return covered and expectation.names <= by_name and expectation.ranks <= guilty


def _expected(expectation: Expectation) -> str:
    parts = [f"{kind}:{name}" for kind, name in sorted(expectation.names)]
    if expectation.ranks:
        parts.insert(0, f"rank:{ranges(expectation.ranks)}")
    return " and ".join(parts) or "none"


def _named(verdict: Verdict) -> str:
    named = [
        f"{culprit.kind}:{culprit.id}" + (f" (rank:{ranges(culprit.ranks)})" if culprit.ranks else "")
        for culprit in verdict.culprits
    ]
    return " and ".join(named) or ("none (it abstained)" if verdict.abstained else "none")
