"""nvidia-smi's own report, in its forms and versions: what is read of it, when it was made, and what bad reports cost."""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.model.topology import Topology
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.files.reading import read_input, read_paths
from collectors.formats import Damaged, Input, recognise
from collectors.records import NOT_READ, Device, DeviceState, Samples, Unread
from tests.support.smi_reports import GPU, HEAD, KNOWLEDGE, STAMPED_AT, XML, records, text, values


def test_a_report_gives_names_values_and_processes() -> None:
    """Of each GPU come its names, and its values in the unit printed, each under the heading that it stands below."""
    given = records(text(2))

    first = given[0]
    assert isinstance(first, Device)
    assert (first.id, first.index, first.pci, first.serial) == ("GPU-00000000", 0, "0000:18:00", "1653000000")
    assert first.attributes["driver_version"] == "550.54.15"
    assert first.attributes["vbios_version"] == "96.00.74.00.11"
    assert {one.node for one in given} == {"gpu-0001"}
    of_second = values(given)["GPU-00000001"]
    assert of_second == {
        "gpu_utilization_percent": 97, "memory_utilization_percent": 41, "power_watts": pytest.approx(612.35),
        "power_limit_watts": 700, "gpu_temperature_celsius": 87, "memory_temperature_celsius": 92, "sm_clock_mhz": 1110,
        "memory_clock_mhz": 2619, "performance_state": 0, "pcie_generation": 5, "pcie_width_lanes": 8,
        "memory_used_mib": 64000, "ecc_sram_correctable_volatile_total": 0, "ecc_sram_uncorrectable_parity_volatile_total": 0,
        "ecc_sram_uncorrectable_sec_ded_volatile_total": 0, "ecc_dram_correctable_volatile_total": 7,
        "ecc_dram_uncorrectable_volatile_total": 0, "ecc_dram_uncorrectable_aggregate_total": 9,
        "remapped_rows_correctable_total": 0, "remapped_rows_uncorrectable_total": 2, "remapped_rows_pending": 0,
        "remapped_rows_failed": 0, "pcie_replays_total": 3, "throttle_reasons_mask": 0x4 | 0x8 | 0x40,
    }  # fmt: skip
    assert values(given, "gpu_process")["GPU-00000001/4242"] == {"memory_used_mib": 63000}
    assert not [one for one in given if isinstance(one, DeviceState)]


def test_text_and_xml_say_the_same() -> None:
    """The XML of a GPU gives exactly the records that its text gives."""
    assert records(XML) == records(text())


def test_an_old_report_has_its_pages_and_bits() -> None:
    """A driver before Ampere counts single and double bits and retires pages."""
    old = HEAD.format(gpus=1) + (
        "GPU 00000000:D8:00.0\n"
        "    ECC Errors\n        Volatile\n            Single Bit\n                Total                     : 5\n"
        "            Double Bit\n                Total                     : 2\n"
        "    Retired Pages\n        Single Bit ECC                    : 60\n        Double Bit ECC                    : 5\n"
        "        Pending Page Blacklist            : Yes\n"
        "    Power Readings\n        Power Draw                        : 25.10 W\n"
        "    Clocks Throttle Reasons\n        Idle                              : Active\n"
    )

    assert values(records(old)) == {
        "0000:d8:00": {
            "ecc_sbe_volatile_total": 5, "ecc_dbe_volatile_total": 2, "retired_pages_sbe_total": 60,
            "retired_pages_dbe_total": 5, "retired_pages_pending": 1, "power_watts": pytest.approx(25.1),
            "throttle_reasons_mask": 1,
        }
    }  # fmt: skip


def test_a_real_report_of_retired_pages_is_read() -> None:
    """The real report of eight GPUs, with retired pages on some, gives every count as it is printed."""
    root = os.environ.get("FAULTHOUND_CORPUS")
    if not root:
        pytest.skip("FAULTHOUND_CORPUS is not set: the real report is not read")
    given = list(read_paths([Path(root) / "samples" / "bad_nvsmi8_output.txt"]))

    table = values(given)

    assert [one.pci for one in given if isinstance(one, Device)] == [f"000{number}:00:00" for number in range(1, 9)]
    assert table["0001:00:00"]["retired_pages_sbe_total"] == 60
    assert [int(row["retired_pages_dbe_total"]) for row in table.values()] == [5, 61, 0, 0, 0, 45, 0, 56]


