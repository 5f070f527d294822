"""Reports of nvidia-smi, as XML and as text, and what is read of them."""

from __future__ import annotations

import io
from array import array
from collections.abc import Iterable
from pathlib import Path

import analyzers.knowledge
from analyzers.knowledge import parse
from collectors.formats import Input
from collectors.formats.nvidia_smi.nvidia_smi import read
from collectors.records import Record, Samples

KNOWLEDGE = parse({path.stem: path.read_text() for path in Path(analyzers.knowledge.__file__).parent.glob("*.toml")})

STAMPED_AT = 1_790_848_800.0  # "Thu Oct  1 10:00:00 2026", as if it were UTC

HEAD = """
==============NVSMI LOG==============

Timestamp                                 : Thu Oct  1 10:00:00 2026
Driver Version                            : 550.54.15
CUDA Version                              : 12.4

Attached GPUs                             : {gpus}
"""

GPU = """\
GPU 00000000:{bus}:00.0
    Product Name                          : NVIDIA H100 80GB HBM3
    Serial Number                         : 165300000{index}
    GPU UUID                              : GPU-0000000{index}
    Minor Number                          : {index}
    VBIOS Version                         : 96.00.74.00.11
    GPU Reset Status
        Reset Required                    : No
    GSP Firmware Version                  : 550.54.15
    PCI
        Bus Id                            : 00000000:{bus}:00.0
        GPU Link Info
            PCIe Generation
                Max                       : 5
                Current                   : 5
            Link Width
                Max                       : 16x
                Current                   : 8x
        Replays Since Reset               : 3
    Performance State                     : P0
    Clocks Event Reasons
        Idle                              : Not Active
        SW Power Cap                      : Active
        HW Slowdown                       : Active
            HW Thermal Slowdown           : Active
            HW Power Brake Slowdown       : Not Active
    FB Memory Usage
        Total                             : 81559 MiB
        Used                              : 64000 MiB
    BAR1 Memory Usage
        Used                              : 1 MiB
    Utilization
        GPU                               : 97 %
        Memory                            : 41 %
    ECC Errors
        Volatile
            SRAM Correctable              : 0
            SRAM Uncorrectable Parity     : 0
            SRAM Uncorrectable SEC-DED    : 0
            DRAM Correctable              : 7
            DRAM Uncorrectable            : 0
        Aggregate
            DRAM Uncorrectable            : 9
    Retired Pages
        Single Bit ECC                    : N/A
        Double Bit ECC                    : N/A
        Pending Page Blacklist            : N/A
    Remapped Rows
        Correctable Error                 : 0
        Uncorrectable Error               : 2
        Pending                           : No
        Remapping Failure Occurred        : No
        Bank Remap Availability Histogram
            Max                           : 2560 bank(s)
    Temperature
        GPU Current Temp                  : 87 C
        GPU T.Limit Temp                  : 4 C
        Memory Current Temp               : 92 C
    GPU Power Readings
        Average Power Draw                : 650.00 W
        Instantaneous Power Draw          : 612.35 W
        Current Power Limit               : 700.00 W
    Module Power Readings
        Average Power Draw                : N/A
    Clocks
        Graphics                          : 1110 MHz
        SM                                : 1110 MHz
        Memory                            : 2619 MHz
    Max Clocks
        SM                                : 1980 MHz
    Processes
        GPU instance ID                   : N/A
        Compute instance ID               : N/A
        Process ID                        : 4242
            Type                          : C
            Name                          : /usr/bin/python3 : trainer
            Used GPU Memory               : 63000 MiB
        GPU instance ID                   : N/A
        Compute instance ID               : N/A
        Process ID                        : 4243
            Type                          : C
            Name                          : python
            Used GPU Memory               : 900 MiB
"""

