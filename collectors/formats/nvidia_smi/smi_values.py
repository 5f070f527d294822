"""Which values of ``nvidia-smi -q`` are read, and under which names its forms and versions have them.

The metrics have the live collector's names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from collectors.formats.nvidia_smi.smi_tree import Path, SmiGpu

_POWER, _OLD_POWER = "gpu_power_readings", "power_readings"
_LINK, _XML_LINK = ("pci", "gpu_link_info"), ("pci", "pci_gpu_link_info")

GAUGES: Mapping[str, tuple[Path, ...]] = {
    "gpu_utilization_percent": (("utilization", "gpu_util"), ("utilization", "gpu")),
    "memory_utilization_percent": (("utilization", "memory_util"), ("utilization", "memory")),
    "power_watts": (
        (_POWER, "instant_power_draw"), (_POWER, "instantaneous_power_draw"), (_POWER, "power_draw"),
        (_POWER, "average_power_draw"), (_OLD_POWER, "power_draw"),
    ),
    "power_limit_watts": (
        (_POWER, "current_power_limit"), (_OLD_POWER, "enforced_power_limit"), (_OLD_POWER, "power_limit"),
    ),
    "gpu_temperature_celsius": (("temperature", "gpu_temp"), ("temperature", "gpu_current_temp")),
    "memory_temperature_celsius": (("temperature", "memory_temp"), ("temperature", "memory_current_temp")),
    "sm_clock_mhz": (("clocks", "sm_clock"), ("clocks", "sm")),
    "memory_clock_mhz": (("clocks", "mem_clock"), ("clocks", "memory")),
    "performance_state": (("performance_state",),),
    "pcie_generation": ((*_XML_LINK, "pcie_gen", "current_link_gen"), (*_LINK, "pcie_generation", "current")),
    "pcie_width_lanes": ((*_XML_LINK, "link_widths", "current_link_width"), (*_LINK, "link_width", "current")),
}  # fmt: skip
"""Metric → its place in the XML, then in the text and in older drivers' reports."""

_SINCE = ("volatile", "aggregate")
_ECC = (
    ("sram_correctable",), ("sram_uncorrectable",), ("sram_uncorrectable_parity",),
    ("sram_uncorrectable_sec_ded", "sram_uncorrectable_secded"), ("dram_correctable",), ("dram_uncorrectable",),
)  # fmt: skip
_BITS = (("sbe", "single_bit"), ("dbe", "double_bit"))  # before Ampere


def _pages(*names: str) -> tuple[Path, ...]:
    return tuple(("retired_pages", *name.split("/")) for name in names)


def _rows(*names: str) -> tuple[Path, ...]:
    return tuple(("remapped_rows", name) for name in names)


COUNTERS: Mapping[str, tuple[Path, ...]] = {
    "memory_used_mib": (("fb_memory_usage", "used"),),
    **{f"ecc_{names[0]}_{since}_total": tuple(("ecc_errors", since, name) for name in names)
       for since in _SINCE for names in _ECC},
    **{f"ecc_{short}_{since}_total": (("ecc_errors", since, word, "total"),) for since in _SINCE for short, word in _BITS},
    "retired_pages_sbe_total": _pages("multiple_single_bit_retirement/retired_count", "single_bit_ecc"),
    "retired_pages_dbe_total": _pages("double_bit_retirement/retired_count", "double_bit_ecc"),
    "retired_pages_pending": _pages("pending_retirement", "pending_blacklist", "pending_page_blacklist"),
    "remapped_rows_correctable_total": _rows("remapped_row_corr", "correctable_error"),
    "remapped_rows_uncorrectable_total": _rows("remapped_row_unc", "uncorrectable_error"),
    "remapped_rows_pending": _rows("remapped_row_pending", "pending"),
    "remapped_rows_failed": _rows("remapped_row_failure", "remapping_failure_occurred"),
    "pcie_replays_total": (("pci", "replay_counter"), ("pci", "replays_since_reset")),
}  # fmt: skip

ATTRIBUTES: Mapping[str, tuple[Path, ...]] = {
    "vbios_version": (("vbios_version",),),
    "minor_number": (("minor_number",),),
    "gsp_firmware_version": (("gsp_firmware_version",),),
    "part_number": (("board_part_number",), ("gpu_part_number",)),
    "pcie_generation_max": ((*_XML_LINK, "pcie_gen", "max_link_gen"), (*_LINK, "pcie_generation", "max")),
    "pcie_width_lanes_max": ((*_XML_LINK, "link_widths", "max_link_width"), (*_LINK, "link_width", "max")),
}

