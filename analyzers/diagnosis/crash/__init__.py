"""Whose failure is the cause and whose an echo: see ``analysis``, which registers the analyzer."""

from analyzers.diagnosis.crash.crash import analyze

__all__ = ["analyze"]
