"""A trouble: the failures since an attempt last ran well, and what was tried against them."""

from __future__ import annotations

from dataclasses import dataclass

from analyzers.knowledge.convictions import Ladder
from analyzers.model.fault_classes import with_trait
from analyzers.remediation.ladder.job_history import JobAttempt, JobHistory, JobLayout, RungKind, TriedRung

EVERYWHERE = with_trait("everywhere")
"""Fault classes of an exception in the user's code on every rank."""
RAISED_AGAIN = with_trait("raised_again")
"""Fault classes of an exception that the same code raises again."""
RESTARTS = frozenset({"evict", "reattempt", "rollback"})


@dataclass(frozen=True, slots=True)
class Trouble:
    """The newest failure, the earlier ones that belong to it, and what was tried for them."""

    failing: JobAttempt
    attempts: tuple[JobAttempt, ...]  # that failed, oldest first; the failing one is the last
    well: tuple[JobAttempt, ...]  # of all the job's attempts: those that ran well
    broken: frozenset[str | None]  # code of all the job's attempts that raised on every rank
    taken: tuple[TriedRung, ...]
    nodes: tuple[str, ...]
    layout: JobLayout | None
    alerted: tuple[str, ...]  # nodes with so many network alerts that they count
    alert_rule: str

    @classmethod
    def from_history(cls, history: JobHistory, bounds: Ladder) -> Trouble | None:
        """Return the trouble that the newest attempt is in; None: it has not failed."""
        attempts = sorted(history.attempts, key=lambda attempt: attempt.number)
        if not attempts or not attempts[-1].symptom:
            return None
        well = tuple(attempt for attempt in attempts if attempt.good_seconds >= bounds.settled_seconds)
        first = well[-1].number if well else attempts[0].number
        since = history.at - bounds.network_seconds
        alerted = [alert.node for alert in history.alerts if since <= alert.at <= history.at]
        return cls(
            failing=attempts[-1],
            attempts=tuple(attempt for attempt in attempts if attempt.number >= first and attempt.symptom),
            well=well,
            broken=frozenset(attempt.code_version for attempt in attempts if attempt.fault_class in EVERYWHERE),
            taken=tuple(taken for taken in history.taken if taken.attempt >= first),
            nodes=history.nodes,
            layout=history.layout,
            alerted=tuple(sorted(node for node in set(alerted) if alerted.count(node) >= bounds.network_alerts)),
            alert_rule=f"{bounds.network_alerts} alerts of one node within {bounds.network_seconds:g} s",
        )

    @property
    def named(self) -> tuple[str, ...]:
        """The nodes that the newest verdict names."""
        return (*self.failing.proven, *self.failing.suspects)

    def waits_for(self) -> str | None:
        """Say what must come before the next rung: an outcome, or the job's next attempt."""
        for taken in self.taken:
            if taken.outcome == "pending":
                return f"the outcome of the last {taken.kind} is not known yet"
            if taken.kind in RESTARTS and taken.outcome == "done" and taken.attempt == self.failing.number:
                return f"the job has not started again since the last {taken.kind}"
        return None

    def tried(self, kind: RungKind) -> bool:
        """Whether this was done or refused: it is not proposed again."""
        return any(taken.kind == kind for taken in self.taken)

    def tried_for_symptom(self, kind: RungKind) -> bool:
        """Whether this was tried for the present symptom."""
        symptoms = {attempt.number: attempt.symptom for attempt in self.attempts}
        return any(taken.kind == kind and symptoms.get(taken.attempt) == self.failing.symptom for taken in self.taken)

    def nodes_of(self, *kinds: RungKind) -> set[str]:
        """Return the nodes that rungs of these kinds were for, done or refused."""
        return {node for taken in self.taken if taken.kind in kinds for node in taken.nodes}

    @property
    def found(self) -> set[str]:
        """Return the nodes that checks or a replay have found."""
        return {node for taken in self.taken for node in taken.found}

    def in_vain(self) -> TriedRung | None:
        """Return the last eviction after which the job failed with the same symptom again."""
        symptoms = {attempt.number: attempt.symptom for attempt in self.attempts}
        return next(
            (
                taken
                for taken in reversed(self.taken)
                if taken.kind == "evict"
                and taken.outcome == "done"
                and taken.attempt < self.failing.number
                and symptoms.get(taken.attempt) == self.failing.symptom
            ),
            None,
        )

    def checks_since(self, eviction: TriedRung) -> list[TriedRung]:
        """Return the checks that came after an eviction, refused ones among them."""
        after = self.taken[self.taken.index(eviction) + 1 :]
        return [taken for taken in after if taken.kind == "probe"]

    def older_code(self) -> str | None:
        """Return the newest code that ran well, never raised on every rank, does not fail now, and was no rollback's target."""
        now = self.failing.code_version
        if now is None:
            return None
        tried = {taken.code_version for taken in self.taken if taken.kind == "rollback"}
        out = {None, now} | tried | self.broken
        return next((attempt.code_version for attempt in reversed(self.well) if attempt.code_version not in out), None)
