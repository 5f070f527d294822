"""Instants between seconds since 1970, RFC 3339 and what people read."""

from __future__ import annotations

from datetime import UTC, datetime


def rfc3339(at: float) -> str:
    """Show UTC seconds as RFC 3339 with milliseconds, or as the number where no calendar holds it."""
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return str(at)


def seconds(instant: str | None) -> float | None:
    """Parse RFC 3339, None where there is nothing to parse."""
    try:
        return datetime.fromisoformat(instant).timestamp() if instant else None
    except ValueError:
        return None


def moment(instant: str | None) -> str:
    """Show an RFC 3339 instant to the second: ``2026-11-21 03:14:07 UTC``."""
    if not instant:
        return ""
    return f"{instant[:10]} {instant[11:19]} UTC" if len(instant) >= 19 and instant.endswith("Z") else instant


def span(seconds: float) -> str:
    """Show a span of time by the largest unit of which it has two: ``95 s``, ``12 min``, ``3 h``, ``5 d``."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


def clock(at: float) -> str:
    """Show only the time of the day of UTC seconds, to the millisecond."""
    return rfc3339(at)[11:23]
