"""Ten seconds between the clocks of two nodes change no verdict, once they are known."""

from __future__ import annotations

import math
from array import array

import msgspec
import pytest

from analyzers.model.clocks import aligned
from analyzers.model.verdict import to_json
from collectors.records import FlightRecorderDump, LogEvent, ProcessState, Record, Ring
from tests.analyzers.diagnosis.test_contract import bundles
from tests.support.live_hangs import START, Hang, inside, named, verdict
from tests.support.live_records import minute

SKEW = 16.0  # seconds: a sum that a float holds exactly, so that there and back is the same
NODES = ("gpu-0", "gpu-1", "gpu-2", "gpu-3")


def skewed(records: list[Record], **ahead: float) -> list[Record]:
    """Return the records as nodes with such clocks would have reported them."""
    return list(aligned(records, {name.replace("_", "-"): -seconds for name, seconds in ahead.items()}))


def test_a_correction_undoes_a_skew_in_every_kind_of_record() -> None:
    """There and back gives the records that were, and on the way every instant of the node differs."""
    records = [record for case in bundles().values() for record in case] + list(minute("gpu-b7", [0], START))
    there = list(aligned(records, {"gpu-b7": -SKEW}))
    back = list(aligned(there, {"gpu-b7": SKEW}))
    assert back == records
    moved = [record for record, other in zip(records, there, strict=True) if record != other]
    assert {record.node for record in moved} == {"gpu-b7"}
    assert {type(record) for record in moved} >= {type(record) for record in minute("gpu-b7", [0], START)}


def test_instants_that_are_unset_stay_unset() -> None:
    """-1 is no time, and a column that was cut is left alone."""
    left = {"left_ns": array("q", [-1, 5_000_000_000]).tobytes(), "entered_ns": b"\x01\x02\x03"}
    hashed = {"ended_ns": array("q", [5_000_000_000, -1]).tobytes(), "hash": bytes(16)}
    (ring,) = aligned([Ring(node="n", at=9.0, count=2, columns=left, hashed=2, hashes=hashed)], {"n": 2.0})
    assert isinstance(ring, Ring)
    assert ring.hashes == {**hashed, "ended_ns": array("q", [3_000_000_000, -1]).tobytes()}
    assert ring.columns == {**left, "left_ns": array("q", [-1, 3_000_000_000]).tobytes()}
    assert ring.at == 7.0


@pytest.mark.parametrize("ahead", [math.nan, math.inf, 1e300, -1e12])
def test_a_clock_that_was_never_set_is_left_as_it_is(ahead: float) -> None:
    """No arithmetic is done with a number that is no number of seconds."""
    record = FlightRecorderDump(node="n", at=9.0, columns={"created_ns": array("q", [1 << 61]).tobytes()})
    assert list(aligned([record], {"n": ahead})) == [record]


@pytest.mark.parametrize("node", NODES)
@pytest.mark.parametrize("ahead", [SKEW, -SKEW])
def test_a_hang_is_judged_as_if_the_clocks_agreed(node: str, ahead: float) -> None:
    """Whoever's clock is off, the culprit's or a victim's: the same bytes."""
    for hang in (Hang(), Hang(state="T"), Hang(stands=(inside("write", "save_checkpoint"),))):
        records = hang.records()
        expected = to_json(verdict(records))
        reported = skewed(records, **{node.replace("-", "_"): ahead})
        assert to_json(verdict(reported, offsets={node: ahead})) == expected


def test_a_skew_that_nobody_corrects_hides_the_culprit() -> None:
    """The control: a look that seems half a minute old is not of the hang, and then nobody knows where the rank stands."""
    reported = skewed(Hang().records(), gpu_2=-2 * SKEW)
    assert verdict(reported).action.kind != "evict"
    assert verdict(reported, offsets={"gpu-2": -2 * SKEW}).action.kind == "evict"


def test_deaths_are_ordered_by_one_clock() -> None:
    """Rank 2 left first, by a clock that is ahead: without the correction nobody left long before the others."""

    def end(rank: int, at: float) -> ProcessState:
        return ProcessState(
            source="process", at=START + at, boot_id="b", node=f"gpu-{rank}", rank=rank, pid=100 + rank, state="X", exit_code=1
        )  # fmt: skip

    ends = [end(2, 100.0), *(end(rank, 115.0 + rank) for rank in (0, 1, 3))]
    reported = skewed(list(ends), gpu_2=SKEW)
    assert named(verdict(ends)) == [2]
    assert named(verdict(reported)) == []
    assert to_json(verdict(reported, offsets={"gpu-2": SKEW})) == to_json(verdict(ends))


def test_a_failure_in_a_log_keeps_its_place_in_the_story() -> None:
    """The first symptom is the earliest by one clock."""

    def raised(rank: int, at: float, exception: str) -> LogEvent:
        return LogEvent(
            source=f"rank{rank}.log:9", at=START + at, node=f"gpu-{rank}", rank=rank, event="traceback",
            exception=exception, text=f"{exception}: it broke", message="it broke",
        )  # fmt: skip

    events = [raised(1, 100.0, "ValueError"), raised(3, 104.0, "KeyError")]
    reported = skewed(list(events), gpu_1=SKEW)
    first = verdict(reported).first_symptom
    corrected = verdict(reported, offsets={"gpu-1": SKEW}).first_symptom
    assert first is not None
    assert corrected is not None
    assert (first.text[:6], corrected.text[:6]) == ("rank 3", "rank 1")


def test_a_record_without_a_node_is_left_alone() -> None:
    """Nobody's clock reported it."""
    record = msgspec.structs.replace(minute("gpu-1", [0], START)[0], node=None)
    assert list(aligned([record], {"gpu-1": SKEW})) == [record]
