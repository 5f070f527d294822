"""What to try next when evidence runs out: see ``rungs``."""

from analyzers.ladder.deciding import decides, spoken
from analyzers.ladder.history import Alert, Attempt, History, Layout, Rung, Taken, failed
from analyzers.ladder.pricing import priced
from analyzers.ladder.rungs import next_rung

__all__ = [
    "Alert", "Attempt", "History", "Layout", "Rung", "Taken", "decides", "failed", "next_rung", "priced", "spoken"
]  # fmt: skip
