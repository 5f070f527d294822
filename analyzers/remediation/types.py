"""The types of remediation. All of them are values.

A remediation is a plan under execution; a scheduler does and undoes it under a claim: a lease with a fencing token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from analyzers.model.doc import doc
from analyzers.model.verdict import TAKES_NODES
from analyzers.remediation.dual_phase import ReplayPlan
from analyzers.remediation.role_restart import RoleRestart

Status = Literal[
    "proposed", "approved", "claimed", "executing", "verifying", "done",
    "rejected", "failed", "expired", "cancelled", "undone",
]  # fmt: skip
RemediationKind = Literal[
    "evict", "drain_after_job", "reset_gpu", "reboot_node", "restart_role", "restart_job", "reattempt", "rollback",
    "probe", "replay",
]  # fmt: skip
Mode = Literal["propose", "shadow", "automatic"]
Task = Literal["do", "undo"]
Outcome = Literal["cured", "not_cured", "unknown"]

STOPS_NOTHING: frozenset[str] = frozenset({"drain_after_job"})
"""Kinds under which the attempt goes on: its later incidents are new."""
CHECKS: frozenset[str] = frozenset({"probe", "replay"})
"""Kinds that examine nodes. They change nothing, so their completion is their end."""
WAITING: frozenset[str] = frozenset({"proposed", "approved"})
UNBEGUN: frozenset[str] = WAITING | {"claimed"}
CLAIMED: frozenset[str] = frozenset({"claimed", "executing"})
UNDER_WAY: frozenset[str] = frozenset({"executing", "verifying"})  # begun, and its outcome is not known yet
UNDOABLE: frozenset[str] = frozenset({"verifying", "done", "failed"})
ENDED: frozenset[str] = frozenset({"done", "rejected", "failed", "expired", "cancelled", "undone"})
WITHDRAWN: frozenset[str] = frozenset({"rejected", "expired", "cancelled"})  # ended, and nothing was done


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A lease on a remediation: the holder acts, and no other caller."""

    by: Annotated[str, doc("The holder, as the audit log names it.")]
    token: Annotated[
        int, doc("The fencing token. It grows with every claim of the remediation; an older one is refused.")
    ]
    until: Annotated[float, doc("The end of the lease, UTC seconds by the service's clock.")]
    task: Annotated[Task, doc("What the holder is to do.")] = "do"


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How the holder of a claim has ended it. The same ending sent again gets the same answer again."""

    by: Annotated[str, doc("The holder of the claim.")]
    token: Annotated[int, doc("The fencing token of the claim.")]
    word: Annotated[Literal["complete", "fail"], doc("The request that ended it.")]


class Undo(msgspec.Struct, frozen=True, kw_only=True):
    """A request to undo a remediation."""

    by: Annotated[str, doc("The caller that asked for it.")]
    reason: Annotated[str, doc("Why, in the caller's words.")]
    at: Annotated[float, doc("When it was asked for, UTC seconds.")]


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """Another plan that was weighed, and its expected loss."""

    kind: Annotated[str, doc("The kind of the plan.")]
    nodes: Annotated[tuple[str, ...], doc("The nodes that it would take out or examine.")] = ()
    role: Annotated[str | None, doc("The role that it would restart; null: none.")] = None
    expected_loss_gpu_hours: Annotated[float | None, doc("What it would cost on average; null: unknown.")] = None
    expected_loss_node_hours: Annotated[float | None, doc("The same for a job whose nodes have no GPU; else null.")] = (
        None
    )
    why: Annotated[str, doc("What bars it; empty: nothing.")] = ""


class Remediation(msgspec.Struct, frozen=True, kw_only=True):
    """One plan, from its proposal to its end. Instants are UTC seconds."""

    id: Annotated[str, doc("`rem-` and 12 hexadecimal digits.")]
    incident: Annotated[str, doc("The incident that it is for.")]
    verdict_version: Annotated[int, doc("The version of the incident's verdict that it rests on.")]
    job: Annotated[str, doc("The job that it is for.")]
    attempt: Annotated[int | None, doc("The attempt that the incident is of; null: unknown.")]
    kind: Annotated[RemediationKind, doc("What is to be done.")]
    nodes: Annotated[
        tuple[str, ...], doc("The nodes to take out or to examine; empty where the kind concerns no node.")
    ]
    fault_class: Annotated[str, doc("The fault class of the verdict.")]
    symptom: Annotated[str, doc("The symptom of the verdict.")]
    probability: Annotated[float, doc("The lowest probability among the culprits of the verdict.")]
    why: Annotated[str, doc("One sentence.")]
    first: Annotated[
        str,
        doc("What to ask before it is approved: who killed, or stopped, the process that it is for; empty: nothing."),
    ] = ""
    proposed_at: Annotated[float, doc("When it was proposed.")]
    role: Annotated[str | None, doc("The role to restart; null: none.")] = None
    role_restart: Annotated[
        RoleRestart | None, doc("For a restart of a role: of which instances, and where; null: it is none.")
    ] = None
    code_version: Annotated[
        str | None, doc("For a rollback: the version of the newest attempt that is known to have run well.")
    ] = None
    replay: Annotated[ReplayPlan | None, doc("For a replay: the groups of nodes to run it on.")] = None
    expected_loss_gpu_hours: Annotated[float | None, doc("What it costs on average; null: unknown.")] = None
    expected_loss_node_hours: Annotated[float | None, doc("The same for a job whose nodes have no GPU; else null.")] = (
        None
    )
    priced_tenants: Annotated[
        tuple[str, ...], doc("Other jobs on these nodes; their loss is part of the expected loss.")
    ] = ()
    alternatives: Annotated[
        tuple[Alternative, ...], doc("The other plans that were weighed, the least loss first.")
    ] = ()
    proposed_by: Annotated[str, doc("The proposer.")] = "engine"
    mode: Annotated[Mode, doc("The mode of the rule that it was proposed under.")] = "propose"
    rule: Annotated[str, doc("The rule of the policy that fits; empty: none.")] = ""
    status: Annotated[Status, doc("How far it is.")] = "proposed"
    because: Annotated[str, doc("The reason of the status, one sentence.")] = ""
    changed_at: Annotated[float, doc("When the status began.")] = 0.0
    approved_by: Annotated[str, doc("The caller that approved it; empty: none.")] = ""
    approved_at: Annotated[float | None, doc("When it was approved; null: it was not.")] = None
    claim: Annotated[Claim | None, doc("The current claim; null: none.")] = None
    claims: Annotated[int, doc("The newest fencing token; an older one is refused.")] = 0
    failed_claims: Annotated[int, doc("How many claims failed before anything began.")] = 0
    again_at: Annotated[float | None, doc("After such a failure: the earliest next claim.")] = None
    ending: Annotated[Ending | None, doc("How the holder of the newest ended claim has ended it.")] = None
    cancelled_by: Annotated[
        str, doc("The caller that cancelled it; empty: none. Proposed again, it needs a person's approval.")
    ] = ""
    began_at: Annotated[
        float | None, doc("When it was first executed; from then on it counts in the budget and the breaker.")
    ] = None
    completed_at: Annotated[float | None, doc("When the scheduler reported it done.")] = None
    did: Annotated[
        dict[str, Any], doc("What the scheduler reports that it did, by node: what an undo takes back.")
    ] = {}
    out: Annotated[tuple[str, ...], doc("Nodes that it has taken out, or may have.")] = ()
    undo: Annotated[Undo | None, doc("The request to undo it; null: none.")] = None
    give_back: Annotated[
        tuple[str, ...], doc("Nodes that its undo returns, or has: no other remediation has taken these out as well.")
    ] = ()
    outcome: Annotated[Outcome | None, doc("What the job did afterwards; null: not known yet.")] = None
    version: Annotated[int, doc("Its ETag. A heartbeat of its claim leaves it as it is.")] = 1

    @property
    def touches(self) -> tuple[str, ...]:
        """The nodes on which something is done: a hold of one of them blocks it."""
        restart = self.role_restart
        return self.nodes if restart is None else (*self.nodes, *restart.nodes, *restart.onto.values())

    @property
    def may_have_taken(self) -> bool:
        """Whether it may have taken nodes out: it has begun, or a holder that had not begun reports what it did."""
        return self.kind in TAKES_NODES and (self.began_at is not None or bool(self.did))


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """A node or a job that nothing acts on until an instant. Instants are UTC seconds."""

    id: Annotated[str, doc("`hold-` and 12 hexadecimal digits.")]
    by: Annotated[str, doc("The caller that made it.")]
    reason: Annotated[str, doc("Why, in the caller's words.")]
    made_at: Annotated[float, doc("When it was made.")]
    until: Annotated[float, doc("When it ends.")]
    node: Annotated[str | None, doc("The node that is held; null: it is of a job.")] = None
    job: Annotated[str | None, doc("The job that is held; null: it is of a node.")] = None


class Freeze(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing acts anywhere."""

    by: str
    reason: str
    at: float


