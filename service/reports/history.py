"""How a verdict came to be what it is: its versions, one line each, and what changed from one to the next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from analyzers.model.verdict import Verdict
from service.reports.hostlists import ranks_for_people
from service.reports.instants import clock

COLUMNS = ("version", "at (UTC)", "symptom", "cause", "culprit", "sure", "action", "what changed")
MOST_CULPRITS = 3  # named in one line
NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Said:
    """What one version says, as far as a line holds it. ``culprits``: (kind, id, ranks, probability)."""

    version: int
    at: float
    symptom: str
    cause: str
    abstained: bool
    action: str
    culprits: tuple[tuple[str, str, tuple[int, ...], float], ...] = ()

    @property
    def named(self) -> str:
        """Who is named, ``nobody`` where nobody is."""
        every = [_called(kind, id, ranks) for kind, id, ranks, _sure in self.culprits]
        more = [f"{len(every) - MOST_CULPRITS:,} more"] if len(every) > MOST_CULPRITS else []
        return ", ".join([*every[:MOST_CULPRITS], *more]) or NOBODY

    @property
    def sure(self) -> str:
        """How sure it is of the least probable culprit, as a percentage; empty where nobody is named."""
        return f"{min(sure for *_, sure in self.culprits) * 100:.0f} %" if self.culprits else ""


def of_verdict(verdict: Verdict, version: int, at: float) -> Said:
    """Return what a verdict says."""
    culprits = tuple((one.kind, one.id, one.ranks, one.probability) for one in verdict.culprits)
    return Said(version, at, verdict.symptom, verdict.cause, verdict.abstained, verdict.action.kind, culprits)


def of_summary(row: Mapping[str, Any]) -> Said:
    """Return what the service's summary of a version says."""
    culprits = tuple(
        (str(one["kind"]), str(one["id"]), tuple(one.get("ranks") or ()), float(one.get("probability") or 0.0))
        for one in row.get("culprits") or ()
    )
    return Said(
        int(row["version"]), float(row["at"]), row.get("symptom") or "", row.get("cause") or "",
        bool(row.get("abstained")), row.get("action") or "none", culprits,
    )  # fmt: skip


def as_json(said: Said) -> dict[str, Any]:
    """Return what a version says in the service's own shape."""
    return {
        "version": said.version,
        "at": said.at,
        "symptom": said.symptom,
        "cause": said.cause,
        "abstained": said.abstained,
        "action": said.action,
        "culprits": [
            {"kind": kind, "id": id, "ranks": list(ranks), "probability": probability}
            for kind, id, ranks, probability in said.culprits
        ],
    }


def lines(versions: Iterable[Said]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of ``COLUMNS`` for each version, oldest first."""
    before: Said | None = None
    for said in versions:
        yield (
            str(said.version), clock(said.at), said.symptom, said.cause, said.named, said.sure, said.action,
            changed(before, said),
        )  # fmt: skip
        before = said


def changed(before: Said | None, after: Said) -> str:
    """Say what one version says otherwise than the one before it."""
    if before is None:
        return "first"
    parts = [
        f"{what} {was or 'none'} → {now or 'none'}"
        for what, was, now in (
            ("symptom", before.symptom, after.symptom),
            ("cause", before.cause, after.cause),
            ("culprit", before.named, after.named),
            ("action", before.action, after.action),
        )
        if was != now
    ]
    if not parts and before.sure != after.sure:
        parts.append(f"sure {before.sure} → {after.sure}")
    return ", ".join(parts) or "the evidence behind it"


def _called(kind: str, id: str, ranks: tuple[int, ...]) -> str:
    if id.startswith("ranks "):  # a set without a name of its own is called after its ranks
        return f"one of {id}"
    if not ranks or kind == "rank":
        return f"{kind} {id}"
    held = f"rank{'s' if len(ranks) > 1 else ''} {ranks_for_people(ranks, 4)}"
    return f"{kind} of {held}" if id.startswith("rank ") else f"{kind} {id} ({held})"