@pytest.mark.parametrize(
    ("line", "state"),
    [
        (
            "Unable to determine the device handle for GPU 0000:19:00.0: GPU is lost.  Reboot the system to recover",
            "lost",
        ),
        ("Unable to determine the device handle for GPU0000:19:00.0: Unknown Error", "unreadable"),
        ("Unable to determine the device handle for GPU1: 0000:19:00.0: Unknown Error", "unreadable"),
    ],
)
def test_a_gpu_that_the_tool_cannot_open_has_a_state(line: str, state: str) -> None:
    """The one line that the tool prints for such a GPU is recognised, alone and in a report, and names its address."""
    for content in (f"{line}\n", f"{line}\n{text()}"):
        assert (found := recognise(content.encode(), "out.txt")) is not None
        assert found.name == "nvidia_smi"
        (reported,) = [one for one in records(content) if isinstance(one, DeviceState)]
        assert (reported.state, reported.pci, reported.node) == (state, "0000:19:00", "gpu-0001")
        assert reported.at is None  # the line says not when; the time of the file is no evidence


def test_a_report_of_a_lost_gpu_names_it_in_the_verdict() -> None:
    """A GPU whose values all read "GPU is lost" is the verdict's culprit, by the report alone."""
    fine, lost = GPU.format(index=0, bus="18"), GPU.format(index=1, bus="19")
    lost = "\n".join(
        line.partition(" : ")[0] + " : GPU is lost" if " : " in line else line for line in lost.splitlines()
    )

    given = records(HEAD.format(gpus=2) + fine + "\n" + lost)

    (reported,) = [one for one in given if isinstance(one, DeviceState)]
    assert (reported.state, reported.pci, reported.text) == ("lost", "0000:19:00", "GPU is lost")
    (culprit,) = judge(Window.build(given), Topology(), KNOWLEDGE).culprits
    assert (culprit.id, culprit.devices) == ("gpu-0001", ("0000:19:00",))


def test_one_value_that_failed_is_no_lost_gpu() -> None:
    """A single value that reads "Unknown Error" or "GPU is lost" is a hole and accuses nobody."""
    for said in ("Unknown Error", "GPU is lost"):
        given = records(text().replace("612.35 W", said).replace("650.00 W", "N/A"))

        assert not [one for one in given if isinstance(one, DeviceState)]
        assert "power_watts" not in values(given)["GPU-00000000"]


def test_a_needed_reset_is_told() -> None:
    """A report that says "Reset Required: Yes" gives that state."""
    (reported,) = [
        one
        for one in records(text().replace("Required                    : No", "Required                    : Yes"))
        if isinstance(one, DeviceState)
    ]

    assert reported.state == "reset_required"


@pytest.mark.parametrize(
    ("was", "now", "state"),
    [
        (
            "        Pending                           : No",
            "        Pending                           : Yes",
            "memory_pending",
        ),
        ("Failure Occurred        : No", "Failure Occurred        : Yes", "memory_failed"),
        ("Pending Page Blacklist            : N/A", "Pending Page Blacklist            : Yes", "memory_pending"),
        (
            "    Max Clocks",
            "    Fabric\n        State                             : In Progress\n    Max Clocks",
            "fabric_not_ready",
        ),
        ("DRAM Uncorrectable            : 9", "DRAM Uncorrectable            : 900", None),
        ("DRAM Uncorrectable            : 0", "DRAM Uncorrectable            : 4", "memory_counted"),
        ("SRAM Uncorrectable SEC-DED    : 0", "SRAM Uncorrectable SEC-DED    : 1", "memory_counted"),
    ],
)
def test_what_a_report_says_of_memory_and_fabric_is_a_state(was: str, now: str, state: str | None) -> None:
    """A row or page that waits, a remapping that failed, a fabric that is not ready and errors of late are states.

    A count of the device's whole life is none.
    """
    assert was in text()

    assert [one.state for one in records(text().replace(was, now)) if isinstance(one, DeviceState)] == [state] * bool(
        state
    )


@pytest.mark.parametrize(
    ("was", "now", "named"),
    [
        ("DRAM Uncorrectable            : 0", "DRAM Uncorrectable            : 4", True),
        ("DRAM Uncorrectable            : 9", "DRAM Uncorrectable            : 900", False),
    ],
)
def test_errors_since_the_driver_was_loaded_ask_for_a_test(was: str, now: str, named: bool) -> None:
    """The GPU is tested, nobody is evicted, and the words are those of people; counts of its whole life name nobody."""
    verdict = judge(Window.build(records(text().replace(was, now))), Topology(), KNOWLEDGE)

    assert bool(verdict.culprits) is named
    assert verdict.action.kind == ("probe" if named else "none")
    assert "gpu counted" not in verdict.action.why
    assert ("uncorrected memory errors" in verdict.action.why) is named


