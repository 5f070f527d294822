"""What the sources call one and the same reading of a GPU (NVML, ``nvidia-smi -q``, dcgm-exporter), and of an InfiniBand port."""

from __future__ import annotations

from collections.abc import Mapping

PORTS = "infiniband"
SCOPES = frozenset({"gpu", "dcgm", "nvlink", PORTS})

UTIL, CLOCK, MASK, POWER, LIMIT, TEMPERATURE = (
    "gpu_utilization_percent", "sm_clock_mhz", "throttle_reasons_mask", "power_watts", "power_limit_watts",
    "gpu_temperature_celsius",
)  # fmt: skip
STATE, RATE = "state", "rate_megabits_per_second"  # of a port
GENERATION, WIDTH = "pcie_generation", "pcie_width_lanes"
MOST_OF = {GENERATION: "pcie_generation_max", WIDTH: "pcie_width_lanes_max"}
"""Reading of the link → its most, by the driver: what the GPU and its slot can do together."""

GAUGES: Mapping[str, tuple[str, float]] = {
    **{name: (name, 1.0) for name in (UTIL, CLOCK, MASK, POWER, LIMIT, TEMPERATURE, GENERATION, WIDTH, STATE, RATE)},
    "power_milliwatts": (POWER, 1e-3),
    "power_limit_milliwatts": (LIMIT, 1e-3),
    "DCGM_FI_DEV_GPU_UTIL": (UTIL, 1.0),
    "DCGM_FI_DEV_SM_CLOCK": (CLOCK, 1.0),
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": (MASK, 1.0),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": (MASK, 1.0),
    "DCGM_FI_DEV_POWER_USAGE": (POWER, 1.0),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": (LIMIT, 1.0),
    "DCGM_FI_DEV_GPU_TEMP": (TEMPERATURE, 1.0),
    "DCGM_FI_DEV_PCIE_LINK_GEN": (GENERATION, 1.0),
    "DCGM_FI_DEV_PCIE_LINK_WIDTH": (WIDTH, 1.0),
    "DCGM_FI_DEV_PCIE_MAX_LINK_GEN": (MOST_OF[GENERATION], 1.0),
    "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": (MOST_OF[WIDTH], 1.0),
}
"""Metric → the reading, and what a unit of it is in the reading's unit."""

UNCORRECTED, CORRECTED, REMAPPED, REPLAYS, NVLINK, RECOVERIES, PORT, PORT_RECOVERIES = (
    "uncorrected", "corrected", "remapped", "replays", "nvlink", "recoveries", "port", "port_recoveries",
)  # fmt: skip
COUNTERS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "ecc_dbe_volatile_total", "ecc_sram_uncorrectable_volatile_total", "ecc_dram_uncorrectable_volatile_total",
            "ecc_sram_uncorrectable_parity_volatile_total", "ecc_sram_uncorrectable_sec_ded_volatile_total",
            "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        ),
        UNCORRECTED,
    ),
    **dict.fromkeys(
        (
            "ecc_sbe_volatile_total", "ecc_sram_correctable_volatile_total", "ecc_dram_correctable_volatile_total",
            "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        ),
        CORRECTED,
    ),
    "remapped_rows_uncorrectable_total": REMAPPED,
    "remapped_rows_correctable_total": REMAPPED,
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": REMAPPED,
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": REMAPPED,
    "pcie_replays_total": REPLAYS,
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": REPLAYS,
    **dict.fromkeys(
        (
            "replay_errors_total", "crc_flit_errors_total", "crc_data_errors_total", "receive_errors_total",
            "local_integrity_errors_total", "effective_errors_total", "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
            "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
        ),
        NVLINK,
    ),
    **dict.fromkeys(
        ("recovery_errors_total", "link_recoveries_total", "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL"), RECOVERIES
    ),
    **dict.fromkeys(("symbol_error_total", "local_link_integrity_errors_total", "port_rcv_errors_total"), PORT),
    **dict.fromkeys(("link_error_recovery_total", "link_downed_total"), PORT_RECOVERIES),
}  # fmt: skip
"""Counter → the kind of error. Counts of a lifetime (aggregate ECC) are none of these, nor an NVLink's symbol errors, which FEC
expects, nor what a port sent again: its peers lost that as well as it."""

IDLE, CLOCK_SETTING, POWER_CAP = 0x01, 0x02, 0x04
MASK_BITS_END = 1 << 53  # no mask of reasons is as large: such a number, or one below zero, is a damaged sample
HARDWARE, WARM, HOT, BRAKE = 0x08, 0x20, 0x40, 0x80
LOWERED = HARDWARE | WARM | HOT | BRAKE
REASONS: Mapping[int, str] = {
    HOT: "for heat, by its hardware", BRAKE: "by the power brake", WARM: "for heat, by the driver", HARDWARE: "by its hardware",
}  # fmt: skip
"""Bit of nvmlClocksEventReasons → who lowers the clocks; the most definite first."""
