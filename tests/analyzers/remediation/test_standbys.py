"""Warm standbys: the published table, and a rate that the fleet's own history makes."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.knowledge.convictions import PriorRate, weights
from analyzers.remediation.standbys import MOST_FAILURES, count_standbys, estimate_rate
from service.packaged_knowledge import load

NODES = (128, 256, 512, 1024)
PRIOR = PriorRate(failures=1, node_days=264.0)


def by_enumeration(nodes: int, rate: float, quantile: float) -> int:
    """The oracle: add up the binomial's terms as they stand in a textbook."""
    below = 0.0
    for failed in range(nodes + 1):
        below += math.comb(nodes, failed) * rate**failed * (1 - rate) ** (nodes - failed)
        if below >= quantile:
            return failed
    return nodes


@pytest.mark.parametrize("rate", [0.00117, 0.0012, 0.00125])
def test_byterobusts_table_is_reproduced(rate: float) -> None:
    """128, 256, 512 and 1,024 machines take 2, 2, 3 and 4 standbys, as the paper's Table 5 has it."""
    assert [count_standbys(nodes, rate) for nodes in NODES] == [2, 2, 3, 4]


@pytest.mark.parametrize("rate", [0.00116, 0.00126])
def test_the_table_holds_at_no_other_rate(rate: float) -> None:
    """A little beside those rates the table comes out otherwise: it pins the rate, and the quantile."""
    assert [count_standbys(nodes, rate) for nodes in NODES] != [2, 2, 3, 4]


def test_a_worse_fleet_takes_more() -> None:
    """At RSC-1's 6.5 failures in 1,000 node-days the same jobs take 4, 5, 8 and 13."""
    assert [count_standbys(nodes, 0.0065) for nodes in NODES] == [4, 5, 8, 13]


@given(st.integers(0, 60), st.floats(0.0, 1.0), st.floats(0.01, 0.99))
def test_standbys_are_the_binomials_quantile(nodes: int, rate: float, quantile: float) -> None:
    """The count is the textbook's, give or take one where the sum lies on the quantile itself."""
    below = math.fsum(
        math.comb(nodes, failed) * rate**failed * (1 - rate) ** (nodes - failed)
        for failed in range(by_enumeration(nodes, rate, quantile) + 1)
    )
    slack = 1 if abs(below - quantile) < 1e-9 else 0

    assert abs(count_standbys(nodes, rate, quantile) - by_enumeration(nodes, rate, quantile)) <= slack


@given(st.integers(0, 3000), st.floats(0.0, 0.05), st.floats(0.0, 0.05), st.floats(0.5, 0.999))
def test_more_never_takes_fewer(nodes: int, rate: float, more: float, quantile: float) -> None:
    """A worse rate, a larger job or a surer quantile never takes fewer standbys, and none takes more than its nodes."""
    count = count_standbys(nodes, rate, quantile)

    assert count <= nodes
    assert count_standbys(nodes, rate + more, quantile) >= count
    assert count_standbys(nodes + 64, rate, quantile) >= count
    assert count_standbys(nodes, rate, quantile + 0.0005) >= count


def test_a_hundred_thousand_nodes_are_counted() -> None:
    """Where the first terms are too small for a number the quantile is still the normal one within two nodes."""
    nodes, rate = 100_000, 0.01

    assert count_standbys(nodes, rate) == pytest.approx(
        nodes * rate + 2.3263 * math.sqrt(nodes * rate * (1 - rate)), abs=2
    )


def test_a_fleet_without_history_has_the_prior_rate() -> None:
    """Before anything was counted the rate is the packaged one, 3.8 in 1,000 node-days, and hardly known."""
    rate = estimate_rate(0, 0.0, weights(load()).rate)

    assert rate.per_node_day == pytest.approx(0.00379, abs=1e-5)
    assert rate.low == pytest.approx(-math.log(0.975) / 264.0)
    assert rate.high == pytest.approx(-math.log(0.025) / 264.0)


def test_a_history_outweighs_the_prior() -> None:
    """Llama 3's 419 interruptions in 54 days of 2,048 nodes leave 3.8 in 1,000 node-days, known to a tenth."""
    rate = estimate_rate(419, 54 * 2048, PRIOR)

    assert rate.per_node_day == pytest.approx(0.003789, abs=1e-6)
    assert rate.low == pytest.approx(0.00344, abs=1e-5)
    assert rate.high == pytest.approx(0.00416, abs=1e-5)
    assert count_standbys(2048, rate.per_node_day) == 15


@settings(max_examples=20)
@given(st.integers(0, 100), st.floats(0.0, 1e6), st.floats(1.0, 1e5))
def test_failures_raise_the_rate_and_days_lower_it(failures: int, node_days: float, more: float) -> None:
    """One failure more never lowers the rate or its bounds, and more days without one never raise them."""
    rate = estimate_rate(failures, node_days, PRIOR)
    worse, better = estimate_rate(failures + 1, node_days, PRIOR), estimate_rate(failures, node_days + more, PRIOR)

    assert rate.low <= rate.per_node_day <= rate.high
    for lower, higher in ((rate, worse), (better, rate)):
        assert lower.per_node_day <= higher.per_node_day
        assert lower.low <= higher.low
        assert lower.high <= higher.high


@settings(max_examples=20)
@given(st.integers(1, 40), st.integers(0, 10**6))
def test_the_interval_is_the_gammas(shape: int, seed: int) -> None:
    """Of drawn Gamma values 2.5 % lie below the interval and 2.5 % above it, within the drawing's own error."""
    chance = random.Random(seed)
    drawn = [chance.gammavariate(shape, 1 / 1000) for _ in range(4000)]
    rate = estimate_rate(shape - 1, 1000.0 - PRIOR.node_days, PRIOR)

    assert sum(value < rate.low for value in drawn) / len(drawn) == pytest.approx(0.025, abs=0.012)
    assert sum(value > rate.high for value in drawn) / len(drawn) == pytest.approx(0.025, abs=0.012)


def test_a_long_history_is_quick() -> None:
    """A hundred thousand failures give an interval of two standard deviations about the mean."""
    rate = estimate_rate(MOST_FAILURES, 1e8, PRIOR)

    assert rate.high - rate.low == pytest.approx(2 * 1.96 * math.sqrt(MOST_FAILURES) / 1e8, rel=0.01)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((-1, 0.1), "nodes = -1"),
        ((10**9, 0.1), "nodes = 1000000000"),
        ((8, 1.5), "failures_a_node_day = 1.5"),
        ((8, math.nan), "failures_a_node_day = nan"),
        ((8, 0.1, 1.0), "quantile = 1.0"),
    ],
)
def test_impossible_numbers_are_refused(arguments: tuple[int, float], says: str) -> None:
    """Numbers that cannot be meant are refused with their value and what to give instead."""
    with pytest.raises(ValueError, match=says):
        count_standbys(*arguments)


@pytest.mark.parametrize(("failures", "node_days"), [(-1, 1.0), (10**9, 1.0), (1, -1.0), (1, math.nan), (1, math.inf)])
def test_an_impossible_history_is_refused(failures: int, node_days: float) -> None:
    """A history that cannot be is refused."""
    with pytest.raises(ValueError, match="count"):
        estimate_rate(failures, node_days, PRIOR)
