"""The engine: ``step(state, event, now)`` decides what is asked, judged, published and closed; ``judge`` names the culprit."""

from analyzers.engine.judging import every_analyzer, findings, judge

__all__ = ["every_analyzer", "findings", "judge"]
