"""The versions of a verdict, one line each, and what changed from one to the next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from analyzers.model.verdict import Verdict
from service.reports.hostlists import ranks_for_people
from service.reports.instants import clock
from service.reports.story import called, is_named_after_ranks

COLUMNS = ("version", "at (UTC)", "symptom", "cause", "culprit", "sure", "action", "what changed")
MOST_CULPRITS = 3  # named in one line
NONE_NAMED = "none"


@dataclass(frozen=True, slots=True)
class VersionLine:
    """One version, as far as a line holds it. ``culprits``: (kind, id, ranks, probability, role), the first root's first."""

    version: int
    at: float
    symptom: str
    cause: str
    abstained: bool
    action: str  # the verdict's own
    culprits: tuple[tuple[str, str, tuple[int, ...], float, str], ...] = ()
    first: int = 1  # how many of them are of the first root
    plan: str | None = None  # the kind of what is planned by it, which goes before its action

    @property
    def named(self) -> str:
        """The culprits, ``none`` where there are none."""
        every = [_called(kind, id, ranks, role) for kind, id, ranks, _sure, role in self.culprits]
        more = [f"{len(every) - MOST_CULPRITS:,} more"] if len(every) > MOST_CULPRITS else []
        return ", ".join([*every[:MOST_CULPRITS], *more]) or NONE_NAMED

    @property
    def deed(self) -> str:
        """What is planned, with the verdict's own action where that is another one; without a plan its action."""
        return self.action if self.plan in (None, self.action) else f"{self.plan} (verdict: {self.action})"

    @property
    def sure(self) -> str:
        """The probability of the first headline, as a percentage; empty where none is named."""
        return f"{min(sure for *_, sure, _role in self.culprits[: self.first]) * 100:.0f} %" if self.culprits else ""


def of_verdict(verdict: Verdict, version: int, at: float) -> VersionLine:
    """Return a verdict's line."""
    culprits = tuple((one.kind, one.id, one.ranks, one.probability, one.role or "") for one in verdict.culprits)
    return VersionLine(
        version, at, verdict.symptom, verdict.cause, verdict.abstained, verdict.action.kind, culprits,
        _first([one.root for one in verdict.culprits]),
    )  # fmt: skip


def of_summary(row: Mapping[str, Any]) -> VersionLine:
    """Return the line of the service's summary of a version."""
    culprits = tuple(
        (
            str(one["kind"]), str(one["id"]), tuple(one.get("ranks") or ()), float(one.get("probability") or 0.0),
            str(one.get("role") or ""),
        )
        for one in row.get("culprits") or ()
    )  # fmt: skip
    return VersionLine(
        int(row["version"]), float(row["at"]), row.get("symptom") or "", row.get("cause") or "",
        bool(row.get("abstained")), row.get("action") or "none", culprits,
        _first([str(one.get("root") or "") for one in row.get("culprits") or ()]),
    )  # fmt: skip


def versions_of(row: Mapping[str, Any], versions: Iterable[Mapping[str, Any]]) -> Iterator[VersionLine]:
    """Yield the lines of an incident's versions, oldest first; what is planned stands beside the newest."""
    newest = of_incident(row)
    for one in sorted(map(of_summary, versions), key=lambda line: line.version):
        yield replace(one, plan=newest.plan) if newest is not None and one.version == newest.version else one


def of_incident(row: Mapping[str, Any]) -> VersionLine | None:
    """Return the line of an incident's newest verdict, with what is planned; None before the first."""
    verdict = row["verdict"]
    return None if verdict is None else replace(of_summary(verdict), plan=row["plan"])


def advised(line: VersionLine, closed_at: float | None) -> str:
    """Return what is to be done about an incident; of a closed one, what was advised while it was open."""
    return line.deed if closed_at is None or line.deed == NONE_NAMED else f"advised: {line.deed}"


def _first(roots: list[str]) -> int:
    """Return how many culprits are of the first root: they are listed root by root."""
    return max(1, sum(root == roots[0] for root in roots)) if roots else 1


def as_json(line: VersionLine) -> dict[str, Any]:
    """Return a version in the service's own shape."""
    return {
        "version": line.version,
        "at": line.at,
        "symptom": line.symptom,
        "cause": line.cause,
        "abstained": line.abstained,
        "action": line.action,
        "culprits": [
            {"kind": kind, "id": id, "ranks": list(ranks), "probability": probability}
            | ({"role": role} if role else {})
            for kind, id, ranks, probability, role in line.culprits
        ],
    }


def lines(versions: Iterable[VersionLine]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of ``COLUMNS`` for each version, oldest first."""
    before: VersionLine | None = None
    for line in versions:
        yield (
            str(line.version), clock(line.at), line.symptom, line.cause, line.named, line.sure, line.deed,
            changed(before, line),
        )  # fmt: skip
        before = line


def changed(before: VersionLine | None, after: VersionLine) -> str:
    """Return what changed from one version to the next."""
    if before is None:
        return "first"
    parts = [
        f"{what} {was or 'none'} → {now or 'none'}"
        for what, was, now in (
            ("symptom", before.symptom, after.symptom),
            ("cause", before.cause, after.cause),
            ("culprit", before.named, after.named),
            ("action", before.deed, after.deed),
        )
        if was != now
    ]
    if not parts and before.sure != after.sure:
        parts.append(f"sure {before.sure} → {after.sure}")
    return ", ".join(parts) or "the evidence behind it"


def _called(kind: str, id: str, ranks: tuple[int, ...], role: str) -> str:
    if kind in ("group", "stage") and is_named_after_ranks(id):
        return f"one of {id}" if len(ranks) != 1 else id
    if not ranks or kind == "rank":
        return called(kind, id)
    whose = f"{role} " if role and kind != "role" else ""
    held = f"{whose}rank{'s' if len(ranks) > 1 else ''} {ranks_for_people(ranks, 4)}"
    return f"{kind} of {held}" if id.startswith("rank ") else f"{called(kind, id)} ({held})"
