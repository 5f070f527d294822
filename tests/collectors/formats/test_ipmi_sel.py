"""The event log of a machine's management controller, as ipmitool and FreeIPMI print it."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest

from collectors.formats import Input, recognise
from collectors.formats.ipmi_sel import read
from collectors.records import KernelEvent

LIST = """\
   5 | 03/14/2026 | 22:10:41 | Power Supply #0x61 | Presence detected | Asserted
   6 | 03/15/2026 | 04:31:02 | Memory #0x53 | Uncorrectable ECC (UnCorrectable ECC |  DIMM_C2) | Asserted
   7 | 03/15/2026 | 04:31:04 | Processor #0x40 | IERR | Asserted
   8 | 03/15/2026 | 04:33:11 | System Boot Initiated | Initiated by hard reset | Asserted
"""
ELIST = """\
root@node-b7:~# ipmitool sel elist
   1 |  Pre-Init  |0000000019| Memory DIMM_A1 | Uncorrectable ECC | Asserted
  4f | 03/15/26 | 04:31:02 UTC | Memory DIMM_C2 | Uncorrectable ECC | Asserted
  50 | 03/15/26 | 04:31:03 UTC | Memory DIMM_C2 | Correctable ECC logging limit reached | Asserted
  51 | 03/15/26 | 04:31:09 UTC | Critical Interrupt PCIe Status | Bus Fatal Error | Asserted
  52 | 03/15/26 | 04:31:30 UTC | Processor CPU1 | Thermal Trip | Asserted
  53 | 03/15/26 | 04:39:30 UTC | Processor CPU1 | Thermal Trip | Deasserted
"""
FREE = """\
ID  | Date        | Time     | Name             | Type                     | Event
12  | Mar-15-2026 | 04:31:02 | DIMM_C2          | Memory                   | Uncorrectable memory error
13  | Mar-15-2026 | 04:31:40 | PS1 Status       | Power Supply             | Presence detected
"""


def of(text: str, node: str | None = None) -> list[KernelEvent]:
    """The events of a text."""
    data = text.encode()
    return list(read(Input("sel.txt", io.BytesIO(data), data, node=node)))


@pytest.mark.parametrize("text", [LIST, ELIST, FREE])
def test_an_event_log_is_recognised_by_its_columns(text: str) -> None:
    """By its content, whatever the file is called."""
    found = recognise(text.encode(), "notes.txt")
    assert found is not None
    assert found.name == "ipmi_sel"


@pytest.mark.parametrize("text", ["1 | 2 | 3\n4 | 5 | 6\n", "| time | rank |\n| 03/15/2026 | 4 |\n", ""])
def test_other_tables_are_not(text: str) -> None:
    """A number, a date and a time lead each line of it."""
    found = recognise(text.encode(), "notes.txt")
    assert found is None or found.name != "ipmi_sel"


def test_what_stops_a_machine_is_an_event_of_its_node() -> None:
    """Uncorrectable memory and a processor's internal error; what is switched on or started is none."""
    memory, processor = of(LIST, "gpu-04")

    assert (memory.event, memory.severity, memory.node) == ("mce", "uncorrected", "gpu-04")
    assert (processor.event, processor.severity) == ("mce", "fatal")
    assert memory.at == datetime(2026, 3, 15, 4, 31, 2, tzinfo=UTC).timestamp()
    assert memory.source == "sel.txt:2"


def test_a_prompt_names_the_machine_and_entries_without_a_time_or_that_ended_are_left_out() -> None:
    """What was logged before the clock was set may be years old."""
    found = of(ELIST)

    assert [(one.event, one.severity) for one in found] == [("mce", "uncorrected"), ("aer", "fatal"), ("mce", "fatal")]
    assert {one.node for one in found} == {"node-b7"}
    assert [one.severity for one in of(FREE)] == ["uncorrected"]


def test_entries_of_another_day_than_the_newest_are_left_out() -> None:
    """Such a log keeps the machine's whole life."""
    later = "   9 | 07/02/2026 | 10:00:00 | Power Unit #0x01 | Power off/down | Asserted\n"

    assert of(LIST + later) == []
