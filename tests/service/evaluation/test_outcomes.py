"""A verdict against its label: what counts as right, what as wrong, and what an innocent machine costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analyzers.model.verdict import Action, Coverage, Culprit, Root, Verdict
from service.evaluation.labels import Label, Named
from service.evaluation.outcomes import Outcome, outcome_of
from service.evaluation.summary import evaluation, scale_of

NODES = {"gpu-0": (0, 1), "gpu-1": (2, 3)}


def label(*ranks: int, cause: str = "machine", **given: Any) -> Label:
    """Return a label with these culprits."""
    known: dict[str, Any] = {
        "name": "case", "paths": (Path(),), "fault": "hang", "causes": (cause,), "classes": (),
        "culprits": Named(frozenset(ranks)), "masked": Named(), "decidable": True, "origin": "real", "hosts": None,
        "ranks_per_node": None,
    }  # fmt: skip
    return Label(**known | given)


def verdict(*culprits: Culprit, cause: str = "machine", action: Action | None = None) -> Verdict:
    """Return a verdict that names these."""
    return Verdict(
        symptom="hang", cause=cause, abstained=False, roots=(Root(root="r1", cause=cause, fault_class="never_entered"),),
        culprits=culprits, action=action or Action(), coverage=Coverage(ranks_expected=4, ranks_seen=4),
    )  # fmt: skip


def rank(*ranks: int, kind: str = "rank", id: str = "", probability: float = 0.9) -> Culprit:
    """Return a culprit with these ranks."""
    return Culprit(root="r1", kind=kind, id=id or str(ranks[0]), ranks=ranks, probability=probability)


def held(known: Label, found: Verdict) -> Outcome:
    """Hold a verdict against a label of a job on two nodes."""
    return outcome_of(known, found, lambda node: NODES.get(node, ()), 0.5)


@pytest.mark.parametrize(
    ("known", "found", "result", "first"),
    [
        (label(2), verdict(rank(2)), "exact", True),
        (label(2), verdict(rank(2, kind="node", id="gpu-1")), "exact", True),
        (label(culprits=Named(others=frozenset({("node", "gpu-1")}))), verdict(rank(3)),
         "exact", True),
        (label(2, 3), verdict(rank(2), rank(3)), "exact", True),
        (label(2, masked=Named(frozenset({3}))), verdict(rank(3), rank(2)), "exact", True),
        (label(2), verdict(rank(2), rank(3)), "superset", True),
        (label(2), verdict(rank(0, 2, kind="group", id="dp")), "superset", False),
        (label(2, 3), verdict(rank(3)), "partial", True),
        (label(2), verdict(rank(3)), "wrong", False),
        (label(2, 3), verdict(rank(0), rank(3)), "wrong", False),
        (label(2), verdict(), "wrong", False),
        (label(2), Verdict(symptom="hang", cause="unknown", abstained=True), "abstained", False),
        (label(cause="none"), verdict(cause="none"), "exact", True),
        (label(cause="code"), verdict(rank(1, kind="code", id="train.py"), cause="code"), "exact", True),
        (label(cause="none"), verdict(rank(1)), "wrong", False),
        (label(masked=Named(frozenset({1}))), verdict(rank(1)), "exact", True),
        (label(masked=Named(frozenset({1}))), verdict(rank(2)), "wrong", False),
        (label(cause="imbalance"), verdict(rank(1, 2, kind="stage", id="3")), "exact", True),
        (label(masked=Named(others=frozenset({("stage", "3")}))), verdict(rank(1, kind="stage", id="3")), "exact", True),
        (label(masked=Named(others=frozenset({("stage", "3")}))), verdict(rank(1, kind="stage", id="2")), "wrong", False),
    ],
)  # fmt: skip
def test_an_answer_is_counted_once(known: Label, found: Verdict, result: str, first: bool) -> None:
    """Each answer is exact, superset, partial, abstained or wrong, and its first culprit right or not."""
    outcome = held(known, found)

    assert (outcome.result, outcome.first_right) == (result, first)


def test_a_machine_named_where_none_is_at_fault_is_a_false_eviction() -> None:
    """The hard negative: a label without culprits, and a verdict that evicts both nodes of the job."""
    outcome = held(label(cause="imbalance"), verdict(rank(0), action=Action(kind="evict", nodes=("gpu-0", "gpu-1"))))

    assert (outcome.result, outcome.innocent) == ("wrong", ("node:gpu-0", "node:gpu-1"))
    (row,) = evaluation([outcome], "1", "").total
    assert (row.false_evictions.count, row.innocent_machines, row.exact.count) == (1, 2, 0)


@pytest.mark.parametrize(
    ("cause", "action", "innocent"),
    [
        ("machine", Action(kind="evict", nodes=("gpu-1",)), ()),
        ("machine", Action(kind="evict", nodes=("gpu-0", "gpu-1")), ("node:gpu-0",)),
        ("machine", Action(kind="drain_after_job", ranks=(1, 2)), ("rank:1",)),
        ("machine", Action(kind="reset_gpu", devices=("0000:9b:00",)), ("device:0000:9b:00",)),
        ("machine", Action(kind="probe", nodes=("gpu-0",)), ()),
        ("code", Action(kind="evict", nodes=("gpu-1",)), ("node:gpu-1",)),
    ],
)
def test_only_a_guilty_machine_may_be_taken_out(cause: str, action: Action, innocent: tuple[str, ...]) -> None:
    """The guilty rank's node may go, another one not, and none where its code is at fault; a probe takes nothing out."""
    assert held(label(2, cause=cause), verdict(rank(2), cause=cause, action=action)).innocent == innocent


