"""Which values of ``nvidia-smi -q`` are read, under which names its forms and versions have them, and in which unit.

The metrics are named as the live collector names them, where the unit is the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from collectors.formats.nvidia_smi.smi_tree import Path, SmiGpu

_POWER, _OLD_POWER = "gpu_power_readings", "power_readings"
_LINK, _XML_LINK = ("pci", "gpu_link_info"), ("pci", "pci_gpu_link_info")

GAUGES: Mapping[str, tuple[Path, ...]] = {
    "gpu_utilization_percent": (("utilization", "gpu"), ("utilization", "gpu_util")),
    "memory_utilization_percent": (("utilization", "memory"), ("utilization", "memory_util")),
    "power_watts": (
        (_POWER, "instantaneous_power_draw"),
        (_POWER, "instant_power_draw"),
        (_POWER, "power_draw"),
        (_POWER, "average_power_draw"),
        (_OLD_POWER, "power_draw"),
    ),
    "power_limit_watts": (
        (_POWER, "current_power_limit"),
        (_OLD_POWER, "enforced_power_limit"),
        (_OLD_POWER, "power_limit"),
    ),
    "gpu_temperature_celsius": (("temperature", "gpu_current_temp"), ("temperature", "gpu_temp")),
    "memory_temperature_celsius": (("temperature", "memory_current_temp"), ("temperature", "memory_temp")),
    "sm_clock_mhz": (("clocks", "sm"), ("clocks", "sm_clock")),
    "memory_clock_mhz": (("clocks", "memory"), ("clocks", "mem_clock")),
    "performance_state": (("performance_state",),),
    "pcie_generation": ((*_LINK, "pcie_generation", "current"), (*_XML_LINK, "pcie_gen", "current_link_gen")),
    "pcie_width_lanes": ((*_LINK, "link_width", "current"), (*_XML_LINK, "link_widths", "current_link_width")),
}

_ECC = (
    ("sram_correctable",),
    ("sram_uncorrectable",),
    ("sram_uncorrectable_parity",),
    ("sram_uncorrectable_sec_ded", "sram_uncorrectable_secded"),
    ("dram_correctable",),
    ("dram_uncorrectable",),
)
COUNTERS: Mapping[str, tuple[Path, ...]] = {
    "memory_used_mib": (("fb_memory_usage", "used"),),
    **{
        f"ecc_{names[0]}_{since}_total": tuple(("ecc_errors", since, name) for name in names)
        for since in ("volatile", "aggregate")
        for names in _ECC
    },
    # Before Ampere.
    **{
        f"ecc_{short}_{since}_total": (("ecc_errors", since, word, "total"),)
        for since in ("volatile", "aggregate")
        for short, word in (("sbe", "single_bit"), ("dbe", "double_bit"))
    },
    "retired_pages_sbe_total": (
        ("retired_pages", "single_bit_ecc"),
        ("retired_pages", "multiple_single_bit_retirement", "retired_count"),
    ),
    "retired_pages_dbe_total": (
        ("retired_pages", "double_bit_ecc"),
        ("retired_pages", "double_bit_retirement", "retired_count"),
    ),
    "retired_pages_pending": (
        ("retired_pages", "pending_page_blacklist"),
        ("retired_pages", "pending_blacklist"),
        ("retired_pages", "pending_retirement"),
    ),
    "remapped_rows_correctable_total": (("remapped_rows", "correctable_error"), ("remapped_rows", "remapped_row_corr")),
    "remapped_rows_uncorrectable_total": (
        ("remapped_rows", "uncorrectable_error"),
        ("remapped_rows", "remapped_row_unc"),
    ),
    "remapped_rows_pending": (("remapped_rows", "pending"), ("remapped_rows", "remapped_row_pending")),
    "remapped_rows_failed": (
        ("remapped_rows", "remapping_failure_occurred"),
        ("remapped_rows", "remapped_row_failure"),
    ),
    "pcie_replays_total": (("pci", "replays_since_reset"), ("pci", "replay_counter")),
}

ATTRIBUTES: Mapping[str, tuple[Path, ...]] = {
    "vbios_version": (("vbios_version",),),
    "minor_number": (("minor_number",),),
    "gsp_firmware_version": (("gsp_firmware_version",),),
    "part_number": (("board_part_number",), ("gpu_part_number",)),
}

# nvmlClocksEventReason*; the names end so in both forms.
REASONS: Mapping[str, int] = {
    "idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clock_setting": 0x100,
    "display_clocks_setting": 0x100,
}
REASONS_METRIC = "throttle_reasons_mask"
_REASONS = ("clocks_event_reasons", "clocks_throttle_reasons")
_NUMBER = re.compile(r"P?(-?\d{1,18}(?:\.\d{1,6})?)(?:x| .*)?$")
_WORDS = {"yes": 1.0, "no": 0.0}
_TROUBLES = (
    ("lost", re.compile(r"GPU is lost", re.IGNORECASE)),
    ("reset_required", re.compile(r"GPU requires (?:a )?re(?:set|start)", re.IGNORECASE)),
    ("unreadable", re.compile(r"Unknown Error|ERR!", re.IGNORECASE)),
)
TROUBLED_VALUES = 2  # that must say so: a single one may be the tool's own trouble with that value


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
            return word, gpu.trouble
        said = [value for value in gpu.values.values() if pattern.search(value)]
        if len(said) >= TROUBLED_VALUES:
            return word, said[0]
    if gpu.trouble:
        return "unreadable", gpu.trouble
    if (gpu.get(("gpu_reset_status", "reset_required")) or "").lower() == "yes":
        return "reset_required", "Reset Required: Yes"
    return None