XML = """\
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
	<timestamp>Thu Oct  1 10:00:00 2026</timestamp>
	<driver_version>550.54.15</driver_version>
	<cuda_version>12.4</cuda_version>
	<attached_gpus>1</attached_gpus>
	<gpu id="00000000:18:00.0">
		<product_name>NVIDIA H100 80GB HBM3</product_name>
		<serial>1653000000</serial>
		<uuid>GPU-00000000</uuid>
		<minor_number>0</minor_number>
		<vbios_version>96.00.74.00.11</vbios_version>
		<gsp_firmware_version>550.54.15</gsp_firmware_version>
		<pci>
			<pci_bus_id>00000000:18:00.0</pci_bus_id>
			<pci_gpu_link_info>
				<pcie_gen><max_link_gen>5</max_link_gen><current_link_gen>5</current_link_gen></pcie_gen>
				<link_widths><max_link_width>16x</max_link_width><current_link_width>8x</current_link_width></link_widths>
			</pci_gpu_link_info>
			<replay_counter>3</replay_counter>
		</pci>
		<performance_state>P0</performance_state>
		<clocks_event_reasons>
			<clocks_event_reason_gpu_idle>Not Active</clocks_event_reason_gpu_idle>
			<clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap>
			<clocks_event_reason_hw_slowdown>Active</clocks_event_reason_hw_slowdown>
			<clocks_event_reason_hw_thermal_slowdown>Active</clocks_event_reason_hw_thermal_slowdown>
		</clocks_event_reasons>
		<fb_memory_usage><total>81559 MiB</total><used>64000 MiB</used></fb_memory_usage>
		<utilization><gpu_util>97 %</gpu_util><memory_util>41 %</memory_util></utilization>
		<ecc_errors>
			<volatile>
				<sram_correctable>0</sram_correctable>
				<sram_uncorrectable_parity>0</sram_uncorrectable_parity>
				<sram_uncorrectable_secded>0</sram_uncorrectable_secded>
				<dram_correctable>7</dram_correctable>
				<dram_uncorrectable>0</dram_uncorrectable>
			</volatile>
			<aggregate><dram_uncorrectable>9</dram_uncorrectable></aggregate>
		</ecc_errors>
		<retired_pages>
			<double_bit_retirement><retired_count>N/A</retired_count></double_bit_retirement>
		</retired_pages>
		<remapped_rows>
			<remapped_row_corr>0</remapped_row_corr>
			<remapped_row_unc>2</remapped_row_unc>
			<remapped_row_pending>No</remapped_row_pending>
			<remapped_row_failure>No</remapped_row_failure>
		</remapped_rows>
		<temperature><gpu_temp>87 C</gpu_temp><memory_temp>92 C</memory_temp></temperature>
		<gpu_power_readings>
			<average_power_draw>650.00 W</average_power_draw>
			<instant_power_draw>612.35 W</instant_power_draw>
			<current_power_limit>700.00 W</current_power_limit>
		</gpu_power_readings>
		<clocks><graphics_clock>1110 MHz</graphics_clock><sm_clock>1110 MHz</sm_clock><mem_clock>2619 MHz</mem_clock></clocks>
		<processes>
			<process_info><pid>4242</pid><process_name>python</process_name><used_memory>63000 MiB</used_memory></process_info>
			<process_info><pid>4243</pid><process_name>python</process_name><used_memory>900 MiB</used_memory></process_info>
		</processes>
	</gpu>
</nvidia_smi_log>
"""


def text(gpus: int = 1) -> str:
    """A report in text of so many GPUs."""
    return HEAD.format(gpus=gpus) + "\n".join(
        GPU.format(index=index, bus=f"{0x18 + index:02X}") for index in range(gpus)
    )


def records(content: str | bytes, at: float | None = STAMPED_AT) -> list[Record]:
    """What the reader gives for a report."""
    data = content.encode() if isinstance(content, str) else content
    return list(read(Input("smi.log", io.BytesIO(data), data[:65536], node="gpu-0001", at=at)))


def values(given: Iterable[Record], scope: str = "gpu") -> dict[str, dict[str, float]]:
    """Every value of every device, by device and metric."""
    found: dict[str, dict[str, float]] = {}
    for one in given:
        if isinstance(one, Samples) and one.scope == scope:
            table: array[float] = array("q" if one.type == "<i8" else "f", one.values)
            for row, device in enumerate(one.devices):
                cells = table[row * len(one.metrics) : (row + 1) * len(one.metrics)]
                found.setdefault(device, {}).update(zip(one.metrics, cells, strict=True))
    return found
