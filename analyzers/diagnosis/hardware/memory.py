"""Memory modules of a host whose errors are corrected, and so many that the module is to be replaced."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate

from analyzers.diagnosis.hardware.occurrences import Occurrence, coalesce
from collectors.records import KernelEvent

MOST_CORRECTED = 10  # within a day on one module: mcelog's default threshold (mcelog.conf, [dimm] ce-error-threshold)
DAY_SECONDS = 86_400.0
LOST = "OVERFLOW"  # EDAC: more errors came than the registers hold


def worn_memory(events: Sequence[KernelEvent]) -> Iterator[list[Occurrence]]:
    """Yield what each module reported that corrected too many errors in a day, or lost count of them."""
    modules: dict[tuple[str, str], list[Occurrence]] = defaultdict(list)
    named = (event for event in events if event.event == "mce" and event.severity == "corrected" and event.device)
    for one in coalesce(named):
        modules[one.key].append(one)
    for _, shown in sorted(modules.items()):
        if _most_of_a_day(shown) >= MOST_CORRECTED or any(LOST in one.event.text for one in shown):
            yield shown


def _most_of_a_day(shown: Sequence[Occurrence]) -> int:
    """Return the most errors that lie within a day; what has no clock lies together."""
    sums = [0, *accumulate(one.count for one in shown)]
    most = start = 0
    for end, one in enumerate(shown):
        while (gap := one.at.after(shown[start].at)) is not None and gap > DAY_SECONDS:
            start += 1
        most = max(most, sums[end + 1] - sums[start])
    return most
