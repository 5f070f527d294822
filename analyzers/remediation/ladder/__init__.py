"""What to try next when evidence runs out: see ``rungs``."""

from analyzers.remediation.ladder.deciding import decides, spoken
from analyzers.remediation.ladder.history import Alert, Attempt, History, Layout, Rung, Taken, failed
from analyzers.remediation.ladder.pricing import priced
from analyzers.remediation.ladder.rungs import next_rung

__all__ = [
    "Alert", "Attempt", "History", "Layout", "Rung", "Taken", "decides", "failed", "next_rung", "priced", "spoken"
]  # fmt: skip
