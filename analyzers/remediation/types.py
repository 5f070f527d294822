"""The words of remediation: what is proposed, who holds or stops it, what bounds it. Everything here is a value.

A remediation is a plan under execution; a scheduler does and undoes it under a claim: a lease with a fencing token.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from analyzers.remediation.dual_phase import ReplayPlan

Status = Literal[
    "proposed", "approved", "claimed", "executing", "verifying", "done",
    "rejected", "failed", "expired", "cancelled", "undone",
]  # fmt: skip
Kind = Literal[
    "evict", "drain_after_job", "reset_gpu", "reboot_node", "restart_role", "restart_job", "reattempt", "rollback",
    "probe", "replay",
]  # fmt: skip
Mode = Literal["propose", "shadow", "automatic"]
Task = Literal["do", "undo"]
Outcome = Literal["cured", "not_cured", "unknown"]

TAKES_NODES: frozenset[str] = frozenset({"evict", "drain_after_job", "reset_gpu", "reboot_node"})
"""Kinds that take nodes out of a job: they count in the budget and in the breaker."""
KEEPS_OUT: frozenset[str] = frozenset({"evict", "drain_after_job"})
"""Of these, those that blame the nodes, which stay out until somebody returns them; the others mend what they take out."""
STOPS_NOTHING: frozenset[str] = frozenset({"drain_after_job"})
"""Kinds under which the attempt goes on: new trouble of it is its own."""
CHECKS: frozenset[str] = frozenset({"probe", "replay"})
"""Kinds that find something out. They change nothing, so that their completion is their end."""
WAITING: frozenset[str] = frozenset({"proposed", "approved"})
UNBEGUN: frozenset[str] = WAITING | {"claimed"}
CLAIMED: frozenset[str] = frozenset({"claimed", "executing"})
UNDOABLE: frozenset[str] = frozenset({"verifying", "done", "failed"})
ENDED: frozenset[str] = frozenset({"done", "rejected", "failed", "expired", "cancelled", "undone"})


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Who acts, until when. ``token`` grows with every claim of the remediation: an older one is refused."""

    by: str
    token: int
    until: float
    task: Task = "do"


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """With what the holder of a claim has ended it. Said again, because the answer was lost, it is answered again."""

    by: str
    token: int
    word: Literal["complete", "fail"]


class Undo(msgspec.Struct, frozen=True, kw_only=True):
    """That somebody wants it undone."""

    by: str
    reason: str
    at: float


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """What else was weighed. ``why`` says what bars it, if anything does."""

    kind: str
    nodes: tuple[str, ...] = ()
    role: str | None = None
    expected_loss_gpu_hours: float | None = None
    why: str = ""


class Remediation(msgspec.Struct, frozen=True, kw_only=True):
    """One plan, from its proposal to its end. Instants are UTC seconds."""

    id: str  # "rem-" and 12 hexadecimal digits
    incident: str
    verdict_version: int  # the one that it rests on
    job: str
    attempt: int | None
    kind: Kind
    nodes: tuple[str, ...]  # to be taken out, or to be looked at; empty where the kind is about none
    fault_class: str
    symptom: str
    probability: float  # of what the verdict names: the least of them
    why: str  # one sentence
    proposed_at: float
    role: str | None = None
    code_version: str | None = None  # for a rollback: that of the newest attempt known to have run well
    replay: ReplayPlan | None = None  # for a replay: the groups of nodes to run it on
    expected_loss_gpu_hours: float | None = None
    priced_tenants: tuple[str, ...] = ()  # other jobs on these nodes: what they lose is in the plan's loss
    alternatives: tuple[Alternative, ...] = ()  # the least loss first
    proposed_by: str = "engine"
    mode: Mode = "propose"  # by which the policy took it up
    rule: str = ""  # of the policy
    status: Status = "proposed"
    because: str = ""  # of the status, one sentence
    changed_at: float = 0.0  # when the status began
    approved_by: str = ""
    approved_at: float | None = None
    claim: Claim | None = None
    claims: int = 0  # the highest token that was given
    failed_claims: int = 0  # how many claims failed before anything was begun
    again_at: float | None = None  # after such a failure: not to be claimed before
    ending: Ending | None = None  # of the newest claim that its holder has ended
    cancelled_by: str = ""  # who did: proposed again, only a person lets it act
    began_at: float | None = None  # first execution: from here on it counts in budget and breaker
    completed_at: float | None = None
    did: dict[str, Any] = {}  # what the scheduler says it did, node → what: what an undo takes back
    out: tuple[str, ...] = ()  # nodes that it has taken out, or, where nobody knows how far it came, may have
    undo: Undo | None = None
    give_back: tuple[str, ...] = ()  # by the undo: nodes that nobody else has taken out as well
    outcome: Outcome | None = None
    version: int = 1  # its ETag: of all but the end of its claim, which says nothing to who decides

    @property
    def may_have_taken(self) -> bool:
        """Whether it may have taken nodes out: it has begun, or somebody who had not says what they did."""
        return self.kind in TAKES_NODES and (self.began_at is not None or bool(self.did))


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """Leave a node or a job alone until then."""

    id: str
    by: str
    reason: str
    made_at: float
    until: float
    node: str | None = None
    job: str | None = None


