"""A compiler that failed in itself, or on what a library generated for it: the program's kernels, and no machine.

Formats: AWS's neuronx-cc 1 and 2 (``CommandDriver``, its codes in brackets), LLVM 10 to 20 (``LLVM ERROR``), GCC, clang, MIOpen 2
and 3.
"""

from __future__ import annotations

from collectors.formats.job_log.shapes import Shape, shape


def _failed(word: str, pattern: str) -> Shape:
    """Build the row of a compiler's own end."""
    return shape(word, pattern, "traceback", exception="CompileError")


SHAPES = (
    _failed(
        "nternal Compiler Error has",
        r"\b(?:ERROR|CRITICAL|FATAL) (?:\d{1,9} )?\[neuronx?-?cc[\w.]{0,40}\]: {1,4}(?P<message>An Internal Compiler Error)",
    ),
    _failed("neuronx-cc terminated abnorm", r"^\W{0,4}(?P<message>(?:\[\w{3,8}\] )?neuronx-cc terminated abnormally.{0,160})"),
    *(  # "[NCC_EVRF009]", older "[XTP001]"
        _failed(
            word,
            r"^\W{0,4}(?:(?:\S{1,40} )?ERROR.{0,80}: {1,4})?(?P<message>\[" + word[1:] + r"[A-Z]{0,4}\d{3,4}\] {1,4}\S.{1,300})",
        )
        for word in ("[NCC_", "[NLA", "[XTP", "[GCA", "[TEN", "[INSIM", "[PGT")
    ),
    _failed("LLVM ERROR: ", r"^(?P<message>LLVM ERROR: (?!out of memory).{1,300})"),
    _failed("nternal compiler error: ", r"^(?:\S{1,240}: )?(?P<message>[Ii]nternal compiler error: .{1,300})"),
    _failed("rror in backend: ", r"^(?:\S{1,240}: )?(?P<message>fatal error: error in backend: .{1,300})"),
    _failed(" clang frontend command failed", r"^\S{0,80}: (?P<message>(?:fatal )?error: clang frontend command failed.{0,120})"),
    *(
        _failed(word, r"^\W{0,4}(?P<message>" + said + r".{0,200})")
        for word, said in (
            ("MIOpen Error: ", r"MIOpen Error: .{0,200}(?:Code object build failed|hiprtc|compile|build)"),
            ("MIOpen(HIP): Error [", r"MIOpen\(HIP\): Error \[\w{0,20}(?:[Cc]ompile|[Bb]uild)\w{0,20}\]"),
        )
    ),
)  # fmt: skip
