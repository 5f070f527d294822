"""Whether a new judgement takes the place of the standing one. A gap is no reason, and a second change decides nothing.

new judgement ─┬─ claims the same, more, or a part of what was named ──────────────────────► published
               ├─ contradicts, and the nodes it is about did not answer the newest round ──► the standing one stays
               ├─ contradicts for the first time ──────────────────────────────────────────► published
               └─ contradicts again ───────────────────────────────────────────────────────► judged again: it abstains,
                                                                                             or evicts no node
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Literal

from msgspec.structs import replace

from analyzers.model.fault_classes import has
from analyzers.model.incident import Incident, VersionClaim
from analyzers.model.verdict import (
    TAKES_NODES,
    Verdict,
)

Weighed = Literal["publish", "keep", "contest"]

MOST_CLAIMS = 8  # that are remembered of an incident
MOST_CHANGES = 1  # a claim may be corrected once
MOST_NAMED = 4  # in a sentence


def claim_of(verdict: Verdict, at: float) -> VersionClaim:
    """Return what a verdict claims, without its words and probabilities."""
    named = sorted((f"{one.kind} {one.id}", one.role or "") for one in verdict.culprits)
    return VersionClaim(
        at=at,
        symptom=verdict.symptom,
        cause=verdict.cause,
        named=tuple(label for label, _role in named),
        roles=tuple(role for _label, role in named) if any(role for _label, role in named) else (),
        nodes=tuple(sorted({one.id for one in verdict.culprits if one.kind == "node"})),
        ranks=tuple(sorted({rank for one in verdict.culprits for rank in one.ranks})),
        takes=verdict.action.kind in TAKES_NODES,
        restarts=verdict.action.kind == "restart_role",
        outside=bool(verdict.roots) and all(has(root.fault_class, "from_outside") for root in verdict.roots),
        proven=verdict.symptom == "hardware" or any(has(root.fault_class, "own_state") for root in verdict.roots),
    )


def weigh_claim(incident: Incident, new: VersionClaim, silent: Collection[str]) -> Weighed:
    """Return what becomes of a new judgement. ``silent``: nodes without an answer to the newest evidence round."""
    before = _last_named(incident)
    if incident.abstains and not new.named and not incident.claims[-1].named:
        return "keep"  # it abstains already, for the same reason
    if before is None or not _contradicts(incident, before, new):
        return "publish"
    if _is_gap(incident, before, new, silent) or _is_an_end(before, new):
        return "keep"
    contested = incident.held_back if _names_alike(before, new) else incident.abstains
    return "contest" if incident.changes >= MOST_CHANGES and not contested else "publish"


def names_other(incident: Incident, new: VersionClaim) -> bool:
    """Whether a new judgement names others than the standing one, or no one; to take back an eviction is no such change."""
    before = _last_named(incident)
    return before is not None and _contradicts(incident, before, new) and not _names_alike(before, new)


def drops_restart(incident: Incident, new: VersionClaim) -> bool:
    """Whether a new judgement names the same as the standing one, and does not ask for the restart of its role any more."""
    before = _last_named(incident)
    return before is not None and before.restarts and not (new.restarts or new.takes) and _names_alike(before, new)


def remember_claim(incident: Incident, new: VersionClaim) -> Incident:
    """Return the incident with a claim that is published."""
    before = _last_named(incident)
    changed = before is not None and _contradicts(incident, before, new)
    return replace(incident, claims=(*incident.claims, new)[-MOST_CLAIMS:], changes=incident.changes + changed)


def contest_claims(incident: Incident, new: VersionClaim) -> Incident:
    """Return the incident whose next verdicts abstain, or evict no node, and say why."""
    history = [one for one in (*incident.claims, new) if one.named or one is not incident.claims[0]]
    in_turn = ", then ".join(f"{_in_words(one)} at {clock(one.at)}" for one in history)
    if len({(one.named, one.cause) for one in history}) == 1:
        return replace(incident, held_back=f"the evidence has changed twice for and against an eviction: {in_turn}")
    return replace(incident, abstains=f"the verdict has changed twice, so the evidence does not decide: {in_turn}")


def _last_named(incident: Incident) -> VersionClaim | None:
    return next((one for one in reversed(incident.claims) if one.named), None)


def _contradicts(incident: Incident, before: VersionClaim, new: VersionClaim) -> bool:
    """Whether it takes back what the last named claim states. ``proven``: a process or a device shows it itself."""
    if not new.named:
        return bool(incident.claims[-1].named)
    if new.proven or new.symptom not in {one.symptom for one in incident.claims if one.named}:
        return False  # a new fact; a symptom that was claimed before is one of two answers
    if _names_alike(before, new):
        return before.takes and not new.takes
    return not (new.ranks and set(new.ranks) < set(before.ranks) and not _is_of_other_roles(before, new))


def _names_alike(before: VersionClaim, new: VersionClaim) -> bool:
    alike = before.cause == new.cause or "unknown" in (before.cause, new.cause)
    return before.named == new.named and alike and not _is_of_other_roles(before, new)


def _is_of_other_roles(before: VersionClaim, new: VersionClaim) -> bool:
    """Whether the same rank numbers are of other ranks: each role counts its own. An unknown role may be any."""
    if before.named == new.named:
        return any(was and now and was != now for was, now in zip(before.roles, new.roles, strict=False))
    return "" not in before.roles and bool(before.roles) and not {*new.roles} <= {*before.roles, ""}


def _is_gap(incident: Incident, before: VersionClaim, new: VersionClaim, silent: Collection[str]) -> bool:
    """Whether the nodes that the contradiction is about, or most, gave no newer evidence."""
    about = {*before.nodes, *new.nodes} or set(incident.nodes)
    return bool(about & set(silent)) or 2 * len(silent) > len(incident.nodes)


def _is_an_end(before: VersionClaim, new: VersionClaim) -> bool:
    """Whether it only says that the processes have ended since: why they stood still before stays true."""
    return before.symptom == "hang" and new.symptom == "crash" and not new.named


def _in_words(one: VersionClaim) -> str:
    more = f" and {len(one.named) - MOST_NAMED} more" if len(one.named) > MOST_NAMED else ""
    named = ", ".join(one.named[:MOST_NAMED]) + more
    return f"{named or 'nothing'}{' (evict)' if one.takes else ''}"


def clock(at: float) -> str:
    """Return the time of day, UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")
