"""What the others wait for where no operation is longer: more of them on one worker, longer documents, or pauses in turn."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from analyzers.model.verdict import Verdict
from collectors.records import OP_COLUMNS, Unread
from tests.support.op_traces import Table, judged

NAMES = ("forward-compute", "backward-compute", "grads-reduce-scatter", "optimizer")
WORKERS, STEPS = 4, 16
Share = Callable[[int, int], float]


def traced(
    *, pause: Share = lambda _w, _s: 0.0, microbatches: Share = lambda _w, _s: 4.0, waits: bool = True,
    seconds: Callable[[int, random.Random], float] = lambda _w, _d: 1.0, tokens: Callable[[int], float] | None = None,
    workers: int = WORKERS,
) -> Table:  # fmt: skip
    """Replicas that compute their microbatches, pause, and reduce together. ``waits``: a reduction's row has its wait."""
    draws, rows, begun = random.Random(11), list[tuple[float, ...]](), 0.0
    for step in range(STEPS):
        ends = list[float]()
        for worker in range(workers):
            at = begun
            for number in range(int(microbatches(worker, step))):
                times = seconds(worker, draws)
                for name, usual in ((0, 0.1), (1, 0.2)):
                    took = usual * times * draws.gauss(1, 0.01)
                    rows.append(
                        (worker, worker, 0, name, step, at, took, number, 0, tokens(worker) if tokens else np.nan)
                    )
                    at += took
            ends.append(at + pause(worker, step))
        last = max(ends)
        for worker, end in enumerate(ends):
            arrived = end if waits else last - draws.uniform(0, 0.005)
            rows.append((worker, worker, 0, 2, step, arrived, last + 0.02 - arrived, -1, 0, np.nan))
            rows.append((worker, worker, 0, 3, step, last + 0.02, 0.01, -1, 0, np.nan))
        begun = last + 0.03
    order = ("rank", "dp", "pp", *OP_COLUMNS)
    return Table({name: np.array(column) for name, column in zip(order, zip(*rows, strict=True), strict=True)}, NAMES)


def said(verdict: Verdict) -> str:
    """All that is said of it."""
    return " ".join([*(one.why for one in verdict.culprits), *(one.text for one in verdict.evidence)])


def named(verdict: Verdict) -> Iterator[int]:
    """The ranks that are named."""
    return (rank for one in verdict.culprits if one.kind in ("rank", "node") for rank in one.ranks)


def test_even_replicas_are_healthy() -> None:
    """Nothing is slow."""
    assert traced().verdict().symptom == "healthy"


def test_pauses_in_turn_before_the_reduction_are_found_and_accuse_no_machine() -> None:
    """In every step another worker runs nothing for a second: collection of garbage, a batch of its own."""
    verdict = traced(pause=lambda worker, step: 1.0 if step % WORKERS == worker else 0.0).verdict()
    assert (verdict.symptom, verdict.roots[0].fault_class) == ("slow", "slow_pauses")
    assert not list(named(verdict))
    assert verdict.action.kind not in ("evict", "probe")
    assert "not always the same one" in said(verdict)


def test_one_host_that_pauses_in_every_step_is_doubted() -> None:
    """The others wait for it, and why is not shown."""
    verdict = traced(pause=lambda worker, _: 1.0 if worker == 2 else 0.0).verdict()
    assert (verdict.symptom, list(named(verdict))) == ("slow", [2])
    assert verdict.action.kind != "evict"


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("times", [2, 1.25])
def test_more_microbatches_on_one_worker_are_an_uneven_division_of_the_work(times: float, waits: bool) -> None:
    """The others wait, and no operation of it is longer."""
    verdict = traced(microbatches=lambda worker, _: 4 * times if worker == 1 else 4, waits=waits).verdict()
    assert (verdict.symptom, verdict.cause, verdict.action.kind) == ("slow", "data", "none")
    (more,) = re.findall(r"outside communication rank 1 \(pp0/dp1\) takes ([\d.]+) s more", said(verdict))[:1]
    assert float(more) == pytest.approx(1.2 * (times - 1), rel=0.03)
    assert not list(named(verdict))


def test_more_microbatches_on_changing_workers_are_that_too() -> None:
    """Each step's longest share decides how long it takes."""
    verdict = traced(microbatches=lambda worker, step: 8 if step % WORKERS == worker else 4).verdict()
    assert (verdict.symptom, verdict.cause, verdict.action.kind) == ("slow", "data", "none")


def test_lost_rows_are_no_uneven_division() -> None:
    """A worker of which no row is lost has run more operations than the others have left."""
    table = traced(workers=8)
    draws = np.random.default_rng(3)
    lost = (table.columns["rank"] != 2) & table.named("compute") & (draws.random(len(table)) < 0.3)
    assert table.kept(np.flatnonzero(~lost)).verdict().symptom != "slow"


@pytest.mark.parametrize(("tokens", "times"), [(2.0, 2.8), (1.5, 1.95), (0.5, 0.8)])
def test_a_worker_with_another_amount_of_work_is_not_slow_for_it(tokens: float, times: float) -> None:
    """Attention grows with the square of a length, and launches and parameters cost the same whatever it is."""
    own = traced(
        seconds=lambda worker, _: times if worker == 3 else 1.0, tokens=lambda worker: 4096 * (tokens if worker == 3 else 1.0),
        workers=8,
    )  # fmt: skip
    verdict = own.verdict()
    assert not list(named(verdict))
    assert verdict.action.kind == "none"
    assert "as long as its peers" not in said(verdict)


def test_a_worker_that_is_slower_than_any_growth_explains_is_still_named() -> None:
    """A tenth more work takes no twice as long."""
    own = traced(
        seconds=lambda worker, _: 2.0 if worker == 3 else 1.0, tokens=lambda worker: 4096 * (1.1 if worker == 3 else 1.0),
        workers=8,
    )  # fmt: skip
    assert list(named(own.verdict())) == [3]


def test_microbatches_of_as_many_tokens_that_differ_are_not_known_work() -> None:
    """Packed documents: forward and backward of a microbatch are longer together, and one worker has the longer ones."""
    own = traced(
        seconds=lambda worker, draws: draws.uniform(1.3, 1.6) if worker == 3 else draws.uniform(0.9, 1.1),
        tokens=lambda _: 4096.0, workers=8,
    )  # fmt: skip
    verdict = own.verdict()
    assert (list(named(verdict)), verdict.action.kind) == ([3], "probe")
    assert "for as many tokens" not in said(verdict)


def test_a_trace_of_which_a_part_was_not_read_is_not_called_healthy() -> None:
    """What the others wait for may be in the part that is lost."""
    records = list(traced().records())
    lost = Unread(source=records[2].source, reason="the gzip data stops before its end")
    assert judged(records).symptom == "healthy"
    verdict = judged([*records, lost])
    assert (verdict.symptom, verdict.abstained) == ("unknown", True)
    assert any(records[2].source in one.what for one in verdict.missing)
