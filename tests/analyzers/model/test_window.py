"""A window's order and its looks by kind are those of the obvious ways, and what several analyzers read is made once."""

from __future__ import annotations

from itertools import permutations

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.model.window import Window, newest_step_at
from collectors.records import KernelEvent, LogEvent, ProcessState, Record, Steps

INSTANTS = st.sampled_from([None, 0.0, 1.0, 2.5])
RANKS = st.sampled_from([None, 0, 1, 12])
SOURCES = st.sampled_from(["", "a:1", "a:10", "b:2"])
EVENTS = st.builds(LogEvent, event=st.sampled_from(["exit", "exception"]), at=INSTANTS, rank=RANKS, source=SOURCES)
KERNEL = st.builds(KernelEvent, event=st.sampled_from(["xid", "oom"]), at=INSTANTS, source=SOURCES)
PROCESSES = st.builds(ProcessState, pid=st.integers(1, 3), state=st.just("S"), at=INSTANTS, rank=RANKS, source=SOURCES)
RECORDS = st.lists(st.one_of(EVENTS, KERNEL, PROCESSES), max_size=12)


def obvious(record: Record) -> tuple[str, float, int, str, bytes]:
    """Return the whole of what records are ordered by."""
    rank = -1 if record.rank is None else record.rank
    at = -1.0 if record.at is None else record.at
    return type(record).__name__, at, rank, record.source, msgspec.msgpack.encode(record)


@settings(max_examples=40)
@given(RECORDS)
def test_records_are_in_the_order_of_the_obvious_key(records: list[Record]) -> None:
    """By type, instant, rank, source and then content."""
    assert list(Window.build(records).records) == sorted(records, key=obvious)


@settings(max_examples=40)
@given(RECORDS)
def test_a_look_by_kind_is_a_scan_of_all_records(records: list[Record]) -> None:
    """Of one kind, and of the kind that all others are of."""
    window = Window.build(records)
    for kind in (LogEvent, KernelEvent, ProcessState, Record):
        assert window.records_of(kind) == tuple(one for one in window.records if isinstance(one, kind))
    assert window.kinds == {str(type(one).__struct_config__.tag) for one in records}


def test_the_order_of_arrival_changes_nothing() -> None:
    """Records of one place and instant are ordered by what they hold."""
    alike = [LogEvent(event=name, at=1.0, source="a:1") for name in ("exit", "exception", "oom")]

    assert len({Window.build(order).records for order in permutations(alike)}) == 1


def test_what_several_read_is_made_once_for_the_same_objects() -> None:
    """Another object of equal content is made anew, and so is that of another window."""
    made: list[object] = []

    def count(_window: Window, of: list[int]) -> int:
        made.append(of)
        return len(made)

    window, first, equal = Window.build([]), [1], [1]

    assert [window.once(count, first), window.once(count, first)] == [1, 1]
    assert window.once(count, equal) == 2
    assert Window.build([]).once(count, first) == 3


def test_the_newest_step_is_read_past_a_cut_of_the_last_instant() -> None:
    """A damaged record says what it still holds; without an instant its own time is what is known."""
    whole = np.array([1.0, 3.0, np.nan, 2.0]).tobytes()
    assert newest_step_at(Steps(columns={"at": whole + b"\x01\x02\x03"}, at=9.0, source="cut")) == 3.0
    assert newest_step_at(Steps(columns={"at": b"\x01\x02\x03"}, at=9.0, source="cut")) == 9.0
