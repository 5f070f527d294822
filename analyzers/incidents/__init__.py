"""The engine: ``step(state, event, now)`` decides what is asked, judged, published and closed; ``judge`` names the culprit."""

from analyzers.verdict.judge import decide, every_analyzer, failed, findings, judge, told

__all__ = ["decide", "every_analyzer", "failed", "findings", "judge", "told"]
