"""Corrected errors of memory modules, and errors of PCIe ports that are of the device below."""

from __future__ import annotations

from analyzers.diagnosis.hardware.memory import worn_memory
from analyzers.diagnosis.hardware.occurrences import coalesce
from analyzers.diagnosis.hardware.pcie import worst_below
from collectors.records import KernelEvent

HOUR = 3600.0


def _corrected(at: float, count: int, module: str = "DIMM_A1", text: str = "CE") -> KernelEvent:
    return KernelEvent(
        event="mce", severity="corrected", device=module, repeats=count, at=at, source="k:1", node="n", text=text
    )


def test_ten_in_a_day_are_too_many() -> None:
    """Spread over the day, or at once."""
    assert len(list(worn_memory([_corrected(hour * HOUR, 1) for hour in range(10)]))) == 1
    assert len(list(worn_memory([_corrected(0.0, 10)]))) == 1


def test_fewer_or_slower_ones_are_everyday_life() -> None:
    """Nine in a day; ten in ten days; five on each of two modules."""
    assert list(worn_memory([_corrected(hour * HOUR, 1) for hour in range(9)])) == []
    assert list(worn_memory([_corrected(day * 24.1 * HOUR, 1) for day in range(10)])) == []
    assert list(worn_memory([_corrected(0.0, 5), _corrected(1.0, 5, "DIMM_B1")])) == []


def test_an_overflow_lost_count() -> None:
    """However few were counted."""
    assert len(list(worn_memory([_corrected(0.0, 2, text="CE memory read error - OVERFLOW")]))) == 1


def _aer(device: str, pci: str, event: str = "aer", at: float = 10.0) -> KernelEvent:
    return KernelEvent(event=event, severity="fatal", device=device, pci=pci, at=at, source="k:1", node="n")


def test_the_error_of_a_port_is_that_of_the_one_gpu_below() -> None:
    """Whose driver could not recover; its sound device is passed over."""
    gpu = _aer("nvidia", "0000:03:00", "aer_unrecovered")
    sound = _aer("snd_hda_intel", "0000:03:00", "aer_unrecovered")

    assert [one.event.pci for one in worst_below(coalesce([_aer("pcieport", "0000:00:03"), gpu, sound]))] == [
        "0000:03:00"
    ]


def test_two_gpus_below_or_an_hour_between_leave_the_port() -> None:
    """Which of them it was, no line says."""
    port, one = _aer("pcieport", "0000:00:03"), _aer("nvidia", "0000:03:00", "aer_unrecovered")
    other, late = (
        _aer("nvidia", "0000:04:00", "aer_unrecovered"),
        _aer("nvidia", "0000:03:00", "aer_unrecovered", at=4000.0),
    )

    assert [each.event.pci for each in worst_below(coalesce([port, one, other]))] == ["0000:00:03"]
    assert [each.event.pci for each in worst_below(coalesce([port, late]))] == ["0000:00:03"]
