"""The verdict document (docs/verdict.md): one answer, the same for terminal, JSON, HTML and REST. Additive only."""

from __future__ import annotations

import msgspec

SCHEMA = "faulthound.verdict/1"


class Root(msgspec.Struct, frozen=True, kw_only=True):
    """One independent cause."""

    root: str
    cause: str
    fault_class: str = msgspec.field(name="class", default="")
    calibration: str = "none"  # on what the probabilities were calibrated: none, simulator, site
    n: int = 0


class Culprit(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of ``culprits`` or ``suspects``."""

    root: str
    kind: str
    id: str
    ranks: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()
    role: str | None = None
    probability: float = 0.0
    why: str = ""
    evidence: tuple[str, ...] = ()


class FirstSymptom(msgspec.Struct, frozen=True, kw_only=True):
    """The first thing that went wrong, wherever it showed."""

    text: str
    rank: int | None = None
    at: str | None = None


class Victims(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks that only wait, and the chains by which they wait for the culprit."""

    count: int = 0
    ranks: str = ""  # "0-3303,3305-4095"
    chains: tuple[str, ...] = ()  # "7 → 15 → 3304"


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """A suspect that was considered, and the reason it lost."""

    kind: str
    id: str
    why: str


class EvidenceItem(msgspec.Struct, frozen=True, kw_only=True):
    """One sentence that a reader can check, and the record it rests on."""

    id: str
    text: str
    source: str = ""
    analyzer: str = ""
    at: str | None = None


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """Evidence that was not there; ``matters``: it would have changed or sharpened the answer."""

    what: str
    matters: bool = True


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """``kind``: evict, drain_after_job, reset_gpu, reboot_node, restart_role, restart_job, reattempt, rollback, probe, none."""

    kind: str = "none"
    nodes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()  # where no node is known
    role: str | None = None
    why: str = ""
    expected_loss_gpu_hours: float | None = None


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the job was seen, and through what."""

    ranks_expected: int | None = None
    ranks_seen: int = 0
    sources: dict[str, int] = {}
    other_attempts: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The one answer. ``abstained``: nothing is named, ``culprits`` is empty and ``missing`` says what would decide."""

    symptom: str
    cause: str
    abstained: bool
    schema: str = SCHEMA
    version: str = ""
    knowledge: str = ""
    job: str | None = None
    attempt: int | None = None
    onset: str | None = None
    dump_skew_seconds: float | None = None
    roots: tuple[Root, ...] = ()
    culprits: tuple[Culprit, ...] = ()
    suspects: tuple[Culprit, ...] = ()
    first_symptom: FirstSymptom | None = None
    victims: Victims = Victims()
    rejected: tuple[Rejected, ...] = ()
    evidence: tuple[EvidenceItem, ...] = ()
    missing: tuple[Missing, ...] = ()
    action: Action = Action()
    coverage: Coverage = Coverage()


def to_json(verdict: Verdict, *, indent: int = 2) -> bytes:
    """Render with sorted keys and every field present, so that equal verdicts are equal bytes."""
    return msgspec.json.format(msgspec.json.encode(verdict, order="sorted"), indent=indent)
