"""Dumps of two rounds: one after which the others went on shows the past, and neither accuses nor is held against its rank."""

from __future__ import annotations

from dataclasses import dataclass

from analyzers.model.window import Window
from collectors.records import FlightRecorderDump, Record
from tests.support.hand_made import COMPLETED, SCHEDULED, START_NS, call, dump, group
from tests.support.live_hangs import Hang, named, verdict

START = START_NS / 1e9
EARLY = 20.5  # after the start: an early round, while all go on


@dataclass
class TwoRounds(Hang):
    """The hang of rank 2 after step 30. The dump of rank 1 is from the early round: it answers no later one."""

    waits_in: int = 21  # what the early dump shows as unfinished
    ended: int = 20

    def _dumps(self, rank: int) -> list[Record]:  # type: ignore[override]
        if rank != 1:
            return list(super()._dumps(rank))
        done = [call(step, COMPLETED, at_s=float(step)) for step in range(1, self.ended + 1)]
        waits = [call(self.waits_in, SCHEDULED, at_s=EARLY - 0.1)]
        early = dump(
            rank, [*done, *waits], [group("0", *range(self.ranks)), group("1", rank)], node="gpu-1", job="llama",
            attempt=1, pid=101, at=START + EARLY, source="recorder/101",
        )  # fmt: skip
        return [early]


def test_a_dump_from_before_the_others_went_on_is_left_out() -> None:
    """The culprit of now is named, and not the rank whose old dump lacks what came after it."""
    records = TwoRounds().records()

    window = Window.build(records, live=True)

    assert [one.rank for one in window.dumps] == [0, 2, 3]
    assert {one.rank for one in window.earlier_dumps} == {0, 1, 2, 3}


def test_a_rank_that_is_slow_to_answer_is_not_the_culprit() -> None:
    """The culprit of now is named; what the old dump of another lacks or waits for came or ended since."""
    found = verdict(TwoRounds().records())

    assert found.action.nodes == ("gpu-2",)
    assert {rank: one.probability > 0.5 for one in found.culprits for rank in one.ranks} == {2: True}
    assert "completion_lost" not in {one.fault_class for one in found.roots}


def test_a_rank_that_stopped_after_its_dump_is_one_without_a_dump() -> None:
    """Rank 1 stops later, and the others wait for it: it is named, for that and for no operation of its old dump."""
    found = verdict(TwoRounds(culprits=(), waits_in=25, ended=24).records())

    assert (named(found), [one.fault_class for one in found.roots]) == ([1], ["no_dump"])


def test_a_dump_of_the_same_standstill_stays() -> None:
    """Of a job that has not moved since, an old dump is as good as a new one."""
    hang = Hang()
    records = [one for one in hang.records() if not _is_late_dump_of(one, 2)]

    window = Window.build(records, live=True)

    assert [one.rank for one in window.dumps] == [0, 1, 2, 3]
    assert named(verdict(records)) == [2]


def test_one_rank_that_is_ahead_makes_no_dump_old() -> None:
    """It takes most of the others: one with a wild clock, or a liar, is believed in nothing."""
    hang = Hang()
    ahead = [
        dump(3, [call(step, at_s=1e6 + step) for step in range(31)], [group("0", *range(4))], node="gpu-3", job="llama",
             attempt=1, at=START + 70.0, source="recorder/103")
    ]  # fmt: skip
    window = Window.build([*hang.records(), *ahead], live=True)

    assert [one.rank for one in window.dumps] == [0, 1, 2, 3]


def _is_late_dump_of(one: Record, rank: int) -> bool:
    return isinstance(one, FlightRecorderDump) and one.rank == rank and (one.at or 0.0) > START + 55.0
