"""The burn-in: good steps on a node that came back end it, a passed check does at once, and trouble begins it anew."""

from __future__ import annotations

import math
import re

import pytest

from analyzers.remediation.burn_in import add_good_seconds, explain_unfit, is_offender, restart_hours
from analyzers.remediation.node_history import (
    DAY_SECONDS,
    HOUR_SECONDS,
    NodeEvent,
    NodeEventKind,
    NodeRecord,
    fault_probability,
    update_record,
)
from tests.analyzers.remediation.test_node_history import NOW, WEIGHTS, record_of, reported


def hours(sentence: str | None) -> list[str]:
    """Return the hours that stand in a sentence: since when, and how many of them were good."""
    return re.findall(r"([\d.]+) h\b", sentence or "")


def test_a_returned_node_burns_in() -> None:
    """A node that came back is fit after a day of good steps; idle hours do not count, and the sentence says how many did."""
    out = reported("named", "evicted", "cured")
    back = update_record(out, NodeEvent(kind="returned"), NOW + HOUR_SECONDS, WEIGHTS)

    assert explain_unfit(NodeRecord(node="gpu-8"), NOW, WEIGHTS) is None
    assert (out.burn_in, explain_unfit(out, NOW, WEIGHTS) is None) == ("out", False)
    ran = add_good_seconds(back, 1.5 * HOUR_SECONDS, NOW + 3 * HOUR_SECONDS, WEIGHTS)
    assert hours(explain_unfit(ran, NOW + 3.5 * HOUR_SECONDS, WEIGHTS)) == ["2.5", "1.5"]
    assert explain_unfit(back, NOW + 99 * HOUR_SECONDS, WEIGHTS) is not None
    done = add_good_seconds(ran, 22.5 * HOUR_SECONDS, NOW + 30 * HOUR_SECONDS, WEIGHTS)
    assert explain_unfit(done, NOW + 30 * HOUR_SECONDS, WEIGHTS) is None
    assert [line.kind for line in done.history] == ["named", "evicted", "cured", "returned", "burn_in_passed"]
    assert fault_probability(done, NOW + 30 * HOUR_SECONDS, WEIGHTS) < fault_probability(
        ran, NOW + 30 * HOUR_SECONDS, WEIGHTS
    )


def test_a_passed_check_ends_the_burn_in() -> None:
    """A check that passes, before the return or after it, makes good hours unnecessary."""
    after = reported("evicted", "returned", "probe_passed", each_seconds=60)
    before = reported("evicted", "probe_passed", "returned", each_seconds=60)

    assert explain_unfit(after, NOW, WEIGHTS) is None
    assert explain_unfit(before, NOW, WEIGHTS) is None


def test_trouble_begins_the_burn_in_anew() -> None:
    """A recurrence and trouble reset the good hours, the latter without moving the odds; a failed check takes the node out."""
    back = add_good_seconds(
        reported("evicted", "returned", each_seconds=60), 23 * HOUR_SECONDS, NOW + 23 * HOUR_SECONDS, WEIGHTS
    )
    shaken = restart_hours(back, NOW + 23 * HOUR_SECONDS, "inc-1")
    again = update_record(back, NodeEvent(kind="recurred"), NOW + 23 * HOUR_SECONDS, WEIGHTS)
    failed = update_record(back, NodeEvent(kind="probe_failed"), NOW + 23 * HOUR_SECONDS, WEIGHTS)

    later = NOW + 24 * HOUR_SECONDS
    assert explain_unfit(add_good_seconds(back, HOUR_SECONDS, later, WEIGHTS), later, WEIGHTS) is None
    for one in (again, shaken):
        assert hours(explain_unfit(one, later, WEIGHTS)) == ["1.0", "0.0"]
        assert explain_unfit(add_good_seconds(one, 23 * HOUR_SECONDS, later, WEIGHTS), later, WEIGHTS) is not None
    assert shaken.log_odds == back.log_odds
    assert restart_hours(back, NOW - HOUR_SECONDS, "before it came back") == back
    assert (failed.burn_in, explain_unfit(failed, NOW + 99 * HOUR_SECONDS, WEIGHTS) is None) == ("out", False)


def test_an_acquitted_node_returns_at_once() -> None:
    """A node whose eviction cured nothing needs no burn-in where the verdict was unsure, and one where it was sure."""
    named = (NodeEvent(kind="named", probability=0.5), NOW)
    story = [NodeEvent(kind="evicted"), NodeEvent(kind="not_cured"), NodeEvent(kind="returned")]

    record = record_of(named, *((one, NOW + number) for number, one in enumerate(story, 1)))

    surely = record_of(
        (NodeEvent(kind="named", probability=0.99), NOW), *((one, NOW + number) for number, one in enumerate(story, 1))
    )

    assert fault_probability(record, NOW + 3, WEIGHTS) < WEIGHTS.burn_in.acquitted_below
    assert explain_unfit(record, NOW + 3, WEIGHTS) is None
    assert (surely.burn_in, explain_unfit(surely, NOW + 3, WEIGHTS) is None) == ("burning_in", False)


def test_what_is_old_moves_no_state() -> None:
    """A return that is reported after a later eviction leaves the node out."""
    record = record_of((NodeEvent(kind="evicted"), NOW), (NodeEvent(kind="returned"), NOW - 60))

    assert (record.burn_in, explain_unfit(record, NOW, WEIGHTS) is None) == ("out", False)


def test_good_hours_do_not_clear_an_offender() -> None:
    """A node that was evicted three times in a month is fit after a passed check only, until the month is over."""
    story: list[NodeEventKind] = ["evicted", "returned"]
    record = add_good_seconds(
        reported(*story * 3, each_seconds=HOUR_SECONDS), 99 * HOUR_SECONDS, NOW + 99 * HOUR_SECONDS, WEIGHTS
    )

    assert is_offender(record, NOW + 100 * HOUR_SECONDS, WEIGHTS)
    assert explain_unfit(record, NOW + 100 * HOUR_SECONDS, WEIGHTS) is not None
    assert (
        explain_unfit(update_record(record, NodeEvent(kind="probe_passed"), NOW + 1, WEIGHTS), NOW + 1, WEIGHTS) is None
    )
    assert explain_unfit(record, NOW + 29 * DAY_SECONDS, WEIGHTS) is None
    assert add_good_seconds(record, 60.0, NOW + 29 * DAY_SECONDS, WEIGHTS).burn_in == "healthy"


@pytest.mark.parametrize("seconds", [math.nan, -1.0, math.inf])
def test_seconds_that_cannot_be_are_not_counted(seconds: float) -> None:
    """Good time that is no number, or runs backwards, ends no burn-in."""
    back = reported("evicted", "returned", each_seconds=60)

    assert add_good_seconds(back, seconds, NOW + 60, WEIGHTS).burn_in == "burning_in"
    assert add_good_seconds(back, 99 * HOUR_SECONDS, NOW - HOUR_SECONDS, WEIGHTS) == back