class BreakerTrip(msgspec.Struct, frozen=True, kw_only=True):
    """The breaker is open: too large a share of the nodes was taken out in too short a time. Only a person closes it."""

    at: float
    reason: str


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """That nodes were taken out: what the budget and the breaker count. It outlives the remediation's row.

    Without nodes it is a restart of a role, which has a budget of its own.
    """

    remediation: str
    at: float
    nodes: tuple[str, ...]


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a job before an action."""

    nodes: tuple[str, ...] = ()  # that its newest attempt runs on
    attempt: int | None = None
    gpus_per_node: int = 8
    minimum_nodes: int | None = None  # declared; None: unknown
    spares: int | None = None  # nodes left that can take an evicted one's place; None: unknown
    saving_since: float | None = None  # a checkpoint is being saved
    save_seconds: float | None = None  # how long that usually takes; None: none was seen yet
    holders: dict[str, tuple[str, ...]] = {}  # node → nodes with a copy of its checkpoint shards; empty: not declared
    last_checkpoint_at: float | None = None
    epochs: dict[str, dict[str, int]] = {}  # role → instance → its present epoch, where roles are registered


class FleetFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet as it is now. Loaded fresh for every step."""

    fleet_nodes: int = 0  # that have reported within a day
    jobs: dict[str, JobFacts] = {}
    tenants: dict[str, tuple[str, ...]] = {}  # node → other jobs that run on it now; the job itself is among them
    newest_verdicts: dict[str, int] = {}  # incident → version of its newest verdict
    merged: dict[str, str] = {}  # incident → the infrastructure incident that explains it
    onsets: dict[str, float] = {}  # incident → when its trouble began
    taken: dict[str, tuple[str, ...]] = {}  # node → remediations that have taken it out and keep it out
    clock_doubt: str = ""  # why it is not certain what time it is; empty: it is


