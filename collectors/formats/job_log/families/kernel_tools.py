"""What CUDA's tools and the usual macros around its calls print: a kernel's wrong access, and the error that a call gave back.

Formats: compute-sanitizer 2020 to 2025 (memcheck, racecheck, synccheck, initcheck), cuda-memcheck 5 to 11, cuda-gdb 7 to 12, the
macros of CUDA's samples (``helper_cuda.h``, ``cutil.h``) and those that tutorials give (``gpuErrchk``, ``checkCuda``).
Memory that a program did not free, and a call that the tool saw fail and the program handled, are no failures.
"""

from __future__ import annotations

from collections.abc import Iterator

from collectors.formats.job_log.shapes import Shape, shape

_TOOL = r"^\W{0,4}={9} {1,4}(?:Error: |Warning: )?"
_ACCESS = r"(?:__\w{4,10}__|\w{4,8}) (?:read|write|atomic|reduction|access)"
_TOOLS = (
    ("Invalid __", rf"Invalid {_ACCESS} of size \d"),
    ("Misaligned ", r"Misaligned Shared or Local Address|Misaligned \w{2,20} address"),
    ("Uninitialized __", r"Uninitialized __\w{4,10}__ memory read of size \d"),
    ("Race reported", r"Race reported between \w"),
    (" hazard detected", r"(?:Potential )?(?:RAW|WAR|WAW) hazard detected at"),
    ("Barrier error", r"Barrier error detected\. "),
    ("Illegal Instruction", r"Illegal Instruction"),
    ("User Stack Overflow", r"(?:Warp|Lane|Device|Hardware|User)[\w ]{0,20}Stack Overflow"),
    ("Out-of-range Shared", r"(?:Warp )?Out-of-range Shared or Local Address"),
    ("Malloc/Free error", r"Malloc/Free error encountered"),
)
_EXCEPTIONS = (  # cuda-gdb's
    "Lane Illegal Address", "Warp Illegal Address", "Warp Out-of-range Address", "Warp Misaligned Address",
    "Warp Illegal Instruction", "Warp Invalid Address Space", "Warp Invalid PC", "Lane Misaligned Address",
    "Device Illegal Address", "Lane User Stack Overflow",
)  # fmt: skip
_TEXTS = (
    r"(?:an illegal memory access was encountered|unspecified launch failure|misaligned address|"
    r"an illegal instruction was encountered)"
)
_NAMES = r"(?:IllegalAddress|LaunchFailure|MisalignedAddress|IllegalInstruction)"
_MACROS = (
    ("GPUassert: ", rf"^\W{{0,4}}GPUassert: (?P<message>{_TEXTS}(?: \S{{1,160}})?(?: \d{{1,6}})?)"),
    (
        "CUDA error at ",
        rf"^\W{{0,4}}(?P<message>CUDA error at \S{{1,160}}:\d{{1,6}} code=\d{{1,3}}\(cudaError{_NAMES}\).{{0,80}})",
    ),
    (
        "uda error in file '",
        rf"^\W{{0,4}}(?P<message>Cuda (?:driver )?error in file '[^']{{1,160}}' in line \d{{1,6}}.{{0,20}}: {_TEXTS})",
    ),
    ("CUDA Runtime Error: ", rf"^\W{{0,4}}CUDA Runtime Error: (?P<message>{_TEXTS})"),
    *(  # TensorFlow's wait for what its kernels do
        (word, rf"\]? {word}(?P<message>CUDA_ERROR_(?:ILLEGAL_ADDRESS|LAUNCH_FAILED|MISALIGNED_ADDRESS)\b.{{0,80}})")
        for word in (
            "failed to query event: ",
            "failed to synchronize the stop event: ",
            "could not synchronize on CUDA context: ",
        )
    ),
    *(  # the second line of what a macro prints: the error and the call
        (word, rf"^\W{{0,4}}(?P<message>{_TEXTS} (?:cu|cuda|hip)[A-Z]\w{{2,40}}\()")
        for word in ("launch failure cu", "was encountered cu", "misaligned address cu")
    ),
)


def _shapes() -> Iterator[Shape]:
    for word, said in _TOOLS:
        yield shape(word, rf"{_TOOL}(?P<message>(?:{said}).{{0,160}})", "cuda_error")
    for said in _EXCEPTIONS:
        yield shape(said, rf"(?:CUDA Exception: |CUDA_EXCEPTION_\d{{1,2}}, )(?P<message>{said})", "cuda_error")
    for word, pattern in _MACROS:
        yield shape(word, pattern, "cuda_error")


SHAPES = tuple(_shapes())
