"""What a job shows when something is wrong: one detector a file, each a pure function of the job's view and the instant.

A detector yields the same symptom, with the same ``at``, for as long as it holds. It accuses nobody: the ranks that it
names showed it first. What it yields opens an incident, and the incident's evidence decides.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache

from analyzers.incidents.job_views.job import JobView
from analyzers.model.incident import Symptom

Detect = Callable[[JobView, float], Iterator[Symptom]]
_detectors: dict[str, Detect] = {}


def detector(name: str) -> Callable[[Detect], Detect]:
    """Register the decorated function under a name, which is its file's."""

    def register(function: Detect) -> Detect:
        _detectors[name] = function
        return function

    return register


@cache
def every_detector() -> dict[str, Detect]:
    """Import this folder's modules once, which is what registers them; return them by name, sorted."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return dict(sorted(_detectors.items()))


def find_symptoms(view: JobView, now: float) -> list[Symptom]:
    """Return what is odd about the job now."""
    return [symptom for look in every_detector().values() for symptom in look(view, now)]