def list_some(names: Sequence[str], most: int = 4) -> str:
    """List the first few names."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def same_node(one: str, other: str) -> bool:
    """Whether two names may be of one machine: with its domain or without, as schedulers have it, in any case (RFC 4343)."""
    one, other = one.lower(), other.lower()
    bare = "." not in one or "." not in other
    return one == other or (bare and one.partition(".")[0] == other.partition(".")[0])


class Blocker(msgspec.Struct, frozen=True, kw_only=True):
    """One blocker: a reason why a remediation must not act now."""

    code: Annotated[
        str,
        doc(
            "frozen, held, expired, breaker, budget, again, policy, minimum, moved, acting, saving, tenants, shards, "
            "superseded, merged or clock."
        ),
    ]
    text: Annotated[str, doc("One sentence: the thing, its value, the bound, and the next step.")]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much may be done in how short a time."""

    evictions_an_hour: Annotated[int, doc("Most nodes taken out in an hour.")] = 4
    role_restarts_an_hour: Annotated[int, doc("Most restarts of roles in an hour.")] = 12
    breaker_share: Annotated[float, doc("The breaker opens when this share of the fleet's nodes was taken out …")] = (
        0.05
    )
    breaker_least_nodes: Annotated[int, doc("… and at least so many nodes: of ten nodes, 5 % is none …")] = 3
    breaker_seconds: Annotated[float, doc("… within this time.")] = 3_600.0
    proposal_seconds: Annotated[float, doc("A proposal that no person answers expires after this time.")] = 4 * 3_600.0
    approval_seconds: Annotated[float, doc("An approved remediation that no scheduler claims expires after this.")] = (
        1_800.0
    )
    claim_seconds: Annotated[float, doc("The longest lease of a claim.")] = 600.0
    verify_seconds: Annotated[float, doc("Without news for this time the outcome is unknown.")] = 1_800.0


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be done automatically about one class of faults. A condition that is null fits everything."""

    name: Annotated[str, doc("The name of the rule.")]
    mode: Annotated[Mode, doc("propose: a person decides; shadow: count only; automatic: act.")] = "propose"
    kind: Annotated[RemediationKind | None, doc("Condition: the kind of the remediation.")] = None
    symptom: Annotated[str | None, doc("Condition: the symptom of the verdict.")] = None
    fault_class: Annotated[str | None, doc("Condition: the fault class of the verdict.")] = None
    job: Annotated[str | None, doc("Condition: the job's name, a pattern with `*` and `?`.")] = None
    least_probability: Annotated[
        float, doc("Condition: the lowest probability among the culprits is at least this.")
    ] = 0.0
    least_precision: Annotated[
        float, doc("The 95 % lower bound of the precision that shadow mode must have shown before the rule may act.")
    ] = 0.95
    most_nodes: Annotated[int, doc("Most nodes that one remediation may take out automatically.")] = 1


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first rule that fits decides; where none does it is proposed to a person."""

    rules: tuple[Rule, ...] = ()
    limits: Limits = Limits()


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """Closed incidents that a rule would have acted upon, and in how many that would have been right."""

    seen: int = 0
    right: int = 0


class RemediationState(msgspec.Struct, kw_only=True):
    """All that a step needs to know. ``remediations``: those that have not ended, and those that could still be undone."""

    remediations: dict[str, Remediation] = {}
    executions: list[Execution] = []  # of the longer of the budget's hour and the breaker's time
    holds: dict[str, Hold] = {}
    freeze: Freeze | None = None
    trip: BreakerTrip | None = None
    breaker_closed_at: float | None = None  # what was executed before counts no more
    policy: Policy = Policy()
    tallies: dict[str, Tally] = {}  # rule → what shadow mode has shown of it
    facts: FleetFacts = FleetFacts()

    @property
    def limits(self) -> Limits:
        """The policy's."""
        return self.policy.limits

    def nodes_to_give_back(self, one: Remediation) -> tuple[str, ...]:
        """Return the nodes that an undo returns: a node that another remediation keeps out as well stays out."""
        return tuple(node for node in one.nodes if not set(self.facts.taken.get(node, ())) - {one.id})
