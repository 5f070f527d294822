"""Whose failure is the cause and whose an echo: see ``analysis``, which registers the analyzer."""

from analyzers.crash.analysis import analyze

__all__ = ["analyze"]
