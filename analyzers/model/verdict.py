"""The verdict document (docs/verdict.md): one answer, the same for terminal, JSON, HTML and REST. Additive only."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Annotated

import msgspec

from analyzers.model.doc import doc
from collectors.records.identity import shown_rank

SCHEMA = "faulthound.verdict/1"


class Root(msgspec.Struct, frozen=True, kw_only=True):
    """One independent cause."""

    root: Annotated[str, doc("Its id within the verdict, to which culprits and suspects refer.")]
    cause: Annotated[str, doc("machine, network, code, data, imbalance, storage, platform or unknown.")]
    fault_class: Annotated[str, doc("The fault class; empty: not known. One of `pause_…` has no culprit.")] = (
        msgspec.field(name="class", default="")
    )
    agreeing: Annotated[
        tuple[str, ...], doc("Fault classes of other findings that agree on what it names, `stopped` for example.")
    ] = ()
    families: Annotated[
        tuple[str, ...], doc("Kinds of evidence that it rests on: the one that claims it, then those that agree.")
    ] = ()
    onset: Annotated[str | None, doc("When it began, as RFC 3339; null: unknown.")] = None
    assumes: Annotated[str, doc("What it takes for granted and no evidence shows; empty: nothing.")] = ""
    calibration: Annotated[str, doc("What the probabilities were calibrated on: none, simulator or site.")] = "none"
    n: Annotated[int, doc("How many incidents they were calibrated on.")] = 0


class Culprit(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of ``culprits`` or ``suspects``."""

    root: Annotated[str, doc("The root that it belongs to.")]
    kind: Annotated[
        str,
        doc(
            "rank (no host is known), device, node, link, switch, role, code, data, library, storage, platform, service, "
            "unknown; group or stage: a set that the evidence cannot narrow, and one of its ranks is guilty."
        ),
    ]
    id: Annotated[str, doc("A rank's number, a host name, a PCI address, a service's `host:port`.")]
    ranks: Annotated[
        tuple[int, ...], doc("Its guilty ranks, not all ranks of its node; of `code`, the ranks to examine.")
    ] = ()
    ranks_on_node: Annotated[
        int | None, doc("Of a node: how many ranks of the job it is known to hold, guilty or not; null: not known.")
    ] = None
    devices: Annotated[tuple[str, ...], doc("Its devices, by PCI address or UUID.")] = ()
    role: Annotated[str | None, doc("The role of its ranks; null: none is known.")] = None
    instances: Annotated[tuple[str, ...], doc("Which instances of its role, where they are known by name.")] = ()
    names: Annotated[
        tuple[str, ...], doc("What its ranks are called, where they have no numbers of their own: `rollout rank #2`.")
    ] = ()
    probability: Annotated[float, doc("With the other suspects of its root it sums to 1.")] = 0.0
    strength: Annotated[
        float | None,
        doc("Its probability by the evidence alone, before calibration; actions weigh it. Null: the same."),
    ] = None
    why: Annotated[str, doc("One sentence.")] = ""
    evidence: Annotated[tuple[str, ...], doc("Ids of the evidence that it rests on.")] = ()

    @property
    def weight(self) -> float:
        """What actions weigh: the strength of its evidence. No calibration makes an action bolder."""
        return self.probability if self.strength is None else self.strength

    @property
    def seat(self) -> tuple[str | None, str | None]:
        """Its role, and the one instance of it: as it is named, of kind role by its name ("rollout 3"), else by its only rank."""
        if len(self.instances) == 1:
            return self.role, self.instances[0]
        if self.kind == "role":
            name, _, instance = self.id.partition(" ")
            return self.role or name, instance or None
        return self.role, shown_rank(self.ranks[0]) if len(self.ranks) == 1 else None


SETS = frozenset({"group", "stage"})
"""Kinds of culprits of which one rank is guilty."""


class FirstSymptom(msgspec.Struct, frozen=True, kw_only=True):
    """The first thing that went wrong, on whichever rank it showed."""

    text: Annotated[str, doc("One sentence.")]
    rank: Annotated[int | None, doc("The rank that showed it; null: unknown.")] = None
    role: Annotated[str | None, doc("The role of that rank; null: none is known.")] = None
    at: Annotated[str | None, doc("When, as RFC 3339; null: unknown.")] = None


