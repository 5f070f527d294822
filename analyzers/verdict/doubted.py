"""What an action says of all machines, as surely as the verdict is: no chance of one half clears them."""

from __future__ import annotations

import re

from msgspec.structs import replace

from analyzers.model.verdict import Verdict

SURE, LIKELY = 0.8, 0.6
"""From here on a probability is said to be very likely, and likely."""
_CLEARED = re.compile(r"(?:the [a-z ]+ is the cause: )?(no machine(?: of the job)? is at fault)(?! as far as is seen)")


def with_doubt(verdict: Verdict) -> Verdict:
    """Return the verdict whose action clears machines only as far as what it names is likely."""
    first = next((one.root for one in verdict.culprits), None)
    sure = min((one.probability for one in verdict.culprits if one.root == first), default=1.0)
    if sure >= SURE:
        return verdict
    said = r"probably \1" if sure >= LIKELY else "whether a machine is at fault is undecided"
    return replace(verdict, action=replace(verdict.action, why=_CLEARED.sub(said, verdict.action.why, count=1)))
