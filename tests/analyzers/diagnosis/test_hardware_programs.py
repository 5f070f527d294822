"""An Xid that follows a program's own fault accuses no GPU; by itself it does."""

from __future__ import annotations

import pytest

from analyzers.model.topology import Topology
from collectors.records import StackDump
from tests.analyzers.diagnosis.test_hardware import xid
from tests.support.kernel_findings import judge, log, named

SWITCH_TIMEOUT = "pid=900, name=python, Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005"
PROGRAM = "pid=900, name=python, Graphics SM Warp Exception on (GPC 7, TPC 7, SM 0): Illegal Instruction Parameter"


@pytest.mark.parametrize("code", [13, 31])
def test_a_context_that_a_program_broke_is_no_fault_of_the_gpu(code: int) -> None:
    """An Xid 109 after the program's own Xid on the same GPU asks for no reset: the program is what is named."""
    found = judge(log(xid(100, code, PROGRAM), xid(105, 109, SWITCH_TIMEOUT)))
    assert [(one.cause, one.fault_class) for one in found] == [("code", "xid_of_program")]


def test_a_program_s_xid_alone_names_the_program() -> None:
    """One such line decides the GPU and whose fault it is; several of one moment are one claim."""
    found = judge(log(xid(100, 31, PROGRAM), xid(130, 31, PROGRAM, pci="0000:1b:00")))
    assert [(one.cause, len(one.suspects)) for one in found] == [("code", 1)]
    assert "0000:1b:00, 0000:9b:00" in found[0].suspects[0].why


def test_program_s_xids_of_different_hours_name_nothing() -> None:
    """A machine's log of a day holds the faults of many programs."""
    assert judge(log(xid(100, 31, PROGRAM), xid(9000, 13, PROGRAM, pci="0000:1b:00"))) == []


@pytest.mark.parametrize(
    "before",
    [(), (xid(100, 13, PROGRAM, pci="0000:1b:00"),), (xid(10, 13, PROGRAM),), (xid(104, 45, "pid=900"),)],
    ids=["alone", "another GPU", "long before", "an echo before"],
)
def test_a_context_switch_that_times_out_by_itself_is_the_gpu_s(before: tuple[str, ...]) -> None:
    """Without a program's Xid right before it on this GPU, an Xid 109 is the device's."""
    found = judge(log(*before, xid(105, 109, SWITCH_TIMEOUT)))
    assert named(found) == [("device", "n1", "0000:9b:00")]


def test_the_driver_s_demand_for_a_reset_outranks_the_program() -> None:
    """An Xid 154 that names a reset holds, whatever led to it."""
    lines = [
        xid(100, 13, PROGRAM),
        xid(105, 109, SWITCH_TIMEOUT),
        xid(106, 154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"),
    ]
    assert named(judge(log(*lines))) == [("device", "n1", "0000:9b:00")]


@pytest.mark.parametrize(
    ("process", "ranks", "is_named"),
    [
        ("blender", (0, 1), False),
        ("blender", (0,), True),  # it may be rank 1's, whose process nobody saw
        ("python3", (0, 1), True),
        ("nvidia-smi", (0, 1), True),
        ("'<unknown>'", (0, 1), True),
    ],
)
def test_the_xid_of_another_program_on_a_node_whose_ranks_are_known_is_not_the_jobs(
    process: str, ranks: tuple[int, ...], *, is_named: bool
) -> None:
    """A service of the host meets a lost GPU as well, and a name that is the job's may be a helper's."""
    shape = Topology((0, 1), {0: "n1", 1: "n1"})
    stacks = [StackDump(rank=rank, pid=100 + rank, node="n1") for rank in ranks]
    lost = log(xid(100, 79, f"pid=555, name={process}, GPU has fallen off the bus."))
    found = judge([*stacks, *lost], shape)

    assert (named(found) == [("device", "n1", "0000:9b:00")]) is is_named
    assert any("none of the job's" in one.why for each in found for one in each.rejected) is not is_named
