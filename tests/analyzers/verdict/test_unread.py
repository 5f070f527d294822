"""What a verdict says of sources that were not read."""

from __future__ import annotations

from analyzers.knowledge import Knowledge
from analyzers.model import topology
from analyzers.model.window import Window
from analyzers.verdict.build import MOST_REASON, MOST_UNREAD
from analyzers.verdict.judge import judge
from collectors.records import Unread


def test_reasons_of_a_sender_are_cut() -> None:
    """A sender chooses them, up to 64 KiB each, and every page of the incident shows them."""
    window = Window.build([Unread(source=f"dump {number}", reason="x" * 65_000) for number in range(30)])

    unread = judge(window, topology.infer(window), Knowledge()).coverage.unread

    assert (len(unread), unread[-1]) == (MOST_UNREAD + 1, "10 more")
    assert max(map(len, unread)) == MOST_REASON
