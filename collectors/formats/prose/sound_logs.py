"""Logs of servers that serve, and tables of GPUs that are well: what stands in them is no trouble, whatever its words are.

A server's settings, counts and progress bars hold many words of trouble ("watchdog_timeout=300", "Waiting: 0 reqs", "disable_…").
Formats: vLLM 0.4 to 0.16, SGLang 0.3 to 0.5, uvicorn, TensorRT-LLM's and Triton's servers, TGI, llama.cpp's server, Ray Serve;
``nvidia-smi`` of the drivers 384 to 580.
"""

from __future__ import annotations

import re

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
_UNWELL = re.compile(r"ERR!|Unknown Error|GPU is lost|Unable to d|Requires reset", re.IGNORECASE)


def is_sound(text: str) -> bool:
    """Whether a server says that it serves, and no line has words of a failure."""
    return _SERVES.search(text) is not None and _TROUBLE.search(text[:LOOKED_AT]) is None


def is_of_table(line: str) -> bool:
    """Whether a line is of nvidia-smi's table, and shows no GPU that does not answer."""
    return _TABLE.match(line.rstrip()) is not None and _UNWELL.search(line) is None


def is_table(text: str) -> bool:
    """Whether a text holds the head of nvidia-smi's table, and nothing in it fails to answer."""
    return "| NVIDIA-SMI " in text and _UNWELL.search(text) is None and _TROUBLE.search(text) is None
