"""What to try next when evidence does not decide: see ``rungs``. Plans by expected loss are in ``plan``."""

from analyzers.remediation.ladder.job_history import (
    JobAttempt,
    JobHistory,
    JobLayout,
    NetworkAlert,
    Rung,
    TriedRung,
    build_attempt,
)
from analyzers.remediation.ladder.plan_or_rung import choose_side, explain_refusal
from analyzers.remediation.ladder.price import price_rung
from analyzers.remediation.ladder.rungs import next_rung

__all__ = [
    "JobAttempt",
    "JobHistory",
    "JobLayout",
    "NetworkAlert",
    "Rung",
    "TriedRung",
    "build_attempt",
    "choose_side",
    "explain_refusal",
    "next_rung",
    "price_rung"
]  # fmt: skip
