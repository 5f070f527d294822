"""Stated probabilities: by curves that were learned, in the order of the strengths, and without effect on what is done."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.knowledge import Knowledge, parse
from analyzers.model.verdict import Culprit, Verdict
from analyzers.model.window import Window
from analyzers.remediation.plan.posterior import guilt_by_node, root_posteriors
from analyzers.verdict.build import compose
from analyzers.verdict.calibrated import calibrated
from analyzers.verdict.correlate import combine
from analyzers.verdict.curves import Calibrations, Curve, problems
from service.packaged_knowledge import KnowledgeError, load
from tests.support.argued_claims import SHAPE, a_set, claim, suspect

UNSURE = """
[curve.waits.never_entered.one]
learned_on = "site"
n = 40
right = 12
points = [[0.5, 0.1], [0.95, 0.3]]
[curve.waits.never_entered.set]
learned_on = "site"
n = 30
right = 29
points = [[0.4, 0.5], [0.9, 0.97]]
"""


def curves(text: str = UNSURE) -> Knowledge:
    """Return knowledge of these curves alone."""
    return parse({"calibration": text})


def uncalibrated(*findings: object) -> Verdict:
    """Return the verdict on these findings by strengths alone."""
    return compose(combine(findings, SHAPE), Window(), SHAPE, Knowledge())  # type: ignore[arg-type]


ONE = claim("hang", "never_entered", suspect(5, strength=0.95))
SET = a_set(4, 5, 6, fault_class="never_entered")


def test_a_curve_replaces_strength_by_what_came_true() -> None:
    """The culprit and its suspect state the learned probability, "unknown" the rest; their strength is kept."""
    before, after = uncalibrated(ONE), calibrated(uncalibrated(ONE), curves())

    assert [(one.probability, one.strength) for one in before.culprits] == [(0.95, None)]
    assert [(one.probability, one.strength) for one in after.culprits] == [(0.3, 0.95)]
    assert [(one.kind, one.probability) for one in after.suspects] == [("node", 0.3), ("unknown", 0.7)]
    assert [(root.calibration, root.n) for root in after.roots] == [("site", 40)]


def test_the_action_stays_however_sure_or_unsure_a_curve_is() -> None:
    """A curve that makes a claim unsure, or certain, neither takes an eviction back nor makes one."""
    doubtful = claim("hang", "never_entered", suspect(5, strength=0.8))  # below the gate
    certain = UNSURE.replace("[[0.5, 0.1], [0.95, 0.3]]", "[[0.5, 1.0]]")
    for text, finding in product((UNSURE, certain), (ONE, doubtful, SET)):
        before = uncalibrated(finding)
        after = calibrated(before, curves(text))
        assert after.action == before.action
        assert [(one.kind, one.id, one.ranks) for one in after.culprits] == [
            (one.kind, one.id, one.ranks) for one in before.culprits
        ]
    assert calibrated(uncalibrated(doubtful), curves(certain)).action.kind == "probe"
    assert calibrated(uncalibrated(ONE), curves()).action.kind == "evict"


def test_plans_weigh_what_they_weighed_before() -> None:
    """The odds of a plan are the strengths, whatever is stated."""
    for finding in (ONE, SET):
        before = uncalibrated(finding)
        after = calibrated(before, curves())
        assert after.culprits[0].probability != before.culprits[0].probability
        assert guilt_by_node(root_posteriors(after)) == guilt_by_node(root_posteriors(before))


def test_what_was_not_learned_stays_an_order() -> None:
    """Another class, and a root that names nothing, keep strengths as probabilities, and say so."""
    other = uncalibrated(claim("hang", "completion_lost", suspect(5, strength=0.97)))

    assert calibrated(other, curves()) == other
    assert calibrated(uncalibrated(), curves()) == uncalibrated()
    assert [root.calibration for root in other.roots] == ["none"]


@given(st.lists(st.floats(0.01, 0.9), min_size=2, max_size=6), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_suspects_keep_their_order_and_sum_to_one(strengths: list[float], one: float, other: float) -> None:
    """Whatever the curve: no two suspects of a set change places, and with "unknown" they sum to 1."""
    low, high = sorted((round(one, 4), round(other, 4)))
    text = UNSURE.replace("[[0.4, 0.5], [0.9, 0.97]]", f"[[0.4, {low}], [0.9, {high}]]")
    parts = tuple(suspect(rank, strength=strength) for rank, strength in enumerate(strengths))
    before = uncalibrated(replace(SET, suspects=parts))
    after = calibrated(before, curves(text))

    assert [entry.id for entry in after.suspects if entry.kind != "unknown"] == [
        entry.id for entry in before.suspects if entry.kind != "unknown"
    ]
    own = [entry.probability for entry in after.suspects if entry.kind != "unknown"]
    assert all(first >= second for first, second in pairwise(own))
    assert sum(entry.probability for entry in after.suspects) == pytest.approx(1.0, abs=0.001)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=5), st.floats(0, 1), st.floats(0, 1))
def test_less_strength_is_never_more_probable(points: list[tuple[float, float]], one: float, other: float) -> None:
    """On, between and beyond the points of a curve."""
    strengths = sorted({strength for strength, _ in points})
    shares = sorted(share for _, share in points)[: len(strengths)]
    curve = Curve(learned_on="site", n=9, right=9, points=tuple(zip(strengths, shares, strict=True)))
    weaker, stronger = sorted((one, other))

    assert curve.probability(weaker) <= curve.probability(stronger) + 1e-9  # of floating point


def test_agreeing_evidence_divides_the_doubt_that_is_left() -> None:
    """A claim of 0.9 that came true in 0.4 of its cases, and evidence of 0.8 that agrees: a fifth of the doubt is left."""
    curve = Curve(learned_on="site", n=50, right=20, points=((0.9, 0.4),))

    assert curve.probability(1 - 0.1 * 0.2) == pytest.approx(1 - 0.6 * 0.2)
    assert (curve.probability(0.0), curve.probability(0.45), curve.probability(1.0)) == (0.0, 0.2, 1.0)


def test_a_strength_that_was_not_seen_is_not_raised() -> None:
    """Claims of 0.4 and 0.95 nearly always come true: one of 0.85 is not surer than 0.85, nor less sure than that of 0.4."""
    curve = Curve(learned_on="site", n=50, right=50, points=((0.4, 0.6), (0.95, 0.98)))

    assert [curve.probability(one) for one in (0.2, 0.4, 0.5, 0.85, 0.95)] == [0.2, 0.6, 0.6, 0.85, 0.98]


def test_the_packaged_curves_can_be_used() -> None:
    """They pass the checks of a site's, are of simulated cases, enough of each kind."""
    known = msgspec.convert(dict(load().table("calibration")), Calibrations)

    assert list(problems(load().table("calibration"))) == []
    found = [curve for classes in known.curve.values() for claims in classes.values() for curve in claims.values()]
    assert len(found) >= 10
    assert {curve.learned_on for curve in found} == {"simulator"}
    assert min(curve.n for curve in found) >= 10


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("[curve.wait.never_entered.one]", "curve.wait: there is no such family"),
        ("[curve.waits.never_enters.one]", "curve.waits.never_enters: there is no such fault class"),
        ("[curve.waits.never_entered.some]", "some"),
    ],
)
def test_a_sites_table_is_checked(row: str, said: str, tmp_path: Path) -> None:
    """A family, class or claim that there is not would be read past: it is refused by name."""
    path = tmp_path / "calibration.toml"
    path.write_text(f'{row}\nlearned_on = "site"\nn = 9\nright = 3\npoints = [[0.5, 0.4]]\n', encoding="utf-8")

    with pytest.raises(KnowledgeError, match=r"calibration\.toml cannot be used") as refused:
        load(path)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("points", "right", "said"),
    [
        ("[[0.5, 0.4], [0.9, 0.3]]", 3, "more strength must never give less probability"),
        ("[[0.9, 0.3], [0.5, 0.2]]", 3, "more strength must never give less probability"),
        ("[]", 3, "points is empty"),
        ("[[0.5, 1.4]]", 3, "1.0"),
        ("[[0.5, 0.4]]", 10, "right = 10 is more than n = 9"),
    ],
)
def test_a_curve_that_cannot_be_meant_is_refused(points: str, right: int, said: str, tmp_path: Path) -> None:
    """A curve that falls, is empty, is no probability or counts more than there is."""
    path = tmp_path / "calibration.toml"
    path.write_text(
        f'[curve.waits.never_entered.one]\nlearned_on = "site"\nn = 9\nright = {right}\npoints = {points}\n', "utf-8"
    )

    with pytest.raises(KnowledgeError) as refused:
        load(path)
    assert said in str(refused.value)


def test_a_site_replaces_a_curve_and_the_hash(tmp_path: Path) -> None:
    """A site's row stands for its kind of claim, the others stay, and the verdict's hash is another."""
    path = tmp_path / "calibration.toml"
    path.write_text(UNSURE, encoding="utf-8")
    site, packaged = load(path), load()

    assert calibrated(uncalibrated(ONE), site).culprits[0].probability == 0.3
    assert calibrated(uncalibrated(ONE), packaged).culprits[0].probability > 0.9
    assert site.table("calibration")["curve"]["timings"] == packaged.table("calibration")["curve"]["timings"]
    assert site.hash != packaged.hash


def test_culprits_without_strength_weigh_their_probability() -> None:
    """Verdicts of older programs, and of the fleet, have none."""
    assert Culprit(root="r1", kind="node", id="n1", probability=0.4).weight == 0.4
    assert Culprit(root="r1", kind="node", id="n1", probability=0.4, strength=0.9).weight == 0.9
