"""How a job's log is recognised: by its marks, by its steps, by a line that states an error, or by its name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from collectors.formats.job_log import components, log_marks, statements
from collectors.formats.job_log.job_lines import peel
from collectors.formats.job_log.step_bars import StepBars
from collectors.formats.job_log.step_blocks import StepBlocks, may_begin
from collectors.formats.job_log.step_columns import rows_of
from collectors.formats.job_log.step_lines import Step, may_report, read_step
from collectors.formats.job_log.tracebacks import HEADER
from collectors.formats.wrapped_cells import CONTINUED, joined

SNIFFED_LINES = 20
STATING_LINES = 200  # that may state an error

_STRONG = (
    HEADER, "ProcessGroupNCCL", "torch.distributed.elastic", "torch/distributed/elastic", "srun: error:", "slurmstepd:",
    "NCCL WARN", "NCCL INFO", "ChildFailedError", "CUDA error", "CUDA out of memory", "onnection closed by peer",
    "noticed that process rank", "Fatal Python error:",
)  # fmt: skip
_RANKED = re.compile(r"^(?:\[rank\d+\]:|\[[a-z]+\d+(?:\|\d+)?\]:|\[\d+,\d+\]<std)", re.MULTILINE)
_SOURCE_NAME = re.compile(
    r"\.(?:py|ipynb|c|cc|cpp|cu|h|hpp|rs|go|js|ts|java)$"
)  # what a program may print stands in it, quoted
_LOG_NAME = re.compile(r"(?:\.(?:log|out|err)(?:\.\d+)?|(?:^|/)(?:stdout|stderr)(?:\.\w+)?)$")


def sniff(head: bytes, source: str) -> int:
    """Claim text with a job's marks at 40, with steps at 30, one that states an error at 25, any under a log's name at 20."""
    if b"\0" in head[:4096] or _SOURCE_NAME.search(source):
        return 0
    text = head.decode(errors="replace")
    printable = sum(1 for letter in text[:4096] if letter.isprintable() or letter in "\n\r\t\x1b")
    if printable < 0.9 * len(text[:4096]):
        return 0
    if any(mark in text for mark in _STRONG) or _RANKED.search(text):
        return 40
    if len(list(islice(_steps(text), 2))) > 1:
        return 30
    if len(list(islice(StepBars().steps(peel(0, ""), text), 2))) > 1 or len(list(islice(rows_of(text), 2))) > 1:
        return 30
    if _states(b"\n".join(joined(head.split(b"\n"))).decode(errors="replace") if CONTINUED in head else text):
        return 25
    return 20 if text.strip() and _LOG_NAME.search(source) else 0


def _steps(text: str) -> Iterator[Step]:
    """Yield the steps that the first lines report which may report any."""
    blocks, left = StepBlocks(), SNIFFED_LINES
    for text_line in text.splitlines():
        if (reports := may_report(text_line)) or blocks or may_begin(text_line):
            left -= reports
            line = peel(0, text_line)
            if (found := read_step(line) or blocks.read(line)) is not None:
                yield found
            if left <= 0:
                return


def _states(text: str) -> bool:
    """Whether a line states an error in the words of a closed vocabulary."""
    lines = text.splitlines()
    may = islice((line for line in lines if statements.may_state(line)), STATING_LINES)
    if any(any(statements.events_of(peel(0, line))) for line in may):
        return True
    said = (line for line in lines if "`" not in line and (components.may_state(line) or log_marks.may_hold(line)))
    may = islice(said, STATING_LINES)
    return any(any(log_marks.events_of(peel(0, line))) for line in may)