def test_the_class_is_right_only_with_its_cause() -> None:
    """Cause and fault class are both of the label; a label without classes takes any."""
    found = verdict(rank(2))

    assert held(label(2), found).class_right
    assert held(label(2, classes=("never_entered",)), found).class_right
    assert not held(label(2, classes=("desync",)), found).class_right
    assert not held(label(2, cause="code"), found).class_right


def test_undecidable_cases_are_in_no_share_of_right_answers() -> None:
    """An abstention where the files do not decide is counted, and lowers neither top-1 nor exact."""
    found = Verdict(symptom="hang", cause="unknown", abstained=True)

    (row,) = evaluation([held(label(2, decidable=False), found), held(label(2), verdict(rank(2)))], "1", "").total
    assert (row.n, row.exact.n, row.exact.count, row.abstained.count, row.wrong.count) == (2, 1, 1, 1, 0)


def test_simulated_cases_are_never_summed_with_real_ones() -> None:
    """Rows and calibration are of one origin."""
    both = [held(label(2, origin=origin), verdict(rank(2))) for origin in ("real", "simulator", "simulator")]

    found = evaluation(both, "1", "")

    assert [(row.origin, row.n) for row in found.total] == [("real", 1), ("simulator", 2)]
    assert set(found.calibration) == {"real", "simulator"}


def test_a_set_promises_that_one_of_its_ranks_is_guilty() -> None:
    """The forecast of a group comes true where it holds a culprit; that of a rank only where it is one."""
    assert held(label(2), verdict(rank(0, 2, kind="group", id="dp"))).likely
    assert not held(label(2), verdict(rank(0, 1, kind="group", id="dp"))).likely
    assert not held(label(2), verdict(rank(3))).likely


def test_code_is_claimed_to_be_at_fault_and_its_ranks_are_where_to_look() -> None:
    """Two ranks wait in a circle and one of them has the operations swapped: that the code is at fault is true, not half true."""
    circle = verdict(rank(2, 3, kind="code", id="rank 2-3"), cause="code")

    assert held(label(2, cause="code"), circle).likely
    assert held(label(2, cause="code"), verdict(rank(2, kind="code"), cause="code")).likely
    assert not held(label(0, cause="code"), circle).likely  # the ranks to look at do not have it
    assert not held(label(2), circle).likely  # it is a machine
    assert held(label(2, cause="code"), circle).result == "superset"


@pytest.mark.parametrize(
    ("ranks", "scale"),
    [(0, "unknown"), (1, "1 to 8"), (8, "1 to 8"), (9, "9 to 64"), (4096, "513 to 4,096"), (40_000, "over 32,768")],
)
def test_scales_meet_without_a_gap(ranks: int, scale: str) -> None:
    """Every number of ranks is of one scale."""
    assert scale_of(ranks) == scale
