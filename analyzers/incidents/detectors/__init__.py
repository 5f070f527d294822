"""The detectors of symptoms: one a file, each a pure function of the job's view and the instant.

A detector yields the same symptom, with the same ``at``, for as long as it lasts. It opens an incident and accuses no rank: the
ranks that it names showed the symptom first. The incident's evidence decides.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache

from msgspec.structs import replace

from analyzers.incidents.job_views.ending import ended_from_outside
from analyzers.incidents.job_views.job import JobView
from analyzers.model.incident import Symptom

Detect = Callable[[JobView, float], Iterator[Symptom]]
OF_AN_END = frozenset({"crash", "hang", "silence"})  # kinds of symptoms that the end of a job brings with it
_detectors: dict[str, Detect] = {}


def detector(name: str) -> Callable[[Detect], Detect]:
    """Register the decorated function under the name of its file."""

    def register(function: Detect) -> Detect:
        _detectors[name] = function
        return function

    return register


@cache
def every_detector() -> dict[str, Detect]:
    """Import this folder's modules once, so that they register; return the detectors by name, sorted."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return dict(sorted(_detectors.items()))


def _with_roles(symptom: Symptom, view: JobView) -> Symptom:
    """Return a symptom with the ranks of its processes in place of the numbers that the view keeps them by."""
    seats = [view.numbering.of(number) for number in symptom.ranks]
    if not any(role for role, _ in seats):
        return symptom
    return replace(symptom, ranks=tuple(rank for _, rank in seats), roles=tuple(role for role, _ in seats))


def find_symptoms(view: JobView, now: float) -> list[Symptom]:
    """Return the job's symptoms now. A detector that fails costs its own; the view names it.

    What a job shows while it is ended from outside is no symptom: it stops, loses peers, and logs both.
    """
    found: list[Symptom] = []
    for name, look in every_detector().items():
        try:
            found += (_with_roles(symptom, view) for symptom in look(view, now))
        except Exception as error:  # noqa: BLE001 - what one detector cannot judge the others may
            view.broken[name] = f"{type(error).__name__}: {error}"
    if any(one.kind in OF_AN_END for one in found) and (stop := ended_from_outside(view, now)) is not None:
        found = [one for one in found if one.kind not in OF_AN_END or one.at < stop.since]
    return found
