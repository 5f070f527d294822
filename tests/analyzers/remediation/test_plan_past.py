"""The past of a node in a plan: it moves the odds of who is named, makes nobody bolder, and suspects nobody by itself."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.remediation import types as words
from analyzers.remediation.ladder import Rung
from analyzers.remediation.ladder import price as pricing
from analyzers.remediation.plan import Situation, choose_plan
from analyzers.remediation.plan.posterior import guilt_by_node, root_posteriors
from tests.analyzers.remediation.test_plan import COSTS, judged, on
from tests.analyzers.remediation.test_plan_or_rung import NODES, found, price

LOG = st.floats(-800.0, 800.0)


def odds_of(share: float) -> float:
    """Return the odds of a probability."""
    return share / (1.0 - share)


@given(st.floats(0.01, 0.99), st.floats(-3.0, 3.0))
def test_the_odds_of_who_is_named_move_as_bayes_says(share: float, weight: float) -> None:
    """The odds of a suspect are those of the verdict times what its past says; of the others the rest keeps its proportions."""
    verdict = judged({"n1": share, "n2": (1.0 - share) / 2}, named=("n1",))
    (before,), (after,) = root_posteriors(verdict), root_posteriors(verdict, {"n1": weight})

    assert odds_of(after.nodes["n1"]) == pytest.approx(odds_of(share) * math.exp(weight))
    rest = [(one.nodes["n2"], 1.0 - sum(one.nodes.values())) for one in (before, after)]
    assert rest[1][0] / rest[1][1] == pytest.approx(rest[0][0] / rest[0][1])


def test_an_acquitted_node_is_restarted_before_it_leaves_again() -> None:
    """Named with 0.9 on a small job it goes; after an acquittal the job tries again first, and the sentence says why."""
    verdict, acquitted = judged({"n1": 0.9}, named=("n1",)), {"n1": -math.log(10)}

    assert choose_plan(verdict, on(3), COSTS).kind == "evict"
    plan = choose_plan(verdict, on(3, remembered=acquitted), COSTS)
    assert plan.kind == "reattempt"
    evicted = choose_plan(verdict, on(640, remembered=acquitted), COSTS)
    assert (evicted.kind, evicted.probability) == ("evict", 0.4737)
    assert re.findall(r"0\.\d\d", evicted.why)[:2] == ["0.47", "0.90"]


def test_an_offender_goes_where_another_is_tried_again() -> None:
    """Doubtfully named on a small job, an offender leaves; the probability that a policy sees stays the verdict's."""
    verdict, offender = judged({"n1": 0.7}, named=("n1",)), {"n1": math.log(10)}

    assert choose_plan(verdict, on(2), COSTS).kind == "reattempt"
    plan = choose_plan(verdict, on(2, remembered=offender), COSTS)
    assert (plan.kind, plan.nodes, plan.probability) == ("evict", ("n1",), 0.7)


@given(st.dictionaries(st.sampled_from(["n0", "n2", "n3", "n9"]), LOG))
def test_no_past_evicts_a_node_that_the_verdict_does_not_name(remembered: dict[str, float]) -> None:
    """Whatever is remembered of nodes that the verdict does not suspect, the plan is the same to the last number."""
    verdict = judged({"n1": 0.9}, named=("n1",))

    assert choose_plan(verdict, on(4, remembered=remembered), COSTS) == choose_plan(verdict, on(4), COSTS)


@given(st.dictionaries(st.sampled_from(["n1", "n2"]), LOG))
def test_a_suspect_that_the_action_leaves_out_is_not_evicted(remembered: dict[str, float]) -> None:
    """A second suspect with the worst past is still none that the action names: it stays."""
    verdict = judged({"n1": 0.8, "n2": 0.15}, named=("n1",))

    assert "n2" not in choose_plan(verdict, on(64, remembered=remembered), COSTS).nodes


@given(st.dictionaries(st.sampled_from(["n1", "n2"]), LOG | st.just(math.nan)), st.floats(0.0, 1.0))
def test_weights_that_cannot_be_do_no_harm(remembered: dict[str, float], share: float) -> None:
    """Of any weights the shares stay probabilities, and no root has more than one."""
    doubts = root_posteriors(judged({"n1": share, "n2": 1.0 - share}, named=("n1",)), remembered)

    assert all(0.0 <= one <= 1.0 for one in guilt_by_node(doubts).values())
    assert all(math.fsum(doubt.nodes.values()) + doubt.elsewhere <= 1.0 + 1e-9 for doubt in doubts)


def test_a_past_without_weight_changes_no_number() -> None:
    """A weight of nought leaves the verdict's own numbers, to the last bit."""
    verdict = judged({"n1": 0.9, "n2": 0.05}, named=("n1",))

    assert root_posteriors(verdict, {"n1": 0.0}) == root_posteriors(verdict)


def test_what_checks_have_found_is_weighed_once() -> None:
    """A node that failed its checks is as sure, and as dear, with a record that holds those checks as without one."""
    out, past = Rung(kind="evict", nodes=("n5",), why="n5 failed the checks"), {"n5": math.log(10), "n2": -math.log(10)}

    assert price(out, found("n5"), known=Situation(nodes=NODES, remembered=past)) == price(out, found("n5"))


def test_plan_and_remediation_mean_the_same_kinds() -> None:
    """Which kinds only look stands on both sides: the command line must not load the plan's arithmetic."""
    assert words.CHECKS == pricing.CHECKS
