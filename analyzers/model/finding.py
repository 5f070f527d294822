"""What one analyzer claims. What all claims come to is the verdict (``verdict.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Symptom = Literal["hang", "slow", "crash", "numeric", "hardware", "healthy", "unknown"]
Cause = Literal["machine", "network", "code", "data", "imbalance", "storage", "platform", "unknown", "none"]
Family = Literal["waits", "roles", "stacks", "process", "hardware", "log", "timings"]
Kind = Literal[
    "rank", "device", "node", "link", "switch", "group", "role", "stage", "code", "data", "library", "storage", "platform",
    "service",
]  # fmt: skip

KIND_OF_CAUSE: Mapping[Cause, Kind] = {  # what is suspected of a cause where nothing is named, the worst first
    "machine": "node", "code": "code", "platform": "platform", "storage": "storage", "data": "data", "network": "link",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One sentence that a reader can check, and the record it rests on."""

    text: str
    source: str = ""
    at: float | None = None
    rank: int | None = None  # whose record it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """What a finding points at. ``ranks`` are the guilty ranks only, never all of the node's.

    ``strength`` in (0, 1]: how sure this analyzer is of *this* suspect, were its own evidence all there is.
    """

    kind: Kind
    strength: float
    why: str
    ranks: tuple[int, ...] = ()
    node: str | None = None
    device: str | None = None  # PCI address or UUID
    name: str = ""  # of a service: "10.0.0.5:8000"
    evidence: tuple[Evidence, ...] = ()
    role: str = ""  # of an instance of a role, or of a role
    instances: tuple[str, ...] = ()
    restarts: str = ""  # what has to start again with it, where that is not its own role: another role, or "job"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowPathClaim:
    """One path between two ranks on which transfers take ``times`` as long as on others like it; names where no rank is known."""

    source: str
    target: str
    times: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One claim. ``together``: all suspects are culprits; otherwise at least one of them is (a set to narrow).

    ``fault_class``: a row of ``fault_classes.py``.
    ``narrows``: the finding names no suspect by itself but picks among another finding's set (a minority stack).
    ``senders``: the nodes whose agents' records it rests on, where all of them are known; else empty.
    ``scope``: ranks that the claim is about, suspects and victims alike; claims on disjoint scopes are separate roots.
    """

    analyzer: str
    family: Family
    symptom: Symptom
    cause: Cause
    fault_class: str
    suspects: tuple[Suspect, ...] = ()
    together: bool = False
    narrows: bool = False
    assumes: str = ""  # what it takes for granted and no record shows, and what would: nothing is evicted for it alone
    scope: frozenset[int] = frozenset()
    onset: float | None = None
    no_earlier_than: float | None = None  # a hang had not begun by then, as the time-out says that ended it
    no_later_than: float | None = None  # it had happened by then: no line of a crash has a time, or a watchdog gave up
    first_symptom: Evidence | None = None
    victims: tuple[int, ...] = ()
    chains: tuple[tuple[int, ...], ...] = ()  # victim … culprit, each waits for the next
    rejected: tuple[Suspect, ...] = ()
    missing: tuple[str, ...] = ()  # evidence that would decide
    evidence: tuple[Evidence, ...] = ()
    senders: frozenset[str] = frozenset()
    role: str = ""  # whose ranks these are, where roles share rank numbers
    paths: tuple[SlowPathClaim, ...] = ()  # that are slow: traffic may be led around them
    costs: float = 0.0  # how many times as long a step takes because of it, where that is known
