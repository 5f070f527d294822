"""An inference engine, asked over HTTP: whether it answers, and what it reports."""

from __future__ import annotations

from collectors.files.parsers.dcgm import Refused, scrape
from collectors.formats.engine_metrics import gather

HEALTH, METRICS = "/health", "/metrics"


def parse(address: str, timeout_seconds: float) -> tuple[bool | None, dict[str, int]]:
    """Return whether the server at ``host:port`` answers, None where it has no such endpoint; and its values by field."""
    answers = _answers(f"http://{address}{HEALTH}", timeout_seconds)
    try:
        body = scrape(f"http://{address}{METRICS}", timeout_seconds)
    except OSError:  # it exports no metrics, or does not answer there either
        body = None
    return answers, gather((body or b"").decode(errors="replace").split("\n")).values


def _answers(url: str, timeout_seconds: float) -> bool | None:
    try:
        return None if scrape(url, timeout_seconds) is None else True
    except Refused as refused:
        return False if refused.status >= 500 else None
    except TimeoutError:
        return False
    except OSError:
        return None
