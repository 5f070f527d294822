"""Errors that a line states in the words of a closed vocabulary, whatever program wrote it."""

from __future__ import annotations

import io
import tomllib
from pathlib import Path

import pytest

from collectors.files.reading import read_input
from collectors.formats import Input
from collectors.formats.job_log import components, vocabularies
from collectors.records import LogEvent

STATED = (
    ("2026-03-02 08:11:40,201 ERROR blobs.cache - put part 17: write /scratch/a.bin: no space left on device", "ENOSPC"),
    ('time="2026-03-02T08:11:40Z" level=error msg="sync failed" err="read /mnt/w/7.idx: stale file handle"', "ESTALE"),
    ('{"level":"error","ts":"2026-03-02T08:11:40Z","msg":"mount check failed: transport endpoint is not connected"}', "ENOTCONN"),
    ("E0302 08:11:40.201 77 arena.cc:88] reserve failed: Cannot allocate memory", "ENOMEM"),
    ("gather[3]: fatal: cudaStreamSynchronize: an illegal memory access was encountered", "cudaErrorIllegalAddress"),
    ("Engine.cpp:70: launch of attend_fwd failed with musaErrorLaunchFailure", "cudaErrorLaunchFailure"),
    ("solver: call to cuMemAlloc returned error 2 (CUDA_ERROR_OUT_OF_MEMORY): Out of memory", "cudaErrorMemoryAllocation"),
    ("Check failed: code == cudaSuccess (74 vs. 0)  misaligned address", "cudaErrorMisalignedAddress"),
    ("plugin start: error: nvml: Driver/library version mismatch", "NVML_ERROR_LIB_RM_VERSION_MISMATCH"),
    ("ERROR gemm.rs:112 cublas status: CUBLAS_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_ALLOC_FAILED"),
    ("xfer.c:201 poll failed: wc status IBV_WC_RETRY_EXC_ERR, qp 0x71", "IBV_WC_RETRY_EXC_ERR"),
    ("kv_move ERROR: ucp_ep_flush_nbx: Endpoint timeout", "UCS_ERR_ENDPOINT_TIMEOUT"),
    ("pool: fi_av_insert failed: FI_EHOSTUNREACH", "EHOSTUNREACH"),
    ("stage 2: error: rpc error: code = DeadlineExceeded desc = context deadline exceeded", "DEADLINE_EXCEEDED"),
    ("runner: zeCommandQueueSynchronize failed: ZE_RESULT_ERROR_DEVICE_LOST", "ZE_RESULT_ERROR_DEVICE_LOST"),
    ("launch: synLaunch failed, status = synOutOfDeviceMemory", "synOutOfDeviceMemory"),
    ("model store ERROR: entry w.3: CRC-32 check failed", "damaged_file"),
    ("terminate: error synchronizing the CUDA context: invalid error code (700) at ctx.cpp:104", "cudaErrorIllegalAddress"),
    ("fatal: init: synStatus=8 [Device not found]", "synNoDeviceFound"),
    ("error: vkQueueSubmit: VK_ERROR_DEVICE_LOST", "VK_ERROR_DEVICE_LOST"),
    ("fatal: resolve head-0: Temporary failure in name resolution", "EAI_AGAIN"),
    ("ERROR fetch shard 3: <Error><Code>SlowDown</Code><Message>", "SlowDown"),
    ("ERROR gemm: cuda: peer access is not supported between these two devices", "cudaErrorPeerAccessUnsupported"),
    ("ssh: connect to gpu-n2 by its second address: Connection refused", "ECONNREFUSED"),
    ("ERROR hub: HTTP Error 503 thrown for https://hub.example.org/w", "HTTP_SERVICE_NOT_AVAILABLE"),
    ("store.cc:88] Curl returned error code 7", "CURLE_COULDNT_CONNECT"),
)  # fmt: skip
NOT_STATED = (
    "ERROR router: GET http://10.44.7.9:30000/health failed with status code 503",
    "ERROR loss: 429 at step 7",
    "2026-03-02 08:11:40 WARNING blobs.cache - write /scratch/a.bin: no space left on device",
    "INFO client: connect to 10.1.2.3:80 failed: Connection refused, retrying (2/5)",
    "ERROR client: read failed: Connection reset by peer; will try again in 3 s",
    "    raise OSError(errno.ENOSPC, 'No space left on device')",
    "retryable_errors = [ECONNRESET, ETIMEDOUT, EPIPE]",
    "error_codes: ECONNRESET ETIMEDOUT EPIPE ENOSPC",
    "nccl_status_errors=0 ncclSystemError=0 ncclRemoteError=0",
    "if (err == cudaErrorIllegalAddress) { return false; }",
    "case CUDA_ERROR_ECC_UNCORRECTABLE: return kFatal;",
    "// on error: CUDA_ERROR_ILLEGAL_ADDRESS",
    "When the disk is full, the writer fails with an error: No space left on device.",
    "If you get the error cudaErrorIllegalAddress, run with CUDA_LAUNCH_BLOCKING=1.",
    "prompt: what does the error: Stale file handle mean",
    "test_full_disk expected error: No space left on device ... ok",
    "ls: cannot access '/opt/x': No such file or directory",
    "worker state: UNAVAILABLE",
    "ERROR: loaded cuda.py, code 200 of 300",
    "ERROR access log: SlowDown mode is off",
    "| ECONNREFUSED | Connection refused | error |",
    "fixed: error: Broken pipe when the viewer ends",
    "2026-03-02 08:11:40: E tensorflow/x/cuda_driver.cc:265] failed call to cuInit: CUDA_ERROR_NO_DEVICE: no device",
)  # fmt: skip