class Victims(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks that only wait, and the chains by which they wait for the culprit."""

    count: Annotated[int, doc("How many ranks only wait.")] = 0
    ranks: Annotated[str, doc("Their numbers as ranges, such as `0-3303,3305-4095`.")] = ""
    chains: Annotated[tuple[str, ...], doc("`7 → 15 → 3304`: each waits for the next, the last is the culprit.")] = ()
    roles: Annotated[
        dict[str, str], doc("Role → its ranks, where roles share rank numbers; `ranks` are those of the first then.")
    ] = {}


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """A suspect that was considered, and the reason it was dismissed."""

    kind: Annotated[str, doc("As of a culprit.")]
    id: Annotated[str, doc("Its name.")]
    why: Annotated[str, doc("Why it was dismissed.")]


class EvidenceItem(msgspec.Struct, frozen=True, kw_only=True):
    """One sentence that a reader can check, and the record it rests on."""

    id: Annotated[str, doc("Its id within the verdict.")]
    text: Annotated[str, doc("One sentence.")]
    source: Annotated[str, doc("The file, and the place in it, or the collector.")] = ""
    analyzer: Annotated[str, doc("The analyzer that found it.")] = ""
    at: Annotated[str | None, doc("When, as RFC 3339; null: unknown.")] = None


class SlowPath(msgspec.Struct, frozen=True, kw_only=True):
    """A path between two ranks that is slow: traffic may be led around it."""

    source: Annotated[str, doc("Who sends: `rank 3`, or a process and its host where no rank is known.")]
    target: Annotated[str, doc("Who receives.")]
    times: Annotated[float, doc("How many times as long its transfers take as those of paths like it.")]


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """Evidence that was not available."""

    what: Annotated[str, doc("What is missing, and how to get it.")]
    matters: Annotated[bool, doc("Whether it would have changed or sharpened the answer.")] = True


TAKES_NODES: frozenset[str] = frozenset({"evict", "drain_after_job", "reset_gpu", "reboot_node"})
"""Actions that take nodes out of a job: they count in the budget and in the breaker."""
KEEPS_OUT: frozenset[str] = frozenset({"evict", "drain_after_job"})
"""Of these, the ones that blame the nodes, which stay out until they are returned; the others repair what they take out."""


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """What to do about it."""

    kind: Annotated[
        str,
        doc(
            "evict, drain_after_job, reset_gpu, reboot_node, restart_role, restart_job, reattempt, rollback, probe or none."
        ),
    ] = "none"
    nodes: Annotated[tuple[str, ...], doc("The nodes that it is about.")] = ()
    ranks: Annotated[tuple[int, ...], doc("The ranks that it is about, where no node is known.")] = ()
    nodes_of_ranks: Annotated[
        tuple[str, ...],
        doc("Where all of these ranks ran, as far as is seen; it is about the ranks, and names no node."),
    ] = ()
    devices: Annotated[tuple[str, ...], doc("The devices that it is about, where no node is known.")] = ()
    role: Annotated[str | None, doc("The role that it is about; null: none.")] = None
    instance: Annotated[str | None, doc("The instance of the role that it is about; null: all of them.")] = None
    why: Annotated[str, doc("One sentence.")] = ""
    expected_loss_gpu_hours: Annotated[float | None, doc("What it costs on average; null: unknown.")] = None


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the job was seen, and through what."""

    ranks_expected: Annotated[int | None, doc("Ranks of the job; null: unknown.")] = None
    ranks_at_least: Annotated[
        bool, doc("No record states the number of ranks: the job may have more than `ranks_expected`.")
    ] = False
    ranks_seen: Annotated[int, doc("Ranks that the evidence is of.")] = 0
    roles: Annotated[dict[str, int], doc("Role → how many ranks of it were seen, where roles are known.")] = {}
    sources: Annotated[
        dict[str, int], doc("Records judged, by kind; `flight_recorder`: the newest dump of each rank.")
    ] = {}
    other_attempts: Annotated[
        tuple[str, ...], doc("Attempts that the evidence is also of, and that were left out.")
    ] = ()
    unread: Annotated[tuple[str, ...], doc("Files that gave no record, with the reason.")] = ()
    has_gpus: Annotated[
        bool | None,
        doc(
            "Whether the nodes that the action names, else all, have GPUs; false: agents looked for them; null: unknown."
        ),
    ] = None
    has_ended: Annotated[
        bool, doc("A launcher, or a watchdog, reports that processes of the job ended with an error.")
    ] = False
    all_ended: Annotated[bool, doc("Every process of the job is seen to have ended: none can be asked any more.")] = (
        False
    )
    backends: Annotated[
        tuple[str, ...], doc("Libraries that collectives are seen to run on: gloo, nccl; empty: unknown.")
    ] = ()
    shed: Annotated[
        tuple[str, ...], doc("Nodes of which the engine gave up records for want of memory: none of them is evicted.")
    ] = ()


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The one answer. ``abstained``: it names no culprit, and ``missing`` lists what would decide."""

    symptom: Annotated[str, doc("hang, slow, crash, numeric, hardware, healthy or unknown.")]
    cause: Annotated[
        str,
        doc("Of the most probable root: machine, network, code, data, imbalance, storage, platform, unknown or none."),
    ]
    abstained: Annotated[
        bool,
        doc(
            "True: `culprits` is empty, and `missing` lists what would decide. False with empty `culprits`: healthy, or a pause."
        ),
    ]
    schema: Annotated[str, doc("`faulthound.verdict/1`.")] = SCHEMA
    version: Annotated[str, doc("The version of the program that judged.")] = ""
    knowledge: Annotated[str, doc("The hash of the knowledge tables, overrides included.")] = ""
    job: Annotated[str | None, doc("The job; null: unknown.")] = None
    attempt: Annotated[int | None, doc("The attempt; null: unknown.")] = None
    onset: Annotated[str | None, doc("When the trouble began, as RFC 3339; null: unknown.")] = None
    dump_skew_seconds: Annotated[float | None, doc("Between the first and the last dump; null: unknown.")] = None
    roots: Annotated[tuple[Root, ...], doc("The independent causes, the most probable first.")] = ()
    culprits: Annotated[tuple[Culprit, ...], doc("What the verdict names, the most probable first.")] = ()
    suspects: Annotated[tuple[Culprit, ...], doc("All that were considered, the most probable first.")] = ()
    first_symptom: Annotated[FirstSymptom | None, doc("The first thing that went wrong; null: unknown.")] = None
    victims: Annotated[Victims, doc("The ranks that only wait.")] = Victims()
    rejected: Annotated[tuple[Rejected, ...], doc("Suspects that were dismissed, and why.")] = ()
    evidence: Annotated[tuple[EvidenceItem, ...], doc("The evidence that the verdict rests on.")] = ()
    missing: Annotated[tuple[Missing, ...], doc("Evidence that was not available.")] = ()
    slow_paths: Annotated[
        tuple[SlowPath, ...], doc("Paths between ranks whose transfers are slow, for what plans traffic.")
    ] = ()
    action: Annotated[Action, doc("What to do.")] = Action()
    coverage: Annotated[Coverage, doc("How much of the job was seen.")] = Coverage()


def to_json(verdict: Verdict, *, indent: int = 2) -> bytes:
    """Render with sorted keys and every field present, so that equal verdicts are equal bytes."""
    return msgspec.json.format(msgspec.json.encode(verdict, order="sorted"), indent=indent)


def digest(verdict: Verdict) -> str:
    """Return a hash of what a reader would act on: the same verdict in other words is not a new version."""
    culprits = sorted((one.kind, one.id, one.ranks, *((one.role,) if one.role else ())) for one in verdict.culprits)
    action = (verdict.action.kind, sorted(verdict.action.nodes), sorted(verdict.action.ranks), verdict.action.role)
    said = (
        verdict.symptom,
        verdict.cause,
        verdict.abstained,
        [root.fault_class for root in verdict.roots],
        culprits,
        action,
    )
    return hashlib.sha256(repr(said).encode()).hexdigest()[:16]


def instant(at: float | None) -> str | None:
    """Write UTC seconds as RFC 3339 with milliseconds; None where the value is no possible time."""
    if at is None or not 0 <= at < 253402300800:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
