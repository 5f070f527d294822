"""Logs of servers that serve, and tables of GPUs that are well: what stands in them is no trouble, whatever its words are.

A server's settings, counts and progress bars hold many words of trouble ("watchdog_timeout=300", "Waiting: 0 reqs", "disable_…").
Formats: vLLM 0.4 to 0.16, SGLang 0.3 to 0.5, uvicorn, TensorRT-LLM's and Triton's servers, TGI, llama.cpp's server, Ray Serve;
``nvidia-smi`` of the drivers 384 to 580.
"""

from __future__ import annotations

import re

from collectors.formats.job_log.requests import without_requests

LOOKED_AT = 1 << 16  # characters
_SERVES = re.compile(
    r"Application startup complete|Uvicorn running on http|server is fired up and ready to roll|Starting vLLM API server|"
    r"Avg (?:prompt|generation) throughput: \d|Decode batch[.,] #running-req|Prefill batch[.,] #new-seq|"
    r"Started (?:HTTPService|GRPCInferenceService|Metrics Service) at|HTTP server listening|server is listening on http|"
    r"\bConnected\b.{0,40}text_generation_router|Deployed app '|init engine \(profile, create kv cache"
)
_TROUBLE = re.compile(
    r"(?i)\b\w*(?:error|exception)s?\b(?!s?[=\"']|[_ ](?:rate|count)| ?[:=] ?0\b)|traceback|"
    r"\bfail(?:s|ed|ure|ing)?\b|fatal|\babort|"
    r"crash|\bkill(?:ed|ing)\b|\bterminat|time[ds]? ?out\b(?![=\"':_])|\bh[au]ngs?\b|\bstuck\b|dead ?lock|"
    r"\bdie[sd]\b|\bdead\b|\boom\b|"
    r"out of memory|\bleak|refused|denied|unreach|unavailable|corrupt|\bnan\b|cannot|can't|unable|"
    r"unexpected|mismatch|not found|invalid|"
    r"\bSIG[A-Z]{3,4}\b|core dump|\bXid\b|unhealthy|\blost\b|exceed|insufficient|preempt(?!ion[_ ]mode)|"
    r"\bslow|retr(?:y|ies|ying)\b|"
    r"\" [45]\d\d\b|shutting down|shutdown|disconnect"
)
_TABLE = re.compile(
    r"\s{0,8}(?:[|+][-=+|]{10,}$|\| NVIDIA-SMI \d|\| {1,3}(?:GPU|Fan|Processes|No running processes found|\d{1,3})\b.{10,120}\|$|"
    r"\|\s{0,4}(?:N/A|\d{1,3}%)\s{1,6}\d{1,3}C\b.{10,120}\|$|"
    r"\|[ |]{30,}(?:MIG M\.|Disabled|Enabled|N/A|ID) {0,50}[A-Za-z ]{0,40}\|$)"
)
_EVERYDAY = re.compile(
    # NCCL and torch
    r"NCCL INFO (?:NET|TUNER|PROFILER|ENV)/Plugin: |"
    r"NCCL INFO (?:NCCL_\w+ set|NET/IB : No device found|Failed to open libibverbs)|"
    r"Setting OMP_NUM_THREADS environment variable|"
    r"The (?:client|server) socket (?:cannot be initialized|has failed to (?:listen|connect)) .{0,80}"
    r"(?:errno: 97|Address family not supported)|"
    r"using GPU \d+ (?:as device used by|to perform barrier)|destroy_process_group\(\) was not called|"
    r"find_unused_parameters=True was specified|Grad strides do not match bucket view|"
    r"barrier\(\): using the device|Detected kernel version .{0,30}below the recommended minimum|"
    # TensorFlow and XLA
    r"Unable to register cu\w{3,4} factory|computation placer already registered|Could not find (?:TensorRT|cuda drivers)|"
    r"NUMA node read from SysFS had negative value|To enable the following instructions|cpu_feature_guard|"
    # DeepSpeed
    r"Unable to find hostfile|async_io requires the dev libaio|async_io: please install|"
    r"sparse_attn (?:is not compatible|requires)|"
    r"Please specify the CUTLASS repo|Attempted loss scale: |please install triton==|using untested triton version|"
    # transformers, tokenizers, datasets
    r"were not initialized from the model checkpoint|were not used when initializing|You should probably TRAIN this model|"
    r"Special tokens have been added in the vocabulary|`use_cache=True` is incompatible with|"
    r"Disabling parallelism to avoid deadlocks|"
    r"sequence length is longer than the specified maximum|Could not estimate the number of tokens|attention mask is not set|"
    r"(?:Future|Deprecation|PendingDeprecation)Warning: |This IS (?:NOT )?expected if you are initializing"
)
_STOPPED = re.compile(
    r"INFO: {2,9}(?:Shutting down|Waiting for application shutdown\.|Application shutdown complete\.|"
    r"Finished server process \[\d{1,9}\])\s*$"
)
"""What uvicorn says when it is asked to stop."""
_UNWELL = re.compile(r"ERR!|Unknown Error|GPU is lost|Unable to d|Requires reset", re.IGNORECASE)


def is_everyday(line: str) -> bool:
    """Whether a library prints a line in runs that are well."""
    return _EVERYDAY.search(line) is not None


def has_trouble(line: str) -> bool:
    """Whether a line has a word of trouble."""
    return _TROUBLE.search(line) is not None


def is_sound(text: str) -> bool:
    """Whether a server says that it serves, and no line has words of a failure but those of one request or of its stop."""
    if _SERVES.search(text) is None:
        return False
    lines = [line for line in text[:LOOKED_AT].splitlines() if not _STOPPED.match(line)]
    return not any(_TROUBLE.search(line) for line in lines) or not any(map(_TROUBLE.search, without_requests(lines)))


def was_stopped(text: str) -> bool:
    """Whether the newest word of a server on its life is that it ends."""
    return text.rfind("Finished server process") > text.rfind("Started server process")


def is_of_table(line: str) -> bool:
    """Whether a line is of nvidia-smi's table, and shows no GPU that does not answer."""
    return _TABLE.match(line.rstrip()) is not None and _UNWELL.search(line) is None


def is_table(text: str) -> bool:
    """Whether a text holds the head of nvidia-smi's table, and nothing in it fails to answer."""
    return "| NVIDIA-SMI " in text and _UNWELL.search(text) is None and _TROUBLE.search(text) is None
