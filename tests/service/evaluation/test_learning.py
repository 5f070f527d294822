"""Learned probabilities: what was seen, moved little by few cases, never falling with strength."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from datetime import date
from itertools import pairwise

import pytest

from analyzers.verdict.curves import Key, problems
from service.evaluation.calibration import calibrate
from service.evaluation.forecasts import Forecast
from service.evaluation.learning import FITS, Learned, Method, fit, learn, probability
from service.evaluation.table_writing import to_toml
from tests.support.needs import needs_library

needs_library("sklearn", "the extra `tables` has it")

CIRCLE: Key = ("waits", "deadlock", "one")
ABSENT: Key = ("waits", "never_entered", "one")


def seen(
    key: Key, strength: float, right: int, of: int, *, first: int = 0, stated: float | None = None
) -> Iterator[Forecast]:
    """Yield so many claims, so many of them right, each of a case of its own, of a site."""
    for number in range(of):
        case = f"{'/'.join(key)} {strength} {first + number}"
        believed = strength if stated is None else stated
        yield Forecast(case, "real", key, strength, believed, number * right // of != (number + 1) * right // of, True)


@pytest.mark.parametrize("name", FITS)
def test_what_comes_true_less_often_is_stated_less(name: str) -> None:
    """Of two kinds with one strength each has its own frequency; a kind that was not seen keeps what is stated."""
    curves = fit([*seen(CIRCLE, 0.9, 20, 50), *seen(ABSENT, 0.9, 50, 50)], Method(name, 2))
    other = Forecast("x", "real", ("waits", "init", "one"), 0.9, 0.77, True, True)

    assert curves[CIRCLE].probability(0.9) == pytest.approx(0.42, abs=0.01)
    assert curves[ABSENT].probability(0.9) == pytest.approx(51 / 52, abs=0.0001)  # never surer than that of fifty
    assert (curves[CIRCLE].n, curves[CIRCLE].right, curves[CIRCLE].learned_on) == (50, 20, "site")
    assert probability(other, curves) == 0.77


@pytest.mark.parametrize("name", FITS)
def test_few_cases_move_little(name: str) -> None:
    """Ten wrong claims against a prior of 32 leave most of what was stated; nine claims teach nothing."""
    (curve,) = fit(seen(CIRCLE, 0.9, 0, 10), Method(name, 32)).values()

    assert curve.probability(0.9) == pytest.approx(0.9 * 32 / 42, abs=0.01)
    assert fit(seen(CIRCLE, 0.9, 0, 9), Method(name, 32)) == {}


@pytest.mark.parametrize("name", FITS)
def test_a_few_weak_claims_that_were_right_do_not_become_certain(name: str) -> None:
    """Three right claims of strength 0.2 beside fifty strong ones: each strength has a prior of its own."""
    (curve,) = fit([*seen(ABSENT, 0.95, 50, 50), *seen(ABSENT, 0.2, 3, 3)], Method(name, 32)).values()

    assert curve.probability(0.2) == pytest.approx((3 + 32 * 0.2) / 35, abs=0.01)


@pytest.mark.parametrize("name", FITS)
def test_a_sites_prior_is_what_was_stated(name: str) -> None:
    """A packaged curve said 0.3 of strength 0.9: a site's few cases begin there and not at the strength."""
    (curve,) = fit(seen(CIRCLE, 0.9, 3, 10, stated=0.3), Method(name, 32)).values()

    assert curve.probability(0.9) == pytest.approx(0.3, abs=0.01)


@pytest.mark.parametrize("name", FITS)
def test_more_strength_is_never_less_probable(name: str) -> None:
    """Even where the cases had it the other way round."""
    (curve,) = fit([*seen(CIRCLE, 0.5, 30, 30), *seen(CIRCLE, 0.95, 10, 30)], Method(name, 2)).values()

    assert all(one[0] < other[0] and one[1] <= other[1] for one, other in pairwise(curve.points))


def test_what_is_learned_is_better_on_cases_left_out() -> None:
    """Two kinds that strengths do not distinguish: both scores fall below the base rate's."""
    learned = learn([*seen(CIRCLE, 0.9, 40, 100), *seen(ABSENT, 0.9, 100, 100)])
    before, after = learned.before["first"], learned.after["first"]

    assert learned.worse == ""
    assert after.brier < after.brier_base < before.brier
    assert after.log_loss < after.log_loss_base
    assert after.ece < before.ece


def test_chance_is_not_learned() -> None:
    """Strengths that come true as stated leave nothing to learn: the curves stay close to them, and cautious."""
    learned = learn([*seen(CIRCLE, 0.8, 80, 100), *seen(ABSENT, 0.8, 80, 100)])

    assert learned.method.prior == 32
    assert [round(curve.probability(0.8), 2) for curve in learned.curves.values()] == [0.8, 0.8]


def test_what_gets_worse_is_named() -> None:
    """The first score that rises, of which culprits, from what to what; none where all fall or stay."""
    sure, unsure = calibrate([0.9] * 10, [True] * 10), calibrate([0.5] * 10, [True] * 10)
    assert sure is not None
    assert unsure is not None

    assert Learned(Method("isotonic", 2), {}, before={"first": sure}, after={"first": unsure}).worse == (
        "the Brier score of first culprits rises from 0.0100 to 0.2500"
    )
    assert Learned(Method("isotonic", 2), {}, before={"first": unsure}, after={"first": sure}).worse == ""


def test_a_table_is_read_as_it_was_written() -> None:
    """The TOML passes the checks of a site's, says of what it is, and holds the same curves."""
    curves = fit(
        [*seen(CIRCLE, 0.9, 20, 50), *seen(CIRCLE, 0.5, 5, 20), *seen(ABSENT, 0.95, 50, 50)], Method("isotonic", 2)
    )
    table = tomllib.loads(to_toml(curves, 'a "site"', date(2026, 11, 26)))

    assert list(problems(table)) == []
    assert (table["source"], table["date"]) == ('a "site"', date(2026, 11, 26))
    row = table["curve"]["waits"]["deadlock"]["one"]
    assert tuple(map(tuple, row["points"])) == curves[CIRCLE].points
    assert (row["n"], row["right"], row["learned_on"]) == (70, 25, "site")
