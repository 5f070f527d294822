"""What ends a program before it has printed anything of its own: its interpreter, shell, loader or command line.

Formats: CPython's ``main.c`` and ``runpy``, argparse, bash and dash, glibc's ``ld.so``, libstdc++'s ``terminate``.
"""

from __future__ import annotations

from collectors.formats.job_log.shapes import shape

_FILES = (  # strerror(3) of what a file system answers
    "Stale file handle", "Input/output error", "No space left on device", "Disk quota exceeded",
    "Transport endpoint is not connected", "Read-only file system",
)  # fmt: skip
_PYTHON = r"^[#>\s]{0,4}\S{0,200}python[\d.]{0,6}: "

SHAPES = (
    shape(
        "can't open file",
        _PYTHON + r"(?P<message>can't open file .{1,300}\[Errno \d{1,3}\].{0,80})",
        "traceback",
        exception="FileNotFoundError",
    ),
    shape(
        "No module named ",
        _PYTHON + r"(?P<message>No module named .{1,200})",
        "traceback",
        exception="ModuleNotFoundError",
    ),
    shape(
        "command not found",
        r"^(?:\S{1,200}: )?(?:line \d{1,6}: )?(?P<message>"
        r"(?:torchrun|python[\d.]{0,6}|mpirun|mpiexec|horovodrun|srun|deepspeed|accelerate|ray|vllm): command not found)",
        "traceback",
        exception="FileNotFoundError",
    ),
    shape(
        "error while loading shared libraries",
        r"(?P<message>error while loading shared libraries: \S{1,160}: .{1,200})",
        "traceback",
        exception="ImportError",
    ),
    *(
        shape(
            words,
            r"^[a-z][\w.+-]{0,30}: (?:\[[\w ]{1,20}\] )?.{0,300}?(?P<message>" + words + r")(?: \(\d{1,3}\))?\s*$",
            "traceback",
            exception="OSError",
        )
        for words in _FILES
    ),
    shape(
        "[Errno ",
        r"^(?!.{0,240}(?i:retr|warn)).{0,240}(?P<message>\[Errno (?:5|28|30|107|108|112|116|121|122)\] .{1,200})",
        "traceback",
        exception="OSError",
    ),
    shape(
        "what():  ",
        r"what\(\):  .{0,120}?(?P<message>CUDA driver version is insufficient.{0,160})",
        "cuda_error",
    ),
    shape(
        "what():  Resource temp",
        r"what\(\):  (?P<message>Resource temporarily unavailable)\s*$",
        "traceback",
        exception="system_error",
    ),
    shape(
        "Resource temporarily unavailable [sys",
        r"what\(\): {1,2}(?P<message>(?:\w{1,40}: )?Resource temporarily unavailable \[system:11\])",
        "traceback",
        exception="system_error",
    ),
    shape(
        "hread creation failed: ",
        r"^libgomp: (?P<message>Thread creation failed: Resource temporarily unavailable)",
        "traceback",
        exception="system_error",
    ),
    *(
        shape(
            word,
            r"^\S{1,200}\.py: error: (?P<message>(?:unrecognized arguments|the following arguments are required|"
            r"argument .{1,80}: (?:invalid|expected)).{0,200})",
            "traceback",
            exception="ArgumentError",
        )
        for word in (": error: unrecognized arg", ": error: the following arg", ": error: argument ")
    ),
    shape(
        "terminate called after",
        r"(?P<message>terminate called after throwing an instance of 'std::bad_alloc')",
        "traceback",
        exception="MemoryError",
    ),
)
