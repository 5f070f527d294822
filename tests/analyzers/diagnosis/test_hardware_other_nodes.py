"""A fault of a node that is not of the job, where the hosts of all its ranks are listed, is rejected; else it counts."""

from __future__ import annotations

import pytest

from analyzers.model.finding import Finding
from analyzers.model.topology import infer
from analyzers.model.window import Window
from collectors.records import LogEvent, Members, Placement, ProcessState, Record
from tests.analyzers.diagnosis.test_hardware import xid
from tests.support.kernel_findings import KNOWLEDGE, analyze, log, named

LOST = xid(100, 79, "pid=555, name=python, GPU has fallen off the bus.")


def hosts(*names: str, world_size: int | None = None) -> Placement:
    """A list with the host of each rank."""
    ranks = Members.of(range(len(names)))
    return Placement(source="hosts.txt", ranks=ranks, nodes=names, world_size=world_size or len(names))


def judged(*records: Record) -> list[Finding]:
    """What the analyzer claims, with the job's shape as the records give it."""
    window = Window.build(records)
    return list(analyze(window, infer(window), KNOWLEDGE))


@pytest.mark.parametrize(
    ("host", "is_named"),
    [
        ("gpu-77", False),
        ("gpu-77.cluster.local", False),
        ("gpu-02", True),
        ("gpu-02.cluster.local", True),
        ("GPU-02", True),
        ("ip-10-0-3-7", True),  # it may be a second name of one of them
        (None, True),
    ],
)
def test_a_fault_of_a_node_without_a_rank_is_rejected(host: str | None, *, is_named: bool) -> None:
    """A short name and a long one are one host, and names of another form do not compare."""
    found = judged(hosts("gpu-01", "gpu-01", "gpu-02", "gpu-02"), *log(LOST, node=host, name="dmesg.log"))

    assert bool(named(found)) is is_named
    assert any("no node of this job" in one.why for each in found for one in each.rejected) is not is_named


def test_long_names_in_the_list_are_the_short_ones_of_a_log() -> None:
    """The list has full names, and the kernel log a first label."""
    listed = hosts("gpu-01.a.example", "gpu-02.a.example")

    assert named(judged(listed, *log(LOST, node="gpu-02"))) == [("device", "gpu-02.a.example", "0000:9b:00")]
    assert named(judged(listed, *log(LOST, node="gpu-77"))) == []


def test_addresses_compare_with_addresses_only() -> None:
    """The first number of an address is no host's name."""
    listed = hosts("10.0.0.1", "10.0.0.2")

    assert named(judged(listed, *log(LOST, node="10.0.0.9"))) == []
    assert len(named(judged(listed, *log(LOST, node="gpu-77")))) == 1


@pytest.mark.parametrize(
    "beside",
    [
        ProcessState(pid=9, rank=0, command="env WORLD_SIZE=8 python train.py"),
        LogEvent(event="exit", rank=6, source="job.log:9"),
        LogEvent(event="node_failure", node="gpu-77", source="job.log:9"),
        LogEvent(event="exit", rank=1, node="gpu-77", source="job.log:9"),
    ],
    ids=["more ranks are stated", "a higher rank is seen", "the job names it", "a rank wrote there"],
)
def test_a_list_that_is_not_whole_excludes_nothing(beside: Record) -> None:
    """Where ranks have no host in the list, or the job's lines name the node, it may be one of the job."""
    found = judged(hosts("gpu-01", "gpu-01", "gpu-02", "gpu-02"), beside, *log(LOST, node="gpu-77"))

    assert [node for _, node, _ in named(found)] == ["gpu-77"]


def test_a_placement_that_states_no_number_of_ranks_excludes_nothing() -> None:
    """Names that were made up for blocks of ranks are no hosts."""
    made_up = Placement(source="--ranks-per-node", ranks=Members.of(range(4)), nodes=("node-0",) * 2 + ("node-1",) * 2)

    assert len(named(judged(made_up, *log(LOST, node="node-7")))) == 1


def test_names_that_a_kernel_log_of_the_job_shares_with_the_list_compare_in_any_form() -> None:
    """The log of one host shows that kernel logs use the names of the list."""
    listed = hosts("node-a", "node-b")
    own = log("[90.000000] nvidia: module loaded", xid(95, 45, "pid=700"), node="node-a", name="a.log")

    assert len(named(judged(listed, *log(LOST, node="spare")))) == 1
    assert named(judged(listed, *own, *log(LOST, node="spare"))) == []
