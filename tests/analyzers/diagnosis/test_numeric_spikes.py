"""Spikes: each rank against its own steps, on which ranks they are, and since which step."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from collectors.records import Steps
from tests.analyzers.diagnosis.test_numeric import found, steps
from tests.analyzers.diagnosis.test_numeric_suspects import SOUND, norms
from tests.support.live_hangs import named, verdict
from tests.support.sentences import numbers_in

STAGES = (8.0, 2.0, 1.5, 1.0)


def of_stages(spiked: dict[int, int], length: int = 120) -> list[Steps]:
    """Pipeline stages that each print a norm of their own; ``spiked``: rank → its last steps, whose norm is 40 times as large."""
    draws = random.Random(5)
    return [
        norms(
            [2.0] * length,
            [
                usual * draws.gauss(1, 0.05) * (40 if step >= length - spiked.get(rank, 0) else 1)
                for step in range(length)
            ],
            rank,
        )
        for rank, usual in enumerate(STAGES)
    ]


def test_stages_whose_norms_differ_are_sound() -> None:
    """The first stage's norm is eight times the last one's, all the time."""
    assert found(*of_stages({})) == []


@pytest.mark.parametrize("rank", range(4))
def test_a_spike_of_one_rank_is_located_and_names_it_only_where_it_lasts(rank: int) -> None:
    """One bad batch is of one step; a norm that stays large is of its data or its device, to be tested."""
    (once,) = found(*of_stages({rank: 1}))
    assert once.evidence[0].rank == rank
    assert f"on rank {rank} alone" in once.evidence[0].text
    assert once.suspects == ()
    judged = verdict(of_stages({rank: 5}), None)
    assert (judged.symptom, named(judged), judged.action.kind) == ("numeric", [rank], "probe")


@pytest.mark.parametrize("ranks", [range(3), range(4)])
def test_a_spike_of_most_ranks_names_none(ranks: range) -> None:
    """What one rank's gradients gave to the others is in their norms, too."""
    (lasting,) = found(*of_stages(dict.fromkeys(ranks, 5)))
    assert (lasting.fault_class, lasting.suspects) == ("spike", ())


@pytest.mark.parametrize("lasting", [2, 30, 700])
def test_a_loss_that_stays_large_is_said_since_its_first_step(lasting: int) -> None:
    """The checkpoint to go back to is one from before it."""
    (finding,) = found(steps([*SOUND, *([24.0] * lasting)]))
    assert numbers_in(finding.evidence[0].text)[:2] == [24, len(SOUND) + 1]


def test_a_norm_that_stays_large_for_most_of_a_log_is_found() -> None:
    """A log of a thousand steps, the last seven hundred with twenty times the norm."""
    (finding,) = found(norms([2.0] * 1000, [1.0] * 300 + [20.0] * 700))
    assert numbers_in(finding.evidence[0].text)[:2] == [20, 301]


def test_what_came_and_passed_twice_is_no_spike_the_third_time() -> None:
    """A hard batch in each hundredth step; the second one is a spike still."""
    losses = ([2.0] * 99 + [12.0]) * 3
    assert found(steps(losses)) == []
    assert [one.fault_class for one in found(steps(losses[:200]))] == ["spike"]


@pytest.mark.parametrize("kept", [8, 30, 64])
def test_ranks_without_a_past_are_not_as_before(kept: int) -> None:
    """A live window has few steps of most ranks; the norm is of all ranks' gradients, and as large on each."""
    values = [1.0] * 30 + [12.0] * 34
    reduced = [norms([2.0] * 64, values, 0)]
    for rank in (1, 2):
        whole = norms([2.0] * 64, values, rank)
        columns = {name: data[-kept * (len(data) // 64) :] for name, data in whole.columns.items()}
        reduced.append(replace(whole, count=kept, columns=columns))
    (finding,) = found(*reduced)
    assert finding.suspects == ()
    assert "alone" not in finding.evidence[0].text
