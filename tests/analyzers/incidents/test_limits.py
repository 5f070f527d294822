"""What the limits of control groups took from ranks, reading by reading."""

from __future__ import annotations

from array import array

from analyzers.incidents.job_views.limits import METRIC, Limits, Taken
from collectors.records import Device, Samples


def reading(tick: float, taken_us: int, group: str = "/job/2") -> Samples:
    """Return one reading of what a group's limit took so far."""
    ticks, values = array("d", [tick]).tobytes(), array("q", [taken_us]).tobytes()
    return Samples(
        source="host", at=tick, scope="cgroup", type="<i8", devices=(group,), metrics=(METRIC,), ticks=ticks,
        monotonic_ticks=ticks, values=values,
    )  # fmt: skip


def limits(group: str = "/job/2") -> Limits:
    """Return the limits of a node whose rank 2 is in this group."""
    made = Limits()
    made.device(Device(type="cgroup", id=group, attributes={"ranks": "2"}))
    return made


def test_a_clock_that_jumped_ahead_hides_one_reading() -> None:
    """The node's clock was a day ahead for one reading: what follows is counted from the reading after it."""
    made = limits()
    found = [
        list(made.take(reading(tick, taken), {2: 0}))
        for tick, taken in ((100.0, 0), (86_500.0, 1_000_000), (120.0, 2_000_000), (130.0, 5_000_000))
    ]

    assert found == [[], [], [], [Taken(2, 130.0, 3.0, 10.0)]]


def test_a_rank_that_no_counted_group_holds_lost_nothing() -> None:
    """Rank 1 is in no group that counts throttling; of rank 2's group one reading is not enough."""
    made = limits()
    first, second = (
        list(made.take(reading(tick, taken), {1: 0, 2: 1})) for tick, taken in ((100.0, 0), (110.0, 500_000))
    )

    assert first == []
    assert second == [Taken(1, 110.0, 0.0, 10.0), Taken(2, 110.0, 0.5, 10.0)]
