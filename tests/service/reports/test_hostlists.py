"""Ranks as people write them for a job of several roles."""

from __future__ import annotations

import pytest

from service.reports.hostlists import parse_seats


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3,5-6", {"": (3, 5, 6)}),
        ("rollout=3", {"rollout": (3,)}),
        ("7;trainer=0-1;rollout=2,4", {"": (7,), "trainer": (0, 1), "rollout": (2, 4)}),
        ("7,trainer=0,rollout=2,4,rollout=1", {"": (7,), "trainer": (0,), "rollout": (2, 4, 1)}),
    ],
)
def test_ranks_of_roles_are_written_as_in_a_cut(text: str, expected: dict[str, tuple[int, ...]]) -> None:
    """A comma may stand for the semicolon, which a shell takes for itself."""
    assert parse_seats(text) == expected
    for wrong in ("=3", "rollout=x", "rollout=3-1", "rollout"):
        with pytest.raises(ValueError, match=r"is no rank|names no role"):
            parse_seats(wrong)
