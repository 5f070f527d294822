"""What a path says about whose its file is, and where it keeps silent."""

import pytest

from collectors.files.path_owner import Whose, trailing_number, whose

SAID = {
    "dumps/_dump_7": Whose(rank=7),
    "nccl_trace_rank_7": Whose(rank=7),
    "/tmp/comm_lib_trace_rank_4095": Whose(rank=4095),
    "nccl_trace_rank_gpu-0413_7": Whose(rank=7, node="gpu-0413"),
    "nccl_trace_rank_ip-10-0-3-4.ec2.internal_12": Whose(rank=12, node="ip-10-0-3-4.ec2.internal"),
    "rank7.json": Whose(rank=7),
    "rank_7/stderr.txt": Whose(rank=7),
    "gpu-0413/rank12_pyspy.json": Whose(rank=12, node="gpu-0413"),
    "stacks_rank3.txt": Whose(rank=3),
    "dumps.tar:a/_dump_3": Whose(rank=3),
    "dumps.tar.gz:node0007/global_rank=3.json.zst": Whose(rank=3, node="node0007"),
    "attempt_2/rank3.log": Whose(rank=3, attempt=2),
    "run/attempt_0/3/stderr.log": Whose(attempt=0, local_rank=3),
    "logs/local_rank_3.log": Whose(),
    "node_rank0.log": Whose(),
    "dmesg_node0413.txt": Whose(node="node0413"),
    "gpu-0413.log": Whose(node="gpu-0413"),
    "dgx-a100-07/kern.log": Whose(node="dgx-a100-07"),
    "node=c17/dmesg": Whose(node="c17"),
    "sel_node-b12.txt": Whose(node="node-b12"),
}
SILENT = [
    "job-1234/x.json",
    "rank3/rank4.json",
    "rank0-7.log",
    "rank3of8.log",
    "2026-11-21/kern.log",
    "gpu0/nvidia-smi.txt",
    "sel_gpu-a100.txt",
    "step_100/loss.txt",
    "worker-3/stderr.log",
    "frank7.txt",
    "",
]


@pytest.mark.parametrize("source", SAID)
def test_a_path_says_whose_its_file_is(source: str) -> None:
    """Rank, node, attempt and local rank are read off the names that the tools write."""
    assert whose(source) == SAID[source]


@pytest.mark.parametrize("source", SILENT)
def test_an_ambiguous_path_says_nothing(source: str) -> None:
    """A path that says two things, or a thing that is no rank or machine, is not guessed at."""
    assert whose(source) == Whose()


def test_a_dump_of_any_prefix_ends_in_its_rank() -> None:
    """PyTorch appends the rank to whatever prefix the user chose; a date is no rank."""
    assert trailing_number("/scratch/fr_12") == 12
    assert trailing_number("a.tar:mine12.pkl") == 12
    assert trailing_number("dump-20261121.json") is None
    assert trailing_number("dump") is None