def _stated(text: str) -> list[LogEvent]:
    data = text.encode()
    records = read_input(Input("standard input", io.BytesIO(data), data))
    return [record for record in records if isinstance(record, LogEvent) and record.event == "stated"]


@pytest.mark.parametrize(("line", "name"), STATED)
def test_an_error_is_read_whatever_program_states_it(line: str, name: str) -> None:
    """By its first name, whichever of its names or texts the line has."""
    assert name in [event.code for event in _stated(line + "\n")]


@pytest.mark.parametrize("line", NOT_STATED)
def test_what_is_warned_of_retried_listed_or_talked_about_is_not_read(line: str) -> None:
    """Nor a program's source, a count, a state, or what a script meets and goes on after."""
    assert _stated(line + "\n") == []


def test_what_the_line_says_of_whom_it_is_about_is_kept() -> None:
    """Peer, device and rank, where the line names them."""
    [event] = _stated("ERROR mover: rank 12: send to gpu-n07:4791 on mlx5_3 failed: No route to host\n")

    assert (event.rank, event.peer, event.device) == (12, "gpu-n07:4791", "mlx5_3")


def test_the_host_that_a_line_gives_is_its_own_and_the_one_it_calls_is_a_peer() -> None:
    """A host is where the line was written, one that it connects to is another."""
    [own] = _stated(
        "ERROR: cuStreamSynchronize returned error CUDA_ERROR_LAUNCH_FAILED (rank 2, host gpu-n07, api.cpp:278)\n"
    )
    [other] = _stated("ERROR mover: connect to host gpu-n08 port 22 failed: No route to host\n")

    assert (own.rank, own.node, own.peer) == (2, "gpu-n07", None)
    assert (other.node, other.peer) == (None, "gpu-n08:22")


def test_a_prefix_says_whose_the_line_is() -> None:
    """The rank of the prefix counts before one in the line."""
    [event] = _stated("[rank5]: ERROR io: flush: rank 2: read-only file system: Read-only file system\n")

    assert event.rank == 5


def test_a_program_that_goes_on_with_its_steps_has_outlived_it() -> None:
    """One step is enough: the evidence is weak."""
    line = "2026-03-02 08:11:40 ERROR cache: write /scratch/a.bin: No space left on device\n"

    assert _stated(line)
    assert _stated(line + "step 41 loss 2.31\nstep 42 loss 2.30\n") == []


def test_every_name_that_the_knowledge_weighs_is_in_a_vocabulary() -> None:
    """A name that no list and no part of the platform has would be weighed for nothing."""
    table = tomllib.loads(Path("analyzers/knowledge/codes.toml").read_text())
    names = vocabularies.names() | set(components.PARTS)

    for kind, patterns in table["kind"].items():
        for each in patterns:
            fits = [name for name in names if name == each or (each.endswith("*") and name.startswith(each[:-1]))]
            assert fits, (kind, each)


def test_no_name_holds_a_digit() -> None:
    """Lines are told apart with their numbers taken out."""
    assert [name for name in vocabularies.names() if any(letter.isdigit() for letter in name)] == []
