"""Instants and spans of time on the command line: read from options, and shown."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from service.client import UserError
from service.reports.instants import moment, rfc3339

SPAN = re.compile(r"\d{1,9}[smhd]")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def span_seconds(option: str, text: str, example: str) -> float:
    """Return the seconds of ``90s``, ``10m``, ``2h`` or ``7d``."""
    if not SPAN.fullmatch(text):
        raise UserError(f"{option} {text!a} is no span of time: write {example}")
    return float(text[:-1]) * _SECONDS[text[-1]]


def instant(option: str, text: str | None, now: float) -> float | None:
    """Return UTC seconds of ``10m``, ``10m ago``, ``now`` or RFC 3339 (UTC without an offset); None where nothing is given."""
    if text is None or text == "now":
        return None if text is None else now
    if re.fullmatch(rf"{SPAN.pattern}(\s+ago)?", text.strip()):
        return max(0.0, now - span_seconds(option, text.split()[0], "10m"))
    try:
        at = datetime.fromisoformat(text)
        seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except ValueError:
        seconds = -1.0
    if seconds < 0:
        raise UserError(f"{option} {text!a} is no instant: write 10m, 2h ago, now or 2026-11-21T03:14:07Z")
    return seconds


def shown_instant(at: float | None) -> str:
    """Show UTC seconds to the second, empty where there is none."""
    return "" if at is None else moment(rfc3339(at))
