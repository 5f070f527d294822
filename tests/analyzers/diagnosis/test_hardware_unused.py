"""A GPU of a job's node that none of its ranks uses: another job's, or nobody's."""

from __future__ import annotations

import io

import pytest

from analyzers.model.finding import Finding
from analyzers.model.topology import Topology
from collectors.formats import Input
from collectors.formats.text_evidence import read
from collectors.records import Device, Members, Placement, Record
from tests.support.kernel_findings import judge, log, named

ADDRESSES = ("1b000", "1c000", "4f000", "50000")


def talk(*numbers: int) -> list[Record]:
    """What NCCL says of the GPU of each of these processes, and a hosts file of four ranks."""
    said = "".join(
        f"n1:{700 + i}:{800 + i} [{i}] NCCL INFO comm 0x5{i} rank {i} nranks 4 cudaDev {i} nvmlDev {i} busId {ADDRESSES[i]} "
        "commId 0x9c - Init COMPLETE\n"
        for i in numbers
    )
    said = (said + "[rank1]: torch.distributed.DistBackendError: NCCL error: unhandled cuda error\n").encode()
    hosts = Placement(ranks=Members.of(range(4)), nodes=("n1",) * 4, world_size=4, source="hosts.txt")
    return [hosts, *read(Input("job.log", io.BytesIO(said), said))]


def found(records: list[Record], address: str, code: int = 79) -> list[Finding]:
    """What an Xid on this GPU of the node comes to."""
    xid = f"NVRM: Xid (PCI:0000:{address}:00): {code}, pid=31, name=python3, GPU has fallen off the bus."
    return judge([*records, *log(f"[100.000000] {xid}")], Topology((0, 1, 2, 3), dict.fromkeys(range(4), "n1")))


def test_a_log_shows_the_gpus_of_its_job_once() -> None:
    """Several communicators are made on one GPU."""
    devices = [one for one in talk(0, 1, 1) if isinstance(one, Device)]

    assert [(one.node, one.pci) for one in devices] == [("n1", "0000:1b:00"), ("n1", "0000:1c:00")]


def test_a_gpu_that_no_rank_uses_brought_no_job_down() -> None:
    """Each of the four ranks is seen on a GPU of its own: the fifth is another job's, and may wait."""
    (rejected,) = found(talk(0, 1, 2, 3), "b1")

    assert rejected.suspects == ()
    assert ["no rank of the job uses this GPU" in one.why for one in rejected.rejected] == [True]


@pytest.mark.parametrize(
    ("numbers", "address", "code"),
    [((0, 1, 2, 3), "4f", 79), ((0, 1, 2), "b1", 79), ((), "b1", 79), ((0, 1, 2, 3), "b1", 74)],
)
def test_a_gpu_that_may_be_the_jobs_is_suspected(numbers: tuple[int, ...], address: str, code: int) -> None:
    """One of its own, one of a node on which a rank was not seen, or a link, whose other end may be one of its own."""
    assert named(found(talk(*numbers), address, code)) == [("device", "n1", f"0000:{address}:00")]
