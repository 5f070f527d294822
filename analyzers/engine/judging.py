"""From a window to a verdict: run every analyzer, combine what they claim. A crashing analyzer is a recorded failure."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache

import analyzers
from analyzers.combine import combine
from analyzers.document import compose
from analyzers.finding import Analyze, Finding, registered
from analyzers.knowledge import Knowledge
from analyzers.topology import Topology
from analyzers.verdict import Verdict
from analyzers.window import Window


@cache
def every_analyzer() -> dict[str, Analyze]:
    """Import this folder's modules once, which is what registers their analyzers; return them by name."""
    for module in pkgutil.iter_modules(analyzers.__path__):
        importlib.import_module(f"{analyzers.__name__}.{module.name}")
    return registered()


def findings(window: Window, topology: Topology, knowledge: Knowledge) -> Iterator[Finding]:
    """Yield what every analyzer claims; one that crashes costs its own claims only, and says so."""
    for name, analyze in every_analyzer().items():
        try:
            yield from list(analyze(window, topology, knowledge))
        except Exception as failure:  # noqa: BLE001 the one catch-all of the engine: the others' claims must stand
            yield _failed(name, failure)


def judge(window: Window, topology: Topology, knowledge: Knowledge) -> Verdict:
    """Return the one answer for this window."""
    decision = combine(findings(window, topology, knowledge), topology)
    return compose(decision, window, topology, knowledge)


def _failed(name: str, failure: Exception) -> Finding:
    return Finding(
        analyzer=name,
        family="log",
        symptom="unknown",
        cause="unknown",
        fault_class="analyzer_failed",
        missing=(f"analyzer {name} failed ({type(failure).__name__}: {failure}): its evidence is not in this verdict",),
    )
