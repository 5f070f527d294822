"""vLLM's and SGLang's words: which of their processes died, and which only report that another did.

Formats: vLLM 0.6 to 0.16 (``core.py``, ``multiproc_executor.py``, ``shm_broadcast.py``), SGLang 0.3 to 0.5 (``scheduler.py``).
"""

from __future__ import annotations

from collectors.formats.job_log.shapes import shape
from collectors.records import ENGINE_DIED

ENGINE = (
    shape("EngineDeadError", r"(?P<message>EngineDeadError)", ENGINE_DIED),
    shape("output_handler failed", r"(?P<message>AsyncLLM output_handler failed)", ENGINE_DIED),
    shape("Engine background task failed", r"(?P<message>Engine background task failed)", ENGINE_DIED),
    shape("EngineCore encountered a", r"(?P<message>EngineCore encountered a fatal error)", ENGINE_DIED),
)
SHAPES = (
    *ENGINE,
    shape(
        "died unexpectedly, shutting down",
        r"(?P<message>(?:Worker|Engine core) proc \S{1,80} died unexpectedly)",
        "worker_died",
        first=True,
    ),
    shape(
        "shared memory broadcast block",
        r"(?P<message>No available shared memory broadcast block found)",
        "communication_timeout",
    ),
    shape("died, exit code:", r"Worker \w{1,60} pid (?P<pid>\d{1,9}) died, exit code: (?P<exit>-?\d{1,3})", "exit"),
    shape(
        "Failed: Cuda error ",
        r"^Failed: (?P<message>Cuda error \S{1,200}:\d{1,6} '[^']{1,160}')",
        "cuda_error",
    ),
    shape(
        "atchdog timeout (self.",
        r"(?P<message>(?:Scheduler w|W)atchdog timeout \(self\.watchdog_timeout)",
        "communication_timeout",
    ),
    shape(
        " memory leak detected! ",
        r"^ValueError: (?P<message>(?:token_to_kv_pool_allocator |req_to_token_pool |pool )?memory leak detected! .{1,200})",
        "traceback",
        exception="ValueError",
    ),
    shape(
        "Failed to update parameter online",
        r"(?P<message>Failed to update parameter online: (?!.{0,200}(?:[Tt]imed out|[Cc]onnection|NCCL)).{1,200})",
        "traceback",
        exception="RuntimeError",
    ),
    shape(
        "No available memory for the cache",
        r"(?:(?P<exception>\w{1,40}Error): )(?P<message>No available memory for the cache.{0,100})",
        "traceback",
    ),
)
