"""What to try next when evidence runs out: see ``rungs``."""

from analyzers.ladder.history import Alert, Attempt, History, Layout, Rung, Taken, failed
from analyzers.ladder.rungs import next_rung

__all__ = ["Alert", "Attempt", "History", "Layout", "Rung", "Taken", "failed", "next_rung"]
