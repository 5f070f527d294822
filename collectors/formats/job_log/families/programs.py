"""What ends a program before it has printed anything of its own: its interpreter, shell, loader or command line.

Formats: CPython's ``main.c`` and ``runpy``, argparse, bash and dash, glibc's ``ld.so``, libstdc++'s ``terminate``.
"""

from __future__ import annotations

import re

from collectors.formats.job_log.shapes import Block, shape

_FILES = (  # strerror(3) of what a file system answers
    "Stale file handle", "Input/output error", "No space left on device", "Disk quota exceeded",
    "Transport endpoint is not connected", "Read-only file system",
)  # fmt: skip
_PYTHON = r"^[#>\s]{0,4}\S{0,200}python[\d.]{0,6}: "
_TERMINATED = r"terminate called after throwing an instance of '(?:\w{1,60}::){0,8}(?P<exception>\w{1,80})[^']{0,200}'"

SHAPES = (
    shape(
        "can't open file",
        _PYTHON + r"(?P<message>can't open file .{1,300}\[Errno \d{1,3}\].{0,80})",
        "traceback",
        exception="LaunchError",
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
        exception="LaunchError",
    ),
    shape(
        "error while loading shared libraries",
        r"(?P<message>error while loading shared libraries: \S{1,160}: .{1,200})",
        "traceback",
        exception="ImportError",
    ),
    *(
        shape(
            words[1:],
            r"^(?:-?[a-z][\w.+-]{0,30}|Errno \d{1,3}|\S{1,200}: line \d{1,6}): (?:\[[\w ]{1,20}\] )?.{0,300}?(?P<message>(?i:"
            + words[0]
            + ")"
            + words[1:]
            + r")(?: \(\d{1,3}\))?[.\s]*(?:: unknown)?$",
            "traceback",
            exception="OSError",
        )
        for words in _FILES
    ),
    shape(
        "o space left on device [",
        r"what\(\):  .{0,200}?(?P<message>No space left on device) \[",
        "traceback",
        exception="OSError",
    ),
    shape(
        "OSError(28, ",
        r"\b(?:ERROR|Error|error)\b.{0,200}OSError\((?P<message>28, 'No space left on device')",
        "traceback",
        exception="OSError",
    ),
    *(  # gzip, tar, xz, zstd, unzip, bzip2
        shape(
            word,
            r"^(?:gzip|gunzip|zcat|pigz|tar|xz|zstd|unzip|bzip2|bsdtar|lz4|zstdcat): (?P<message>(?:.{1,300}: )?"
            + word
            + r".{0,80})",
            "traceback",
            exception="ReadError",
        )
        for word in (
            "unexpected end of file",
            "Unexpected EOF in archive",
            "invalid compressed data",
            "not in gzip format",
            "This does not look like a tar archive",
            "Compressed data is corrupt",
            "Skipping to next header",
            "Truncated input file",
            "corrupted archive",
        )
    ),
    *(
        shape(
            word,
            r"^(?P<message>" + word + r"\s{0,4}: .{1,200})",
            "traceback",
            exception="CompileError",
        )
        for word in ("nvcc fatal ", "ptxas fatal ", "hipcc: error")
    ),
    shape(
        "The detected CUDA version (",
        r"^(?:RuntimeError: )?(?P<message>The detected CUDA version \([\d.]{1,8}\) mismatches the version .{0,80})",
        "traceback",
        exception="RuntimeError",
    ),
    *(  # glibc's loader: a library of another version than it was built against
        shape(word, pattern, "traceback", exception="ImportError")
        for word, pattern in (
            (
                ": undefined symbol: ",
                r"^(?:ImportError: |OSError: )?\S{1,200}\.so[\w.]{0,24}: (?P<message>undefined symbol: \S{1,200})",
            ),
            ("Failed to load NCCL library", r"\bERROR\b.{1,80}(?P<message>Failed to load NCCL library from \S{1,200})"),
            (": symbol lookup error: ", r"^\S{1,200}: (?P<message>symbol lookup error: \S{1,200}: .{1,200})"),
            ("' not found (required by ", r"(?P<message>version `[\w.]{3,40}' not found \(required by \S{1,200}\))"),
        )
    ),
    shape(  # safetensors, where its exception's name was left out
        "Error while deserializing header: ",
        r"^(?:Error: )?(?P<message>Error while deserializing header: .{1,120})",
        "traceback",
        exception="SafetensorError",
    ),
    *(  # Torch7's files
        shape(
            word,
            r"\.lua:\d{1,6}: (?P<message>(?:write|read) error: \w{4,5} \d{1,18} blocks instead of \d{1,18})",
            "traceback",
            exception="OSError",
        )
        for word in ("write error: wrote ", "read error: read ")
    ),
    shape(
        "Could not override '",
        r"^(?P<message>Could not override '[^']{1,200}'\.?)",
        "traceback",
        exception="ConfigCompositionException",
    ),
    shape(  # of a logger's own line; a program that takes the next port says so at a lower level
        "ddress already in use",
        r"^(?:\[?[EF]\d{3,4} |ERROR|\S{1,80}: error: ).{0,400}(?P<message>[Aa]ddress already in use)",
        "traceback",
        exception="EADDRINUSE",
    ),
    shape(
        " failed: Address already in use",
        r"NCCL WARN .{0,120}(?P<message>bind\w{0,10}(?:\(\))? failed ?: Address already in use)(?!, retrying)",
        "traceback",
        exception="EADDRINUSE",
    ),
    shape(
        "port is already allocated",
        r"(?P<message>Bind for \S{1,80} failed: port is already allocated)",
        "traceback",
        exception="EADDRINUSE",
    ),
    shape(
        "[Errno ",
        r"^(?!.{0,240}(?i:retr|warn)).{0,240}(?P<message>\[Errno (?:5|28|30|98|107|108|112|116|121|122)\] .{1,200})",
        "traceback",
        exception="OSError",
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
    shape(  # in one line, as a paste may have it
        "terminate called after",
        _TERMINATED + r"\s{1,8}what\(\): {1,3}(?P<message>\S.{0,900})",
        "traceback",
    ),
    *(  # Paddle's handler of signals (platform/init.cc)
        shape(
            word, rf"^FatalError: .{{0,60}}?{word}\W{{0,3}} is detected by the operating system", "exit", signal=number
        )
        for word, number in (
            ("Segmentation fault", 11),
            ("Illegal instruction", 4),
            ("Erroneous arithmetic operation", 8),
            ("Process abort signal", 6),
            ("Access to an undefined portion of a memory object", 7),
            ("Termination signal", 15),
        )
    ),
    shape(
        "ABORT!!! Out of all",
        r"ABORT!!! Out of all \d{1,6} trainers, the trainer process with rank=\[(?P<rank>\d{1,6})\] was aborted",
        "exit",
        first=True,
    ),
    shape(
        "terminate called after",
        r"(?P<message>terminate called after throwing an instance of 'std::bad_alloc')",
        "traceback",
        exception="MemoryError",
    ),
)
BLOCKS = (
    Block(  # libstdc++'s last words: the exception that no handler took, and its message
        "terminate called after",
        re.compile(_TERMINATED + r"\s*$"),
        (re.compile(r"\s{0,8}what\(\): {1,3}(?P<message>\S.{0,900})"),),
        "traceback",
        closes="first",
        within_lines=2,
    ),
    Block(  # debugpy, which prints the message below the exception's name and above the frames
        "Exception has occurred: ",
        re.compile(r"Exception has occurred: (?P<exception>[A-Z]\w{1,60})\b"),
        (re.compile(r"(?P<message>(?!\s*File \")\S.{3,900})"),),
        "traceback",
        closes="first",
        within_lines=2,
    ),
)