class Freeze(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing acts anywhere."""

    by: str
    reason: str
    at: float


class Trip(msgspec.Struct, frozen=True, kw_only=True):
    """The breaker is open: too large a share of the nodes was taken out in too short a time. Only a person closes it."""

    at: float
    reason: str


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """That nodes were taken out: what the budget and the breaker count. It outlives the remediation's row."""

    remediation: str
    at: float
    nodes: tuple[str, ...]


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a job when somebody wants to act on it."""

    nodes: tuple[str, ...] = ()  # that its newest attempt runs on
    attempt: int | None = None
    gpus_per_node: int = 8
    minimum_nodes: int | None = None  # declared; None: nobody has said
    spares: int | None = None  # nodes left that can take an evicted one's place; None: nobody has said
    saving_since: float | None = None  # a checkpoint is being saved
    save_seconds: float | None = None  # how long that usually takes; None: none was seen yet
    holders: dict[str, tuple[str, ...]] = {}  # node → nodes with a copy of its checkpoint shards; empty: not declared
    last_checkpoint_at: float | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet as it is now. Loaded fresh for every step."""

    fleet_nodes: int = 0  # that have reported within a day
    jobs: dict[str, JobFacts] = {}
    tenants: dict[str, tuple[str, ...]] = {}  # node → other jobs that run on it now; the job itself is among them
    newest_verdicts: dict[str, int] = {}  # incident → version of its newest verdict
    merged: dict[str, str] = {}  # incident → the infrastructure incident that explains it
    onsets: dict[str, float] = {}  # incident → when its trouble began
    taken: dict[str, tuple[str, ...]] = {}  # node → remediations that have taken it out and keep it out


def same_node(one: str, other: str) -> bool:
    """Whether two names may be of one machine: with its domain or without, as schedulers have it."""
    bare = "." not in one or "." not in other
    return one == other or (bare and one.partition(".")[0] == other.partition(".")[0])


class Hindrance(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why a remediation must not act now."""

    code: str  # frozen held expired breaker budget again policy minimum moved acting saving tenants shards superseded merged
    text: str  # one sentence: the thing, the value, the bound, the next step


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much may be done in how short a time."""

    evictions_an_hour: int = 4  # nodes
    breaker_share: float = 0.05  # of the fleet's nodes
    breaker_least_nodes: int = 3  # below this many the share does not trip: of ten nodes 5 % is none
    breaker_seconds: float = 3_600.0
    proposal_seconds: float = 4 * 3_600.0  # a proposal that nobody answers expires
    approval_seconds: float = 1_800.0  # an approved one that nobody claims expires
    claim_seconds: float = 600.0  # the longest claim
    verify_seconds: float = 1_800.0  # after this without news the outcome is unknown


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be done by itself about one class of faults. What is left out fits everything."""

    name: str
    mode: Mode = "propose"
    kind: Kind | None = None
    symptom: str | None = None
    fault_class: str | None = None
    job: str | None = None  # a pattern with * and ?
    least_probability: float = 0.0
    least_precision: float = 0.95  # what shadow mode must have shown, at its 95 % lower bound, before it may act
    most_nodes: int = 1  # that one remediation may take by itself


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first rule that fits decides; where none does it is proposed to a person."""

    rules: tuple[Rule, ...] = ()
    limits: Limits = Limits()


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """Closed incidents that a rule would have acted upon, and in how many that would have been right."""

    seen: int = 0
    right: int = 0


class Book(msgspec.Struct, kw_only=True):
    """All that a step needs to know. ``remediations``: those that have not ended, and those that could still be undone."""

    remediations: dict[str, Remediation] = {}
    executions: list[Execution] = []  # of the longer of the budget's hour and the breaker's time
    holds: dict[str, Hold] = {}
    freeze: Freeze | None = None
    trip: Trip | None = None
    breaker_closed_at: float | None = None  # what was executed before counts no more
    policy: Policy = Policy()
    tallies: dict[str, Tally] = {}  # rule → what shadow mode has shown of it
    facts: Facts = Facts()

    @property
    def limits(self) -> Limits:
        """The policy's."""
        return self.policy.limits
