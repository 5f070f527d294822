"""The values read of a GPU at every tick, in NVML's units: each call and its metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from collectors.live.sources.nvml_library import DeviceCalls, number

Numbers = tuple[int | None, ...]


def _one(value: Any) -> Numbers:
    return (number(value),)


def _members(*names: str) -> Callable[[Any], Numbers]:
    return lambda value: tuple(number(getattr(value, name, None)) for name in names)


@dataclass(frozen=True, slots=True)
class Call:
    """One call and the metrics in its value. ``functions``: its names in later and earlier drivers."""

    metrics: tuple[str, ...]
    functions: tuple[str, ...]
    arguments: tuple[str, ...] = ()  # names of constants
    take: Callable[[Any], Numbers] = _one


_UTILIZATION = ("gpu_utilization_percent", "memory_utilization_percent")
GAUGES: tuple[Call, ...] = (
    Call(_UTILIZATION, ("nvmlDeviceGetUtilizationRates",), take=_members("gpu", "memory")),
    Call(("power_milliwatts",), ("nvmlDeviceGetPowerUsage",)),
    Call(("power_limit_milliwatts",), ("nvmlDeviceGetEnforcedPowerLimit",)),
    Call(("gpu_temperature_celsius",), ("nvmlDeviceGetTemperature",), ("NVML_TEMPERATURE_GPU",)),
    Call(("sm_clock_mhz",), ("nvmlDeviceGetClockInfo",), ("NVML_CLOCK_SM",)),
    Call(("memory_clock_mhz",), ("nvmlDeviceGetClockInfo",), ("NVML_CLOCK_MEM",)),
    Call(("performance_state",), ("nvmlDeviceGetPowerState",)),
    Call(("pcie_generation",), ("nvmlDeviceGetCurrPcieLinkGeneration",)),
    Call(("pcie_width_lanes",), ("nvmlDeviceGetCurrPcieLinkWidth",)),
)
GAUGE_FIELDS: Mapping[str, str] = {"memory_temperature_celsius": "NVML_FI_DEV_MEMORY_TEMP"}

COUNTERS: tuple[Call, ...] = (
    # The second form, which drivers have since 510, leaves out what the driver reserves for itself.
    Call(("memory_used_bytes",), ("nvmlDeviceGetMemoryInfo",), take=_members("used")),
    Call(("memory_used_bytes",), ("nvmlDeviceGetMemoryInfo",), ("nvmlMemory_v2",), take=_members("used")),
    # A bit mask, NVML's nvmlClocksEventReason*: a float cannot hold it.
    Call(
        ("throttle_reasons_mask",), tuple(f"nvmlDeviceGetCurrentClocks{word}Reasons" for word in ("Event", "Throttle"))
    ),
    *(
        Call(
            (f"ecc_{short}_{since}_total",),
            ("nvmlDeviceGetTotalEccErrors",),
            (f"NVML_MEMORY_ERROR_TYPE_{word}", f"NVML_{since.upper()}_ECC"),
        )
        for short, word in (("sbe", "CORRECTED"), ("dbe", "UNCORRECTED"))
        for since in ("volatile", "aggregate")
    ),
    Call(
        tuple(f"remapped_rows_{what}" for what in ("correctable_total", "uncorrectable_total", "pending", "failed")),
        ("nvmlDeviceGetRemappedRows",),
        take=lambda value: tuple(number(int(each)) for each in value),
    ),
    Call(("pcie_replays_total",), ("nvmlDeviceGetPcieReplayCounter",)),
    Call(("energy_millijoules_total",), ("nvmlDeviceGetTotalEnergyConsumption",)),
)
COUNTER_FIELDS: Mapping[str, str] = {
    "pcie_correctable_errors_total": "NVML_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS",
    "pcie_nonfatal_errors_total": "NVML_FI_DEV_PCIE_COUNT_NON_FATAL_ERROR",
    "pcie_fatal_errors_total": "NVML_FI_DEV_PCIE_COUNT_FATAL_ERROR",
    "recovery_action": "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION",  # 0 none, 1 reset, 2 reboot, 3 and 4 drain
}

# Of one NVLink. The first five have calls of their own up to Hopper; NVLink 5 counts by field.
LINK_ERRORS: Mapping[str, str] = {
    "replay_errors_total": "NVML_NVLINK_ERROR_DL_REPLAY",
    "recovery_errors_total": "NVML_NVLINK_ERROR_DL_RECOVERY",
    "crc_flit_errors_total": "NVML_NVLINK_ERROR_DL_CRC_FLIT",
    "crc_data_errors_total": "NVML_NVLINK_ERROR_DL_CRC_DATA",
    "ecc_data_errors_total": "NVML_NVLINK_ERROR_DL_ECC_DATA",
}
LINK_FIELDS: Mapping[str, str] = {
    "receive_errors_total": "NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS",
    "local_integrity_errors_total": "NVML_FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS",
    "link_recoveries_total": "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS",
    "effective_errors_total": "NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS",
    "symbol_errors_total": "NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS",
}

GAUGE_METRICS = (*(name for call in GAUGES for name in call.metrics), *GAUGE_FIELDS)
COUNTER_METRICS = (*dict.fromkeys(name for call in COUNTERS for name in call.metrics), *COUNTER_FIELDS)
LINK_METRICS = ("active", *LINK_ERRORS, *LINK_FIELDS)


def read(asking: DeviceCalls) -> dict[str, int | None]:
    """Read all values of one GPU; a metric that it does not have is None or missing."""
    values: dict[str, int | None] = {}
    for call in (*GAUGES, *COUNTERS):
        values.update(zip(call.metrics, _asked(asking, call), strict=False))
    named = {**GAUGE_FIELDS, **COUNTER_FIELDS}
    by_field = asking.fields([(field, 0) for field in named.values()])
    values.update({metric: by_field.get(field) for metric, field in named.items()})
    return values


def _asked(asking: DeviceCalls, call: Call) -> Numbers:
    arguments = [asking.nvml.constant(name) for name in call.arguments]
    for function in call.functions:
        if None not in arguments and (value := asking.call(function, *arguments)) is not None:
            return call.take(value)
    return ()


def read_link(asking: DeviceCalls, link: int) -> list[int | None]:
    """Read one NVLink, the values in the order of ``LINK_METRICS``."""
    active = asking.number("nvmlDeviceGetNvLinkState", link)
    errors = [
        asking.number("nvmlDeviceGetNvLinkErrorCounter", link, asking.nvml.constant(name))
        for name in LINK_ERRORS.values()
    ]
    by_field = asking.fields([(field, link) for field in LINK_FIELDS.values()])
    return [active, *errors, *(by_field.get(field) for field in LINK_FIELDS.values())]
