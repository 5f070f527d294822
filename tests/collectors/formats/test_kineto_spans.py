"""Spans of time against what each microsecond says of itself."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from collectors.formats.traces.kineto.spans import Cover, Span, Spans, minus, union

MOMENTS = 40
SPAN = st.tuples(st.integers(0, MOMENTS), st.integers(1, 9)).map(lambda one: (float(one[0]), float(sum(one))))
SPANS = st.lists(SPAN, max_size=12)


def moments(spans: list[Span]) -> set[int]:
    """Return the whole moments that spans cover."""
    return {moment for begin, end in spans for moment in range(int(begin), int(end))}


def disjoint(spans: list[Span]) -> bool:
    """Whether they are sorted, none is empty and none touches the next."""
    ends = [begin < end for begin, end in spans]
    return all(ends) and all(one[1] < other[0] for one, other in pairwise(spans))


@given(SPANS, SPANS)
def test_union_and_difference(some: list[Span], others: list[Span]) -> None:
    """Each moment is where it belongs."""
    assert moments(union(some, others)) == moments(some) | moments(others)
    assert disjoint(union(some, others))
    left = minus(union(some), union(others))
    assert moments(left) == moments(some) - moments(others)


@given(SPANS)
def test_spans_are_the_same_in_any_order(some: list[Span]) -> None:
    """What lies in another takes no place, and is not lost."""
    gathered = Spans()
    places = sum(gathered.add(*one) for one in some)
    assert gathered.merged() == union(some)
    assert places == len(gathered.ends) <= len(some)


@given(SPANS, st.integers(0, MOMENTS), st.integers(0, MOMENTS))
def test_cover(some: list[Span], begin: int, end: int) -> None:
    """How much of a time they take, and since when."""
    cover = Cover(union(some))
    inside = moments(some) & set(range(begin, end))
    assert cover.within(begin, end) == len(inside)
    assert cover.first(begin, end) == (min(inside) if inside else None)
