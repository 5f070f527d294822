"""The simulation of effective training time: that it counts right where arithmetic can tell, and what it must show at all."""

from __future__ import annotations

import math

import pytest

from analyzers.remediation.plan import Costs
from tests.acceptance.ettr import LABEL, document, spread
from tests.support.ettr.compared import STRATEGIES, settle
from tests.support.ettr.mixes import BYTEROBUST, LLAMA3, MIXES, Kind, Mix
from tests.support.ettr.node_faults import Fault
from tests.support.ettr.parameters import Parameters, at_scale, checkpoint_seconds, measured, restart_seconds
from tests.support.ettr.run import DAY, Run
from tests.support.ettr.simulated_nodes import Wait

PASSING = Mix(
    name="passing", gpus=1_024, interruptions_a_day=8.0, source="made up",
    kinds=(Kind("passes by itself", 1, "outside", "storage"),),
)  # fmt: skip


class AtOnce:
    """Restarts on the same nodes, without looking."""

    def recover(self, run: Run, fault: Fault, ran_seconds: float) -> Wait:
        """Restart."""
        yield from run.restart()


@pytest.fixture(scope="module")
def parameters() -> Parameters:
    """Return the numbers of the simulation."""
    return measured()


def test_the_counts_are_the_published_ones() -> None:
    """Llama 3's table sums to 419 interruptions, ByteRobust's to its 55,365 incidents less the manual restarts."""
    assert sum(kind.count for kind in LLAMA3.kinds) == 419
    assert round(sum(kind.count for kind in BYTEROBUST.kinds)) == 55_365 - 9_582
    assert (LLAMA3.nodes, BYTEROBUST.nodes) == (2_048, 1_200)


def test_what_is_measured_is_read_from_the_documents(parameters: Parameters) -> None:
    """The quality of naming is that of the measured documents: none is better than what they saw."""
    assert 0.8 < parameters.hang.exact < 1.0
    assert 0.8 < parameters.event.exact < 1.0
    assert parameters.crash.exact == 0.0
    assert 0.0 < parameters.innocent < 0.01
    assert parameters.hang.proposed_seconds > parameters.hang.named_seconds > 30.0


def test_restarts_are_as_long_as_published(parameters: Parameters) -> None:
    """At the published sizes the times are the published ones; between and beyond, a doubling adds what it did last."""
    requeue = (454.0, 545.0, 635.0, 768.0)

    assert [at_scale(requeue, nodes) for nodes in (128, 256, 512, 1_024)] == list(requeue)
    assert at_scale(requeue, 2_048) == pytest.approx(768 + 133)
    assert restart_seconds("standbys", 1_024, out=1, warm=1) == pytest.approx(768 / 10.87)
    assert restart_seconds("standbys", 1_024, out=2, warm=1) == pytest.approx(768 / 10.87 * 5.36)
    assert restart_seconds("standbys", 1_024, out=0, warm=0) == 65.0


def test_where_arithmetic_can_tell_it_says_the_same(parameters: Parameters) -> None:
    """With faults that pass, training is what the formula of E[ETTR] says, within the noise of 2,000 interruptions."""
    days = 250.0
    tally = Run(PASSING, parameters, "requeue", Costs(), AtOnce(), seed=1).play(days)

    every = checkpoint_seconds(parameters.checkpoint_stall_seconds, PASSING.interruptions_a_day)
    rate, stall = PASSING.interruptions_a_day / DAY, parameters.checkpoint_stall_seconds
    kept = (every - stall) / (math.exp(rate * every) - 1.0)  # of one interval of training: whole intervals only
    expected = kept / (1.0 / rate + at_scale((454.0, 545.0, 635.0, 768.0), PASSING.nodes))
    assert tally.troubles == pytest.approx(days / (1.0 / PASSING.interruptions_a_day + 454.0 / DAY), rel=0.05)
    assert tally.productive_seconds / (days * DAY) == pytest.approx(expected, abs=0.004)


def test_a_seed_says_the_same_again() -> None:
    """The same seed, strategy and mix give the same run, and another seed another."""
    first, again, other = (settle("byterobust", "requeue", "ours", seed, 3.0) for seed in (0, 0, 1))

    assert first == again
    assert first != other


@pytest.mark.system
@pytest.mark.parametrize("mix", sorted(MIXES))
def test_the_product_takes_out_no_groups(mix: str) -> None:
    """On the same faults as a control that evicts groups it takes out a tenth of the healthy machines, and trains no less."""
    ours, group, hope = (settle(mix, "requeue", name, 5, 12.0) for name in ("ours", "group", "hope"))

    assert ours.healthy_out * 10 <= group.healthy_out
    assert ours.productive_seconds >= 0.99 * group.productive_seconds
    assert ours.productive_seconds > hope.productive_seconds
    assert set(ours.refused) <= {"hindered"}  # the scheduler is never fenced, and nothing is claimed twice


def test_the_document_says_what_it_is() -> None:
    """A simulation is labelled as one, with every strategy, parameter and source beside the numbers."""
    rows = [
        {"mix": mix, "restarts": restarts, "strategy": name, "seed": 0, "days": 1.0}
        | {
            "productive_seconds": 0.9 * DAY,
            "training_seconds": 0.95 * DAY,
            "incidents": 1,
            "troubles": 1,
            "faulty_out": 1,
        }
        | {"healthy_out": 0, "by_hand": 0, "most_out": 1, "refused": {}, "did": {"evict": 1}}
        for mix in MIXES
        for restarts in ("requeue", "standbys")
        for name in STRATEGIES
    ]

    reported = document(rows)

    assert reported["label"] == LABEL
    assert LABEL.startswith("simulation")
    assert len(reported["results"]) == 2 * 2 * len(STRATEGIES)
    assert reported["results"][0]["ettr"] == 0.9
    assert reported["results"][0]["downtime_hours_a_day"] == pytest.approx(1.2)
    assert reported["results"][0]["lost_work_hours_a_day"] == pytest.approx(1.2)
    assert set(reported["parameters"]) >= {"hang", "event", "innocent", "repair_hours"}


def test_an_interval_holds_its_mean() -> None:
    """The interval of a mean holds it, and is a point where all values are the same."""
    low, high = spread([0.90, 0.92, 0.94, 0.96])

    assert low < 0.93 < high
    assert spread([0.5, 0.5, 0.5]) == (0.5, 0.5)
