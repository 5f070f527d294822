"""Real traces of slow jobs whose causes are known: the right answer, whatever befell the file, and where simple rules fail."""

from __future__ import annotations

import numpy as np
import pytest

from collectors.files.reading import read_paths
from tests.support.op_traces import corpus, judged, of_records, real
from tests.support.slow_cases import CONTROLS, SPOILS, healed, injected, ranks, relabelled

pytestmark = pytest.mark.system  # a trace of 117,216 operations takes up to a second
DRAWS = 11


@pytest.mark.parametrize("how", SPOILS)
def test_the_slow_worker_is_named(how: str) -> None:
    """Replica 0 of stage 0, rank 0, and its machine."""
    verdict = SPOILS[how](real("AR"), np.random.default_rng(DRAWS)).verdict()
    assert (verdict.symptom, verdict.cause) == ("slow", "machine")
    assert ranks(verdict) == [0]
    assert verdict.action.kind == "evict"


@pytest.mark.parametrize("how", SPOILS)
def test_the_uneven_stage_is_named_and_no_machine(how: str) -> None:
    """The last stage."""
    verdict = SPOILS[how](real("ST"), np.random.default_rng(DRAWS)).verdict()
    assert (verdict.symptom, verdict.cause) == ("slow", "imbalance")
    assert [(one.kind, one.id) for one in verdict.culprits] == [("stage", "3")]
    assert not ranks(verdict)
    assert verdict.action.kind == "none"


def test_other_numbers_rename_the_answer() -> None:
    """The worker is found by what it does."""
    table, new = relabelled(real("AR"), np.random.default_rng(DRAWS))
    assert ranks(table.verdict()) == [new[0]]


def test_without_the_slow_worker_the_job_is_healthy() -> None:
    """Its last stage is a little longer, as with a loss."""
    verdict = healed().verdict()
    assert verdict.symptom == "healthy"
    assert not ranks(verdict)


@pytest.mark.parametrize(("dp", "pp"), [(2, 1), (1, 3), (3, 0)])
@pytest.mark.parametrize("times", [1.05, 1.2])
def test_a_worker_slowed_elsewhere_is_named(dp: int, pp: int, times: float) -> None:
    """In the healthy rest of the trace."""
    table, rank = injected(healed(), dp, pp, times)
    verdict = table.verdict()
    assert ranks(verdict) == [rank]
    assert verdict.cause == "machine"


def test_one_of_two_replicas_is_named_by_its_past_alone() -> None:
    """From the first step on it is left open; from the middle on it is known."""
    always, _ = injected(real("ST"), 1, 1, 1.5)
    assert not ranks(always.verdict())
    since, rank = injected(real("ST"), 1, 1, 1.5, since=0.5)
    assert ranks(since.verdict()) == [rank]


def test_steady_unlike_machines_are_no_alarm() -> None:
    """Ten workers whose mini-batches take 686 to 908, each steadily."""
    verdict = judged(read_paths([corpus("minibatch/job_2_norm.csv")]))
    assert (verdict.symptom, verdict.cause, verdict.culprits) == ("healthy", "none", ())
    assert verdict.action.kind == "none"


def test_simple_rules_blame_innocents_or_miss() -> None:
    """Each is wrong of the slow worker, the uneven stage, unlike machines, or a worker that is half as slow as the first."""
    half, rank = injected(healed(), 0, 0, 1.5)
    unlike = of_records(read_paths([corpus("minibatch/job_2_norm.csv")]))
    for control in CONTROLS:
        right = [control.evicts(real("AR")) == [0], control.evicts(real("ST")) == [], control.evicts(half) == [rank]]
        right.append(control.evicts(unlike) == [])
        assert not all(right), control.name
