"""A node's kernel or driver reports a fault that needs an action: the hardware analyzer decides which faults do.

Xids of the application (13, 31, 43, 45) need none and open no incident.
"""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.diagnosis.hardware.hardware import analyze
from analyzers.incidents.detectors import detector
from analyzers.incidents.job_views.job import JobView
from analyzers.model.fault_classes import hardware_action
from analyzers.model.finding import Finding
from analyzers.model.incident import Symptom
from analyzers.model.topology import infer
from analyzers.model.window import Window

ASKED_FOR = frozenset({"evict", "reset_gpu", "reboot_node"})
MOST_NAMED = 64


@detector("hardware_event")
def detect(view: JobView, now: float) -> Iterator[Symptom]:
    """Yield a hardware symptom where a fault class asks for an eviction, a reset or a reboot."""
    del now
    if not view.hardware.entries:
        return
    if view.hardware.judged is None:
        view.hardware.judged = tuple(_symptoms(view))
    yield from view.hardware.judged


def _symptoms(view: JobView) -> Iterator[Symptom]:
    window = Window.build(seen.event for seen in view.hardware.entries)
    serious = [
        finding
        for finding in analyze(window, infer(window), view.knowledge)
        if finding.suspects and hardware_action(finding.fault_class, view.knowledge) in ASKED_FOR
    ]
    instants = {seen.event.at: seen.at for seen in view.hardware.entries}
    for finding in serious:
        at = instants.get(finding.onset, view.hardware.entries[0].at)
        nodes = sorted({suspect.node for suspect in finding.suspects if suspect.node})
        yield Symptom(
            kind="hardware", detector="hardware_event", at=at, text=_text(finding), nodes=tuple(nodes[:MOST_NAMED])
        )


def _text(finding: Finding) -> str:
    suspect = finding.suspects[0]
    where = " ".join(part for part in (suspect.node, suspect.device) if part)
    return f"{where or 'a node of the job'}: {suspect.why} ({finding.fault_class})"
