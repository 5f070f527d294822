"""One verdict held against its label: what it named, whether that is right, and which innocent machines it would take out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Literal

import msgspec

from analyzers.model.doc import doc
from analyzers.model.verdict import SETS, TAKES_NODES, Culprit, Verdict
from service.evaluation.labels import Label, Named

Result = Literal["exact", "superset", "partial", "abstained", "wrong"]
MACHINES = frozenset({"rank", "device", "node", "link", "switch", "group", "role"})
RanksOn = Callable[[str], Iterable[int]]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What was answered of one case."""

    case: Annotated[str, doc("Its path below the folder.")]
    fault: Annotated[str, doc("What was wrong, by its label.")]
    origin: Annotated[str, doc("real or simulator.")]
    decidable: Annotated[bool, doc("Whether the files decide, by its label.")]
    ranks: Annotated[int, doc("Ranks of the job, as far as the verdict knows.")]
    result: Annotated[
        Result,
        doc(
            "exact: all culprits and no other; superset: all, among others; partial: culprits alone, but not all; abstained; "
            "wrong: anything else."
        ),
    ]
    first_right: Annotated[bool, doc("Whether the first culprit is right; of a label without culprits, as exact.")]
    class_right: Annotated[bool, doc("Whether cause and fault class are among those of the label.")]
    stated: Annotated[tuple[str, ...], doc("The verdict's cause, and the fault classes of its roots.")] = ()
    labelled: Annotated[tuple[str, ...], doc("The causes and fault classes that are right, by its label.")] = ()
    innocent: Annotated[tuple[str, ...], doc("Innocent machines that the action would take out.")]
    probability: Annotated[float | None, doc("Of the first culprit; null: none is named.")]
    likely: Annotated[
        bool,
        doc(
            "Whether that culprit is guilty; of a set, and of code with ranks to look at, whether one of its ranks is."
        ),
    ]
    named: Annotated[tuple[str, ...], doc("All that is named.")]
    action: Annotated[str, doc("The action's kind.")]
    why: Annotated[str, doc("Why there is no verdict; empty: there is one.")] = ""
    seconds: Annotated[float, doc("Reading and judging, on the clock.")] = 0.0


def outcome_of(label: Label, verdict: Verdict, ranks_on: RanksOn, seconds: float) -> Outcome:
    """Hold a verdict against its label. ``ranks_on``: the ranks that a node hosts."""
    judge = _Judge(label, verdict, ranks_on)
    first = verdict.culprits[0] if verdict.culprits else None
    result = judge.result()
    return Outcome(
        case=label.name,
        fault=label.fault,
        origin=label.origin,
        decidable=label.decidable,
        ranks=verdict.coverage.ranks_expected or verdict.coverage.ranks_seen,
        result=result,
        first_right=judge.is_right(first) if first is not None and label.culprits else result == "exact",
        class_right=judge.class_right(),
        stated=(verdict.cause, *dict.fromkeys(root.fault_class for root in verdict.roots)),
        labelled=(*label.causes, *label.classes),
        innocent=judge.innocent_taken_out(),
        probability=None if first is None else first.probability,
        likely=first is not None and judge.is_likely(first),
        named=tuple(f"{one.kind}:{one.id}" for one in verdict.culprits),
        action=verdict.action.kind,
        seconds=round(seconds, 4),
    )


def guilt(label: Label, verdict: Verdict, ranks_on: RanksOn) -> Callable[[Culprit], bool]:
    """Return whether a culprit of the verdict is guilty by the label; of a set, or the code, whether one of its ranks is."""
    return _Judge(label, verdict, ranks_on).is_likely


def without_verdict(label: Label, why: str, seconds: float) -> Outcome:
    """Return the outcome of a case in which nothing could be judged: it names no machine, as an abstention."""
    return Outcome(
        case=label.name, fault=label.fault, origin=label.origin, decidable=label.decidable, ranks=0, result="abstained",
        first_right=False, class_right=False, innocent=(), probability=None, likely=False, named=(), action="none",
        why=why, seconds=round(seconds, 4), labelled=(*label.causes, *label.classes),
    )  # fmt: skip


class _Judge:
    """One label against one verdict."""

    def __init__(self, label: Label, verdict: Verdict, ranks_on: RanksOn) -> None:
        self.label, self.verdict, self.ranks_on = label, verdict, ranks_on
        self.allowed = label.culprits | label.masked
        self.allowed_ranks = self._ranks(self.allowed)

    def result(self) -> Result:
        """Return which of the five it is."""
        if self.verdict.abstained:
            return "abstained"
        culprits = self.verdict.culprits
        if not self.label.culprits:
            return "exact" if all(map(self.is_right, culprits)) else "wrong"
        only = bool(culprits) and all(map(self.is_right, culprits))
        if self._covers_all():
            return "exact" if only else "superset"
        return "partial" if only else "wrong"

    def is_right(self, culprit: Culprit) -> bool:
        """Whether a culprit is of the label and nothing beside it."""
        if not self.label.culprits and culprit.kind not in {*MACHINES, *(kind for kind, _ in self.label.masked.others)}:
            return True  # code, data or an uneven stage, unless the label states which stage
        inside = bool(culprit.ranks) and set(culprit.ranks) <= self.allowed_ranks
        return (culprit.kind, culprit.id) in self.allowed.others or inside

    def is_likely(self, culprit: Culprit) -> bool:
        """Whether what its probability claims is true: of the code that it is at fault, and its ranks are where to look."""
        if culprit.kind == "code" and self.label.culprits:
            return self.class_right() and (not culprit.ranks or bool(set(culprit.ranks) & self.allowed_ranks))
        if culprit.kind in SETS and self.label.culprits:
            return self.is_right(culprit) or bool(set(culprit.ranks) & self.allowed_ranks)
        return self.is_right(culprit) and (bool(self.label.culprits) or self.class_right())

    def class_right(self) -> bool:
        """Whether the cause is one of the label's, and a class where it names any."""
        classes = {root.fault_class for root in self.verdict.roots}
        return (
            not self.verdict.abstained
            and self.verdict.cause in self.label.causes
            and (not self.label.classes or bool(classes & set(self.label.classes)))
        )

    def innocent_taken_out(self) -> tuple[str, ...]:
        """Return the nodes, or the ranks or devices where no node is known, that the action takes out without guilt."""
        action = self.verdict.action
        if action.kind not in TAKES_NODES:
            return ()
        guilty = self.allowed_ranks if "machine" in self.label.causes else frozenset()
        if action.nodes:
            return tuple(f"node:{one}" for one in action.nodes if not self._holds(one, guilty))
        if action.ranks:
            return tuple(f"rank:{one}" for one in action.ranks if one not in guilty)
        known = {device for one in self.verdict.culprits if self.is_right(one) for device in one.devices if guilty}
        return tuple(
            f"device:{one}" for one in action.devices if one not in known and ("device", one) not in self.allowed.others
        )

    def _covers_all(self) -> bool:
        named = {rank for one in self.verdict.culprits for rank in one.ranks}
        others = {(one.kind, one.id) for one in self.verdict.culprits}
        return self.label.culprits.ranks <= named and all(
            one in others or (one[0] == "node" and named & set(self.ranks_on(one[1])))
            for one in self.label.culprits.others
        )

    def _ranks(self, named: Named) -> frozenset[int]:
        on_nodes = (rank for kind, name in named.others if kind == "node" for rank in self.ranks_on(name))
        return named.ranks.union(on_nodes)

    def _holds(self, node: str, guilty: Iterable[int]) -> bool:
        return ("node", node) in self.allowed.others or bool(set(self.ranks_on(node)) & set(guilty))
