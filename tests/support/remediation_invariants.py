"""What must hold whatever happens, judged from the events alone: a slow second opinion on every step of a remediation.

It never asks the guards, the breaker or the budget. It keeps its own books, and after each step it compares.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from analyzers.model.verdict import TAKES_NODES
from analyzers.remediation import messages
from analyzers.remediation.messages import AuditEntry, RemediationEvent, RemediationInstruction, Store
from analyzers.remediation.types import Remediation, RemediationState

HOUR = 3_600.0
TOLD_BY_STATUS = {
    "proposed": {"remediation_proposed", "remediation_hindered"},  # hindered: the policy takes its approval back
    "approved": {"remediation_approved", "remediation_released"},
    "claimed": {"remediation_claimed"},
    "executing": {"remediation_begun"},
    "verifying": {"remediation_completed"},
    "done": {"remediation_verified"},
    "rejected": {"remediation_rejected"},
    "failed": {"remediation_failed"},
    "expired": {"remediation_expired"},
    "cancelled": {"remediation_cancelled"},
    "undone": {"remediation_undone"},
}
FINAL = frozenset({"rejected", "undone"})
STUCK_SAVE_SECONDS = 1_800.0
MOST_FAILED_CLAIMS, AGAIN_SECONDS = 3, 30.0


def frozen_image(book: RemediationState) -> bytes:
    """Return the whole book as bytes: what a refused event must leave as it is."""
    return msgspec.msgpack.encode(book, order="sorted")


@dataclass
class Invariants:
    """Own books of what was executed, approved and said. ``saw`` raises AssertionError with the rule that was broken."""

    executed: list[tuple[float, str, tuple[str, ...], str]] = field(default_factory=list)  # at, id, nodes, job
    did: dict[str, int] = field(default_factory=dict)  # remediation → the token that executed it
    tokens: dict[str, set[int]] = field(default_factory=dict)  # ever given
    approved: set[str] = field(default_factory=set)
    by_rule: set[str] = field(default_factory=set)  # approved so, and by no person
    failed_at: dict[str, list[float]] = field(default_factory=dict)  # claims of it that failed before they began
    refused: set[str] = field(default_factory=set)  # by a person: never again without a new approval
    cancelled: set[str] = field(default_factory=set)  # by a person: no policy may approve it
    approved_at: dict[str, float] = field(default_factory=dict)
    proposed_at: dict[str, float] = field(default_factory=dict)
    attempts: dict[str, tuple[str, int | None]] = field(default_factory=dict)  # acted on by each: of which job
    closed_at: float = float("-inf")  # the breaker, by a person
    open: bool = False
    reported_at: dict[str, float] = field(default_factory=dict)  # job → when its newest placements came
    codes: dict[str, int] = field(default_factory=dict)  # what was refused, for the record

    def saw_refusal(self, before: bytes, book: RemediationState, code: str) -> None:
        """A refused event changes nothing."""
        self.codes[code] = self.codes.get(code, 0) + 1
        assert before == frozen_image(book), "a refused event has changed the book"

    def saw(
        self,
        before: RemediationState,
        event: RemediationEvent,
        after: RemediationState,
        said: list[RemediationInstruction],
        now: float,
    ) -> None:
        """Compare one accepted step with what must hold."""
        self._breaker_stays(before, event, after, now)
        self._in_time(before, event, now)
        if isinstance(event, messages.Cancel):
            self.cancelled.add(event.id)
        if isinstance(event, messages.Fail):
            self._failed(before, event, after, now)
        if isinstance(event, messages.Take):
            failed_at = self.failed_at.get(event.id, [])
            assert not failed_at or now >= failed_at[-1] + AGAIN_SECONDS, f"{event.id} is claimed again at once"
        if isinstance(event, messages.Complete):
            self._gave_back(before, event, after)
        if isinstance(event, messages.RemediationTick):
            self._rules_stand(after)
        for id, row in after.remediations.items():
            old = before.remediations.get(id)
            if old != row:
                self._changed(old, row, event, said)
                self._dated(old, row, now)
        for one in said:
            if isinstance(one, Store):
                self._given(one.remediation, event)
        self._switches_told(before, after, said)
        if isinstance(event, messages.Begin):
            self._began(before, event, now)

    def taken(self, book: RemediationState) -> dict[str, tuple[str, ...]]:
        """Return which remediations have taken each node out, and were not undone."""
        found: dict[str, set[str]] = {}
        for _, id, nodes, _ in self.executed:
            if book.remediations[id].status != "undone":
                for node in nodes:
                    found.setdefault(node, set()).add(id)
        return {node: tuple(sorted(ids)) for node, ids in found.items()}

    def _dated(self, old: Remediation | None, row: Remediation, now: float) -> None:
        """Note when a proposal, or an approval, began."""
        if old is None or old.status != row.status:
            if row.status == "proposed":
                self.proposed_at[row.id] = now
            if row.status == "approved" and (old is None or old.status != "claimed"):
                self.approved_at[row.id] = now

    def _in_time(self, before: RemediationState, event: RemediationEvent, now: float) -> None:
        """Nobody acts by an old word, whether or not somebody was there to end it."""
        limits = before.limits
        if isinstance(event, messages.Approve):
            assert now < self.proposed_at[event.id] + limits.proposal_seconds, f"{event.id} is approved too late"
        if isinstance(event, messages.Take) and before.remediations[event.id].status == "approved":
            assert now < self.approved_at[event.id] + limits.approval_seconds, f"{event.id} is claimed too late"
        if isinstance(event, messages.Begin) and before.remediations[event.id].status == "claimed":
            until = self.approved_at[event.id] + limits.approval_seconds + limits.claim_seconds
            assert now < until, f"{event.id} begins too late"

    def _failed(self, before: RemediationState, event: messages.Fail, after: RemediationState, now: float) -> None:
        """Who fails before it begins has done nothing: it can be tried again, and not for ever. Or has done, unasked."""
        old, row = before.remediations[event.id], after.remediations[event.id]
        if old.claim is None or old.claim.task == "undo" or old.began_at is not None:
            return
        if event.did:
            self._acted_unasked(old, row, after, now)
            return
        times = self.failed_at.setdefault(event.id, [])
        times.append(now)
        wanted = "approved" if len(times) < MOST_FAILED_CLAIMS else "failed"
        assert row.status == wanted, f"{row.id} is {row.status} after {len(times)} claims that failed before they began"

    def _acted_unasked(self, old: Remediation, row: Remediation, after: RemediationState, now: float) -> None:
        """What was taken out counts, whoever was asked."""
        assert row.status == "failed", f"{row.id} did something without having begun, and is {row.status}"
        assert any(one.remediation == row.id for one in after.executions), f"what {row.id} took out counts nowhere"
        assert old.claim is not None
        self.did[row.id], self.attempts[row.id] = old.claim.token, (row.job, row.attempt)
        self.executed.append((now, row.id, row.nodes, row.job))
        self.open = self.open or after.trip is not None

    def _gave_back(self, before: RemediationState, event: messages.Complete, after: RemediationState) -> None:
        claim = before.remediations[event.id].claim
        if claim is None or claim.task != "undo":
            return
        self.gave_back(event.id, after)

    def gave_back(self, id: str, book: RemediationState) -> None:
        """A node is given back only if nobody else has taken it out."""
        for node in book.remediations[id].give_back:
            others = set(self.taken(book).get(node, ())) - {id}
            assert not others, f"{id} gives {node} back, which {sorted(others)} have taken out"

    def _rules_stand(self, book: RemediationState) -> None:
        """What a rule has approved waits no longer than the rule acts."""
        acting = {rule.name for rule in book.policy.rules if rule.mode == "automatic"}
        for row in book.remediations.values():
            waits = row.status in ("approved", "claimed") and row.id in self.by_rule
            assert not waits or row.rule in acting, f"{row.id} is {row.status} by rule {row.rule}, which does not act"

    def _breaker_stays(
        self, before: RemediationState, event: RemediationEvent, after: RemediationState, now: float
    ) -> None:
        if isinstance(event, messages.CloseBreaker):
            self.open, self.closed_at = False, now
        elif before.trip is not None:
            assert after.trip is not None, f"{type(event).__name__} has closed the breaker"

    def _changed(
        self, old: Remediation | None, row: Remediation, event: RemediationEvent, said: list[RemediationInstruction]
    ) -> None:
        stored = [one.remediation for one in said if isinstance(one, Store) and one.remediation.id == row.id]
        assert stored[-1:] == [row], f"{row.id} has changed and is not stored as it is"
        kept = old is not None and row.version == old.version and isinstance(event, messages.Heartbeat)
        assert old is None or kept or row.version > old.version, f"{row.id} has changed and its ETag has not"
        assert old is None or not kept or replace(old, claim=row.claim) == row, f"a heartbeat has changed {row.id}"
        assert old is None or old.status == row.status or old.status not in FINAL, f"{row.id} was {old.status} for good"
        assert row.id not in self.did or row.status not in ("proposed", "approved", "claimed"), f"{row.id} begins anew"
        reported = {one.kind for one in said if isinstance(one, AuditEntry) and one.remediation == row.id}
        if old is None or old.status != row.status:
            assert reported & TOLD_BY_STATUS[row.status], (
                f"{row.id} became {row.status} and only {sorted(reported)} is reported"
            )
        if (old is None or old.undo is None) and row.undo is not None:
            assert "remediation_undo_asked" in reported, f"an undo of {row.id} is asked for and not reported"
        if row.status == "approved" and (old is None or old.status not in ("approved", "claimed")):
            by_policy = row.mode == "automatic" and row.id not in self.cancelled
            assert isinstance(event, messages.Approve) or by_policy, f"{row.id} is approved by nobody who may"
            self.approved.add(row.id)
            self.refused.discard(row.id)
            (self.by_rule.discard if isinstance(event, messages.Approve) else self.by_rule.add)(row.id)
        if row.status == "proposed" and old is not None and old.status in ("cancelled", "expired"):
            self.failed_at.pop(row.id, None)
        if row.status in ("rejected", "cancelled", "expired"):
            self.refused.add(row.id)

    def _given(self, row: Remediation, event: RemediationEvent) -> None:
        if isinstance(event, messages.Take) and row.claim is not None and row.id == event.id:
            tokens = self.tokens.setdefault(row.id, set())
            assert not tokens or row.claim.token >= max(tokens), (
                f"{row.id}: token {row.claim.token} is older than one given"
            )
            tokens.add(row.claim.token)

    def _switches_told(
        self, before: RemediationState, after: RemediationState, said: list[RemediationInstruction]
    ) -> None:
        kinds = {one.kind for one in said if isinstance(one, AuditEntry)}
        pairs = [
            (after.freeze is not None and before.freeze != after.freeze, "frozen"),
            (after.freeze is None and before.freeze is not None, "thawed"),
            (after.trip is not None and before.trip is None, "breaker_tripped"),
            (after.trip is None and before.trip is not None, "breaker_closed"),
            (bool(set(after.holds) - set(before.holds)), "hold_added"),
        ]
        for changed, kind in pairs:
            assert not changed or kind in kinds, f"{kind} is not reported"

    def _began(self, before: RemediationState, event: messages.Begin, now: float) -> None:
        row = before.remediations[event.id]
        claim = row.claim
        assert claim is not None, f"{row.id} begins without a claim"
        assert (claim.token, claim.by) == (event.token, event.by), f"{row.id} begins by an older token, or another's"
        assert now <= claim.until, f"{row.id} begins after its lease"
        assert before.freeze is None or event.id in self.did, f"{row.id} begins while everything is frozen"
        if claim.task == "undo":
            assert row.id in self.did, f"{row.id} is undone and was never executed"
            return
        if event.id in self.did:
            assert self.did[event.id] == event.token, f"{row.id} is executed twice"
            return  # the same claimant, who has lost the answer
        assert row.id in self.approved - self.refused, f"{row.id} is executed without an approval"
        if row.id in self.by_rule:
            self._rules_stand(before)
        self._may(before, row, now)
        self.did[row.id], self.attempts[row.id] = event.token, (row.job, row.attempt)
        if row.kind in TAKES_NODES:
            self.executed.append((now, row.id, row.nodes, row.job))
            self._within(before, now)

    def _may(self, book: RemediationState, row: Remediation, now: float) -> None:
        for hold in book.holds.values():
            assert hold.until <= now or (hold.node not in row.nodes and hold.job != row.job), (
                f"{row.id}: {hold.id} holds"
            )
        assert not book.facts.clock_doubt, f"{row.id} begins while it is not certain what time it is"
        assert row.incident not in book.facts.merged, f"{row.id}: the fleet's incident explains it"
        newest = book.facts.newest_verdicts.get(row.incident, 0)
        assert newest <= row.verdict_version, f"{row.id} rests on an older verdict than version {newest}"
        job = book.facts.jobs[row.job]
        assert set(row.nodes) <= set(job.nodes), f"{row.id} acts where {row.job} does not run any more"
        others = (one for one in book.remediations.values() if one.job == row.job and one.id != row.id)
        assert not any(one.claim and one.claim.task == "do" for one in others), f"two act on {row.job} at once"
        self._once(book, row)
        saving = job.saving_since is not None and now - job.saving_since <= STUCK_SAVE_SECONDS
        assert not saving, f"{row.id} acts while a checkpoint is saved"
        if row.kind in TAKES_NODES:
            tenants = {other for node in row.nodes for other in book.facts.tenants.get(node, ()) if other != row.job}
            assert tenants <= set(row.priced_tenants), f"{row.id} takes a node of {sorted(tenants)} unpriced"
            self._shards(book, row)
            self._minimum(book, row)

    def _once(self, book: RemediationState, row: Remediation) -> None:
        """Of what was done to an attempt a later one is the answer, or who saw what came of it."""
        newest = book.facts.jobs[row.job].attempt
        for id, (job, attempt) in self.attempts.items():
            other = book.remediations[id]
            answered = other.status == "undone" or other.outcome in ("cured", "not_cured")
            unclear = other.status == "failed" and other.kind == "restart_job"
            if id == row.id or job != row.job or answered or unclear or attempt is None or newest is None:
                continue
            assert newest > attempt, f"{row.id} acts on an attempt of {job} on which {id} has acted"

    def _shards(self, book: RemediationState, row: Remediation) -> None:
        """A copy on a node that is out, and whose job has not run well again since, is no copy."""
        others = (one for one in book.remediations.values() if one.id in self.did and one.job == row.job)
        gone = {node for one in others if one.status in ("executing", "verifying", "failed") for node in one.nodes}
        for node, holders in book.facts.jobs[row.job].holders.items():
            before, after = {node, *holders} - gone, {node, *holders} - gone - set(row.nodes)
            assert after or not before, f"{row.id} loses the shards of {node}"

    def _minimum(self, book: RemediationState, row: Remediation) -> None:
        """Count what was taken since the job's placements came: what they show may be older than that."""
        job, since = book.facts.jobs[row.job], self.reported_at.get(row.job, 0.0)
        back = {one.id for one in book.remediations.values() if one.status == "undone"}
        out_since = [one for one in self.executed if one[3] == row.job and one[0] >= since and one[1] not in back]
        gone = {node for _, _, nodes, _ in out_since for node in nodes}
        out = len((gone | set(row.nodes)) & set(job.nodes))
        left = len(job.nodes) - out + min(out, job.spares or 0)
        assert left >= max(1, job.minimum_nodes or 1), f"{row.id} leaves {left} nodes of {row.job}"

    def _within(self, book: RemediationState, now: float) -> None:
        assert not self.open, "a node is taken while the breaker is open"
        limits = book.limits
        hour = sum(len(nodes) for at, _, nodes, _ in self.executed if at > now - HOUR)
        assert hour <= limits.evictions_an_hour, f"{hour} nodes were taken within the hour"
        since = max(now - limits.breaker_seconds, self.closed_at)
        bound = max(limits.breaker_least_nodes, int(limits.breaker_share * book.facts.fleet_nodes))
        share = sum(len(nodes) for at, _, nodes, _ in self.executed if at > since)
        assert share <= bound, f"{share} nodes were taken within the breaker's time"
        self.open = share >= bound