# nvmlClocksEventReason*; the names end so in both forms.
REASONS: Mapping[str, int] = {
    "idle": 0x1, "applications_clocks_setting": 0x2, "sw_power_cap": 0x4, "hw_slowdown": 0x8, "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20, "hw_thermal_slowdown": 0x40, "hw_power_brake_slowdown": 0x80,
    "display_clock_setting": 0x100, "display_clocks_setting": 0x100,
}  # fmt: skip
REASONS_METRIC = "throttle_reasons_mask"
_REASONS = ("clocks_event_reasons", "clocks_throttle_reasons")
_NUMBER = re.compile(r"P?(-?\d{1,18}(?:\.\d{1,6})?)(?:x| .*)?$")
_WORDS = {"yes": 1.0, "no": 0.0}
_TROUBLES = (
    ("lost", re.compile(r"GPU is lost", re.IGNORECASE)),
    ("reset_required", re.compile(r"GPU requires (?:a )?re(?:set|start)", re.IGNORECASE)),
    ("unreadable", re.compile(r"Unknown Error|ERR!", re.IGNORECASE)),
)
_SAID: tuple[tuple[str, tuple[Path, ...], tuple[str, ...]], ...] = (
    ("memory_failed", COUNTERS["remapped_rows_failed"], ("yes",)),
    ("memory_pending", (*COUNTERS["remapped_rows_pending"], *COUNTERS["retired_pages_pending"]), ("yes",)),
    ("fabric_not_ready", (("fabric", "state"),), ("in progress", "not started")),
)
"""State → where the log says so, and with which words. A row or page that is pending waits for the GPU's reset."""
_COUNTED = {
    metric.removesuffix("_total").replace("_", " "): paths for metric, paths in COUNTERS.items()
    if metric.endswith("_volatile_total") and ("uncorrectable" in metric or "dbe" in metric)
}  # fmt: skip
"""What ECC could not correct since the driver was loaded. Aggregate counts are of the device's whole life, and no state."""
NO_HANDLE = "Unable to determine the device handle"  # the tool's words for a GPU that it lists and cannot open
TROUBLED_VALUES = 2  # that must read so: a single one may be the tool's own trouble with that value


def number(text: str | None) -> float | None:
    """Return the number before the unit; Yes is 1, No 0, and P8 is 8. None where there is none."""
    if text is None:
        return None
    found = _NUMBER.match(text)
    return float(found[1]) if found else _WORDS.get(text.lower())


def throttling(gpu: SmiGpu) -> int | None:
    """Return NVML's bit mask of the reasons that are active, None where the log has no such part."""
    mask: int | None = None
    for path, value in gpu.values.items():
        if path[0] in _REASONS and value in ("Active", "Not Active"):
            name = re.sub(r"^clocks_(?:event|throttle)_reason_(?:gpu_)?", "", path[-1])
            mask = (mask or 0) | (REASONS.get(name, 0) if value == "Active" else 0)
    return mask


def state(gpu: SmiGpu) -> tuple[str, str] | None:
    """Return how the GPU answered where not well, with the tool's words."""
    for word, pattern in _TROUBLES:
        if pattern.search(gpu.trouble):
            return word, gpu.trouble if word != "unreadable" else f"{NO_HANDLE}: {gpu.trouble}"
        values = [value for value in gpu.values.values() if pattern.search(value)]
        if len(values) >= TROUBLED_VALUES:
            return word, values[0]
    if gpu.trouble:
        return "unreadable", f"{NO_HANDLE}: {gpu.trouble}"
    if (gpu.get(("gpu_reset_status", "reset_required")) or "").lower() == "yes":
        return "reset_required", "Reset Required: Yes"
    for word, paths, texts in _SAID:
        if said := next((path for path in paths if gpu.values.get(path, "").lower() in texts), None):
            return word, f"{' / '.join(said).replace('_', ' ')}: {gpu.values[said]}"
    counts = ((name, number(gpu.get(*paths)) or 0) for name, paths in _COUNTED.items())
    counted = next(((name, count) for name, count in counts if count > 0), None)
    return ("memory_counted", f"{counted[0]}: {counted[1]:.0f}") if counted else None
