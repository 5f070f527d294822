"""From a window to a verdict: run every analyzer, combine what they claim. A crashing analyzer is a recorded failure."""

from __future__ import annotations

from analyzers.knowledge import Knowledge
from analyzers.topology import Topology
from analyzers.verdict import Verdict
from analyzers.window import Window


def judge(window: Window, topology: Topology, knowledge: Knowledge) -> Verdict:
    """Return the one answer for this window."""
    raise NotImplementedError
