"""What a program finds missing around it: a node that ssh does not reach, threads, a GPU in its container, a service, room.

Formats: OpenSSH 9, DeepSpeed's runner, OpenBLAS's and gRPC's threads, glibc's ``malloc``, NVIDIA's container entry points,
Singularity, Triton's TensorRT backend, Ray's file system monitor, Slurm's parser of configurations, wandb 0.12 to 0.19.
"""

from __future__ import annotations

from collectors.formats.job_log.shapes import shape

_SSH = (
    ("ssh: ", r"^(?:\S{1,120}: )?ssh: (?P<message>connect to host \S{1,200} port \d{1,5}: Connection (?:refused|timed out))"),
    ("ssh: Could not res", r"^(?:\S{1,120}: )?ssh: (?P<message>Could not resolve hostname \S{1,200}: .{1,80})"),
    ("Host key verif", r"^(?:\S{1,120}: )?(?P<message>Host key verification failed\.)"),
    ("Permission denied (pub", r"^(?:\S{1,120}: )?(?P<message>Permission denied \(publickey[\w,-]{0,60}\))"),
    ("Authentication refused: bad", r"(?P<message>Authentication refused: bad ownership or modes for \S{1,200})"),
)  # fmt: skip
_HEAP_WORDS = (
    "double free or corr", "free(): ", "munmap_chunk", "malloc(): ", "corrupted size vs", "malloc_cons", "realloc(): ",
)  # fmt: skip
_HEAP = (
    r"double free or corruption \(\S{1,12}\)|free\(\): (?:invalid|double)[\w ]{1,40}|munmap_chunk\(\): invalid pointer|"
    r"malloc\(\): [\w ,()-]{4,60}|corrupted size vs\. prev_size|malloc_consolidate\(\): [\w ]{4,40}|"
    r"realloc\(\): invalid[\w ]{1,40}"
)
_NO_GPU = (
    ("supported GPU(s) detected", r"ERROR: (?P<message>No supported GPU\(s\) detected to run this container)"),
    ("Could not find any ", r"(?P<message>Could not find any (?:NVIDIA binaries|NVIDIA libraries|nv files) on this host)"),
    ("supports only GPU device", r"unable to load model .{1,200}(?P<message>TensorRT backend supports only GPU device)"),
)  # fmt: skip
_WEAK = (  # warnings: they count where no line says more
    ("initialization has timed", r"(?P<message>wandb: ERROR Run initialization has timed out.{0,30})", "UNANSWERED_SERVICE"),
    ("file_system_monitor.cc", r"file_system_monitor\.cc:\d{1,5}: {0,2}(?P<message>/\S{1,300} is over \d{1,3}% full)", "ENOSPC"),
    ("Parse error in file ", r"(?P<message>Parse error in file /\S{1,200} line \d{1,7}.{0,120})", "PART_OF_PLATFORM"),
)  # fmt: skip

SHAPES = (
    *(shape(word, pattern, "traceback", exception="SshRefused") for word, pattern in _SSH),
    shape(
        "Cannot access gated repo",
        r"^(?P<message>Cannot access gated repo for url \S{1,300})",
        "traceback",
        exception="GatedRepoError",
    ),
    shape(
        "pthread_create failed",
        r"(?P<message>pthread_create failed(?: for thread \d{1,6} of \d{1,6})?: Resource temporarily unavailable)",
        "traceback",
        exception="system_error",
    ),
    *(
        shape(word, r"^(?:\*{3} Error in `[^']{1,200}': )?(?P<message>" + _HEAP + ")", "traceback", exception="HeapCorruption")
        for word in _HEAP_WORDS
    ),
    *(shape(word, pattern, "cuda_error") for word, pattern in _NO_GPU),
    *(shape(word, pattern, "stated", code=code) for word, pattern, code in _WEAK),
)  # fmt: skip
