"""A healthy job prints words of failures at the beginning of a line: nothing is opened, and nobody is probed.

A job that writes texts (a dataset's sample, a model's answer, a test of its own handlers) may print any of them.
"""

from __future__ import annotations

import io

import msgspec
import pytest

from collectors.formats import Input
from collectors.formats.job_log.job_log import scan
from collectors.records import LogEvent, Record
from simulation.live.fleet import Fleet
from simulation.live.scene_list import BEGAN_AT
from tests.attacks.liars import LyingFleet, scene_of, target_in
from tests.support.simulated_fleet import Drive

TIMES, EVERY_SECONDS = 3, 37.0
LINES = (
    "GPU 00000000:5E:00.0: GPU has fallen off the bus.",
    "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    "Unable to determine the device handle for GPU0000:5E:00.0: GPU is lost.",
    "Fatal Python error: Segmentation fault",
    "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE, Timeout(ms)=600000) ran",
)


def events_of(line: str) -> list[LogEvent]:
    """Return what the reader of job logs makes of one line of a rank's output."""
    data = f"{line}\n".encode()
    return list(scan(Input("out.log", io.BytesIO(data), data)).events())


@pytest.mark.parametrize("line", LINES)
def test_a_healthy_job_that_prints_it_has_no_incident(line: str) -> None:
    """Its own node's agent reports the line three times, as an event of the rank that printed it."""
    scene = scene_of("healthy", 0)
    target, found = target_in(scene), events_of(line)
    assert found
    batches: list[tuple[float, str, list[Record]]] = []
    for turn in range(TIMES):
        at = target.at + EVERY_SECONDS * turn
        printed = [
            msgspec.structs.replace(one, node=target.node, at=at - 0.5, source=f"out.log:{turn}", **target.whose)
            for one in found
        ]
        batches.append((at, target.node, list(printed)))

    fleet = LyingFleet(Fleet([scene.job], 0, BEGAN_AT), batches)
    seen = Drive(fleet, naive=False).run(scene.until)  # type: ignore[arg-type]

    assert fleet.reported.taken == TIMES
    assert (seen.opened, seen.published) == ([], [])
