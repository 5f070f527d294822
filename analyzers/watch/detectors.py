"""The detectors: each a pure function of a job's view and the instant, in a file of its own below ``analyzers/detect``."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache

from analyzers import detect
from analyzers.incident import Symptom
from analyzers.watch.job import JobView

Detect = Callable[[JobView, float], Iterator[Symptom]]
_detectors: dict[str, Detect] = {}


def detector(name: str) -> Callable[[Detect], Detect]:
    """Register the decorated function under a name."""

    def register(function: Detect) -> Detect:
        _detectors[name] = function
        return function

    return register


@cache
def every_detector() -> dict[str, Detect]:
    """Import the folder's modules once, which is what registers them; return them by name."""
    for module in pkgutil.iter_modules(detect.__path__):
        importlib.import_module(f"{detect.__name__}.{module.name}")
    return dict(sorted(_detectors.items()))


def symptoms(view: JobView, now: float) -> list[Symptom]:
    """Return what is odd about the job now; the same symptom is told again as long as it holds."""
    return [symptom for detect_it in every_detector().values() for symptom in detect_it(view, now)]


def allowed_seconds(view: JobView) -> float:
    """Return for how long the job may tell of no step before that is a symptom, by its own rhythm."""
    return view.rhythm.allowed_seconds(view.newest_step)
