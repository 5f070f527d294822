"""The gpu collector, through the real bindings, on a library that breaks on demand; what it tells names the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.gpu_readings import LOST, NO_PERMISSION, NOT_SUPPORTED, THERMAL, UNKNOWN, states, uuid
from tests.support.nvml_stub import Worker, column, of

pytestmark = pytest.mark.system

if sys.platform != "linux":
    pytest.skip("the stub is an ELF library", allow_module_level=True)
MEMORY_TEMPERATURE = "field:82"


def test_eight_healthy_gpus_tell_what_they_are_and_what_they_do(worker: Worker) -> None:
    """Every GPU has a device record with all its names, is ok, and has a value for everything that the driver gives."""
    worker.says("* gpus 8", f"* {MEMORY_TEMPERATURE} 52", "2 process 4242")

    said = worker.run()

    devices = of(said, "Device")
    assert [(one["index"], one["id"], one["pci"]) for one in devices] == [
        (index, uuid(index), f"0000:{0x18 + index * 16:02x}:00") for index in range(8)
    ]
    assert devices[0]["serial"] == "1653000000"
    assert devices[0]["attributes"]["driver_version"] == "550.54.15"
    assert devices[0]["attributes"]["nvlink_peers"].split()[:2] == ["0=0000:05:00", "1=0000:06:00"]
    assert set(states(said).values()) == {"ok"}
    assert column(said, "power_milliwatts")[uuid(7)] == 70050
    assert column(said, "memory_temperature_celsius")[uuid(0)] == 52
    assert column(said, "energy_millijoules_total")[uuid(0)] == 5_000_000_000_000
    assert column(said, "ecc_dbe_volatile_total") == {uuid(index): 0 for index in range(8)}
    assert len(column(said, "active", "nvlink")) == 8 * 18
    assert column(said, "memory_used_bytes", "gpu_process") == {f"{uuid(2)}/4242": 64 << 30}
    assert column(said, "memory_used_bytes")[uuid(2)] == 64 << 30, "without what the driver reserves"


def test_names_and_states_come_once_and_values_at_every_run(worker: Worker) -> None:
    """A second run gives no device, no state and no link again, only the values."""
    worker.run()

    again = worker.run()

    assert {one["kind"] for one in again} == {"Readings"}
    assert {one["scope"] for one in again} == {"gpu"}


def test_a_gpu_lost_while_it_is_asked_costs_its_own_column_only(worker: Worker) -> None:
    """GPU 5 goes lost between two runs: its values end, its state says so with its PCI address, seven others go on."""
    worker.run()
    worker.says("* gpus 8", "5 lost 1")

    said = worker.run()

    assert states(said) == {uuid(5): "lost"}
    assert of(said, "DeviceState")[0]["pci"] == "0000:68:00"
    assert "lost" in of(said, "DeviceState")[0]["text"].lower()
    power = column(said, "power_milliwatts")
    assert power.pop(uuid(5)) is None
    assert set(power.values()) == {70050}


def test_a_lost_gpu_that_comes_back_is_named_anew(worker: Worker) -> None:
    """After a lost GPU answers again its state is ok, and the run after that brings all names again."""
    worker.run()
    worker.says("* gpus 8", "5 lost 1")
    worker.run()
    worker.says("* gpus 8")

    assert states(worker.run()) == {uuid(5): "ok"}
    assert len(of(worker.run(), "Device")) == 8


def test_a_gpu_lost_before_the_start_keeps_its_names(library: Path, tmp_path: Path, proc: Path) -> None:
    """A GPU that was lost before the collector began is called as it was, by the cursor of this boot and by no other."""
    with Worker(tmp_path / "scenario", library, proc) as worker:
        worker.says("* gpus 8")
        cursor = of(worker.run(), "Cursor")[-1]["value"]
    cases = ((cursor, uuid(5), "0000:68:00"), ({**cursor, "boot_id": "another"}, "gpu5", None), (None, "gpu5", None))
    for kept, id, pci in cases:
        with Worker(tmp_path / "scenario", library, proc, cursors={"gpu": kept}) as worker:
            worker.says("* gpus 8", "5 lost 1")
            (lost,) = [one for one in of(worker.run(), "DeviceState") if one["state"] == "lost"]
        assert (lost["device"], lost.get("pci")) == (id, pci)


def test_the_driver_s_list_names_a_lost_gpu_without_a_past(library: Path, tmp_path: Path, proc: Path) -> None:
    """Where /proc/driver/nvidia lists every GPU, one that was lost from the start has its PCI address."""
    for index in range(8):
        (proc / f"driver/nvidia/gpus/0000:{0x18 + index * 16:02x}:00.0").mkdir(parents=True)
    with Worker(tmp_path / "scenario", library, proc) as worker:
        worker.says("* gpus 8", "5 lost 1")
        (lost,) = [one for one in of(worker.run(), "DeviceState") if one["state"] == "lost"]

    assert (lost["device"], lost["pci"]) == ("0000:68:00", "0000:68:00")


def test_a_gpu_that_is_no_longer_enumerated_is_absent(library: Path, tmp_path: Path, proc: Path) -> None:
    """Of eight GPUs known in this boot the driver lists seven: the one that is missing is reported, and is not called lost."""
    known = {"boot_id": "0f0e0d0c-0000-4000-8000-000000000001", "gpus": [[7, uuid(7), "0000:88:00"]]}
    with Worker(tmp_path / "scenario", library, proc, cursors={"gpu": known}) as worker:
        worker.says("* gpus 7")

        assert states(worker.run())[uuid(7)] == "absent"


def test_one_call_that_says_lost_is_no_lost_gpu(worker: Worker) -> None:
    """A single call that answers "lost" while all others answer costs its value; no node must be evicted for it."""
    worker.says("* gpus 8", f"5 fails:nvmlDeviceGetPowerUsage {LOST}")

    said = worker.run()

    assert states(said)[uuid(5)] == "ok"
    assert column(said, "power_milliwatts")[uuid(5)] is None


@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION, 10, 13, UNKNOWN, 12345])
def test_a_failing_call_costs_its_value_only(worker: Worker, code: int) -> None:
    """Whatever a call fails with, a code of no known meaning included, every other metric of that GPU is still read."""
    worker.says("* gpus 2", f"0 fails:nvmlDeviceGetTemperature {code}")

    said = worker.run()

    assert column(said, "gpu_temperature_celsius") == {uuid(0): None, uuid(1): 41}
    assert column(said, "power_milliwatts") == {uuid(0): 70050, uuid(1): 70050}
    assert set(states(said).values()) == {"ok"}


def test_a_double_bit_error_is_counted_and_its_xid_reported(worker: Worker) -> None:
    """Four double-bit errors stand in both counters, rows are remapped, and Xid 48 comes once, with the GPU's address."""
    worker.run()
    worker.says(
        "* gpus 8",
        "3 dbe_volatile 4",
        "3 dbe_aggregate 9",
        "3 remapped_uncorrectable 1",
        "3 remap_pending 1",
        "3 xid 48",
    )

    said = worker.run()

    assert column(said, "ecc_dbe_volatile_total")[uuid(3)] == 4
    assert column(said, "ecc_dbe_aggregate_total")[uuid(3)] == 9
    assert column(said, "remapped_rows_uncorrectable_total")[uuid(3)] == 1
    assert column(said, "remapped_rows_pending")[uuid(3)] == 1
    (event,) = of(said, "KernelEvent")
    assert (event["event"], event["code"], event["source"]) == ("xid", 48, "nvml")
    assert (event["pci"], event["gpu_uuid"]) == ("0000:48:00", uuid(3))
    assert of(worker.run(), "KernelEvent") == []


def test_a_hot_gpu_shows_its_throttling(worker: Worker) -> None:
    """A GPU that throttles for its heat shows temperature, clock, state and the driver's own bit mask, unjudged."""
    worker.says("* gpus 8", f"6 throttle {THERMAL}", "6 temperature 92", "6 sm_clock 345", "6 pstate 2")

    said = worker.run()

    assert column(said, "throttle_reasons_mask")[uuid(6)] == THERMAL
    assert column(said, "gpu_temperature_celsius")[uuid(6)] == 92
    assert column(said, "sm_clock_mhz") == {uuid(index): 345 if index == 6 else 1980 for index in range(8)}
    assert column(said, "performance_state")[uuid(6)] == 2


def test_a_link_that_went_down_is_one_row(worker: Worker) -> None:
    """NVLink 11 of GPU 2 is inactive and counts errors; the other links of the GPU are as they were."""
    worker.says("* gpus 8", "2 link_down 11", "2 nvlink_crc_flit 7")

    active = column(worker.run(), "active", "nvlink")

    assert [link for link, up in active.items() if not up] == [f"{uuid(2)}/11"]
