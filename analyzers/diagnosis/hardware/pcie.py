"""PCIe errors that a port reports of the device below it: the device, not the port, is what a person looks for."""

from __future__ import annotations

import re
from dataclasses import replace

import msgspec

from analyzers.diagnosis.hardware.occurrences import Occurrence

PORT = "pcieport"
TOGETHER_SECONDS = 5.0
_OF_JOBS = re.compile(r"nvidia|amdgpu|mlx5|nvme|bnxt|ice\b|hfi1|habanalabs")


def worst_below(occurrences: list[Occurrence]) -> list[Occurrence]:
    """Name in a port's error the device below it whose driver could not recover, where there is just one such."""
    below = [
        one for one in occurrences if one.event.event == "aer_unrecovered" and _OF_JOBS.match(one.event.device or "")
    ]
    rest = [one for one in occurrences if one.event.event != "aer_unrecovered"]
    return [_named(one, below) for one in rest]


def _named(one: Occurrence, below: list[Occurrence]) -> Occurrence:
    if one.event.event != "aer" or one.event.device != PORT or one.event.severity == "corrected":
        return one
    near = [
        each
        for each in below
        if each.machine == one.machine and each.at.within(one.at, TOGETHER_SECONDS, TOGETHER_SECONDS)
    ]
    if len({each.event.pci for each in near}) != 1:
        return one
    return replace(one, event=msgspec.structs.replace(one.event, pci=near[0].event.pci, device=near[0].event.device))