def test_a_head_without_its_columns_is_read() -> None:
    """A paste that lost the spaces before the colons is a report."""
    pasted = text().replace("Attached GPUs                             :", "Attached GPUs :")
    assert pasted != text()
    assert recognise(pasted.encode(), "smi.txt") == recognise(text().encode(), "smi.txt")


def test_a_report_among_other_lines_is_taken_out_of_them() -> None:
    """What stands before and after the report is read too, and the report ends where its layout does."""
    content = (
        f"iteration 7 loss 2.5\n{text()}\n  [   12.000001] a line of another tool\n[rank3]: ValueError: bad shape\n"
    )

    assert (found := recognise(content.encode(), "out.txt")) is None or found.name != "nvidia_smi"
    given = list(read_input(Input("out.txt", io.BytesIO(content.encode()), content.encode())))
    assert {type(one).__name__ for one in given} >= {"Device", "Samples", "LogEvent"}


@pytest.mark.parametrize(
    ("file_at", "at"),
    [
        (STAMPED_AT + 7 * 3600 + 2, STAMPED_AT + 7 * 3600 + 2),  # written seven hours west of Greenwich
        (STAMPED_AT + 40 * 86_400, STAMPED_AT),  # the file was copied weeks later
        (None, STAMPED_AT),
    ],
)
def test_the_file_s_time_holds_where_it_can(file_at: float | None, at: float) -> None:
    """The stamp has no zone: the file's own time is used where it can be the same instant, else the stamp as UTC."""
    assert {one.at for one in records(text(), at=file_at)} == {at}


def test_a_row_of_reports_is_a_row_of_ticks() -> None:
    """What `nvidia-smi -q -l` appends is read report by report, each at its own time."""
    later = text().replace("10:00:00", "10:00:05").replace(": 87 C", ": 91 C")

    given = [one for one in records(text() + later, at=STAMPED_AT) if isinstance(one, Samples) and one.type == "<f4"]

    assert [struct.unpack("<d", one.ticks)[0] - STAMPED_AT for one in given] == [0, 5]
    assert [values([one])["GPU-00000000"]["gpu_temperature_celsius"] for one in given] == [87, 91]


def test_a_hole_is_marked_as_one() -> None:
    """A counter that one GPU has and the other lacks is no zero there."""
    given = records(
        text(2).replace("Replays Since Reset               : 3", "Replays Since Reset               : N/A", 1)
    )

    assert values(given)["GPU-00000000"]["pcie_replays_total"] == NOT_READ
    assert values(given)["GPU-00000001"]["pcie_replays_total"] == 3


def test_entities_are_refused() -> None:
    """XML that declares entities, the way to make it explode, is damaged at once, with memory untouched."""
    bomb = '<!DOCTYPE nvidia_smi_log [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><nvidia_smi_log><gpu id="1">&b;</gpu>'

    with pytest.raises(Damaged, match="entity 'a'"):
        records(bomb)


def test_xml_that_is_cut_keeps_what_came(tmp_path: Path) -> None:
    """Of a document that ends in the middle the GPU so far is given, and the offset of the end is named."""
    file = tmp_path / "smi.xml"
    file.write_text(XML[: XML.index("<temperature>")])

    given = list(read_paths([file]))

    assert values(given)["GPU-00000000"]["remapped_rows_uncorrectable_total"] == 2
    assert isinstance(given[-1], Unread)
    assert given[-1].outcome == "damaged"
    assert f"{file.stat().st_size:,}" in given[-1].reason


def test_depth_is_bounded() -> None:
    """Elements nested without end are refused at the bound."""
    with pytest.raises(Damaged, match="deeper than 32"):
        records("<nvidia_smi_log>" + "<a>" * 100_000)


@settings(max_examples=150)
@given(st.data())
def test_a_mangled_report_never_hurts(data: st.DataObject) -> None:
    """Bytes cut out, doubled or exchanged anywhere give records or Damaged, and nothing else."""
    whole = data.draw(st.sampled_from([text(2).encode(), XML.encode()]))
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(len(whole), start + 400)))
    mangled = whole[:start] + data.draw(st.binary(max_size=30)) * data.draw(st.integers(0, 3)) + whole[end:]

    try:
        given = records(mangled)
    except Damaged:
        return
    assert all(isinstance(one, Device | DeviceState | Samples) for one in given)
