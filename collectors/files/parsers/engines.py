"""An inference engine, asked over HTTP: whether it answers, and what it reports."""

from __future__ import annotations

from typing import Any

import msgspec

from collectors.files.parsers.dcgm import ScrapeRefused, scrape
from collectors.formats.engine_metrics import gather

HEALTH, METRICS = "/health", "/metrics"
WEIGHTS = {"sglang": ("/model_info", "/get_weight_version")}  # of a new release, and of those before it
LONGEST_VERSION = 18  # digits


def parse(address: str, timeout_seconds: float, kind: str) -> tuple[bool | None, dict[str, int]]:
    """Return whether the server at ``host:port`` answers, None where it has no such endpoint; and its values by field."""
    answers = _answers(f"http://{address}{HEALTH}", timeout_seconds)
    try:
        body = scrape(f"http://{address}{METRICS}", timeout_seconds)
    except OSError:  # it exports no metrics, or does not answer there either
        body = None
    values = gather((body or b"").decode(errors="replace").split("\n")).values
    if answers and (weights := _weights(address, timeout_seconds, kind)) is not None:
        values["weights"] = weights
    return answers, values


def _answers(url: str, timeout_seconds: float) -> bool | None:
    try:
        return None if scrape(url, timeout_seconds) is None else True
    except ScrapeRefused as refused:
        return False if refused.status >= 500 else None
    except TimeoutError:
        return False
    except OSError:
        return None


def _weights(address: str, timeout_seconds: float, kind: str) -> int | None:
    """Return the version of its weights, where it has one and it is a number: a framework sets it at each weight sync."""
    for path in WEIGHTS.get(kind, ()):
        try:
            body = scrape(f"http://{address}{path}", timeout_seconds)
            given = msgspec.json.decode(body or b"{}", type=dict[str, Any]).get("weight_version")
        except ScrapeRefused:
            continue
        except (OSError, msgspec.DecodeError):
            return None
        text = str(given)
        return int(text) if text.isascii() and text.isdigit() and len(text) <= LONGEST_VERSION else None
    return None
