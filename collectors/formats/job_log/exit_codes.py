"""How processes ended, written down apart from their logs: Slurm's accounting, or a list of exit codes by rank.

What launchers print inside a log is read by ``job_log``; this reader is for ``sacct``'s table and for the lists that job
scripts leave: ``rank 3 exited with code -9``, or a JSON object of rank → code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice

import msgspec

from collectors.formats import Damaged, Input, reader
from collectors.formats.job_log.job_lines import Line
from collectors.formats.job_log.job_log import JobLog
from collectors.formats.job_log.log_marks import TROUBLE
from collectors.formats.job_log.shapes import event, fate
from collectors.formats.job_log.step_series import StepSeries
from collectors.formats.text_lines import lines
from collectors.records import LogEvent, Record

MAX_ROWS = 100_000
MAX_JSON_BYTES = 4 << 20
MAX_COLUMNS = 256  # sacct has some 120

_LISTED = re.compile(
    r"\s*rank[ _=:]*(\d{1,7})\b[^\n]{0,80}?\b(?:exit(?:ed)?(?:[ _]?code)?|return ?code|rc|status|signal)\b"
    r"[^\d\n-]{0,20}(-?\d{1,5})\s*$",
    re.IGNORECASE,
)
_STATES = {
    "PREEMPTED": "preempted", "TIMEOUT": "time_limit", "DEADLINE": "time_limit", "NODE_FAIL": "node_failure",
    "BOOT_FAIL": "node_failure", "OUT_OF_MEMORY": "oom_kill", "CANCELLED": "cancelled", "FAILED": "exit",
}  # fmt: skip


def sniff(head: bytes, source: str) -> int:
    """Claim sacct's heading surely, a list by its first lines, a JSON object only under a fitting name."""
    text = head[:8192].decode(errors="replace")
    if any(map(_is_heading, text.splitlines())):
        return 85
    shown = [line for line in text.splitlines()[:20] if line.strip()]
    if shown and sum(1 for line in shown if _LISTED.match(line)) * 2 > len(shown):
        return 80
    named = re.search(r"(?i)exit|return_?code|rc\.json$", source.rsplit("/", 1)[-1])
    return 60 if named and re.match(r'\s*\{\s*"(?:rank_?)?\d+"\s*:\s*-?\d', text) else 0


@reader(
    "exit_codes", made_by="sacct, or a job script's list of exit codes", gives="how each process ended", sniff=sniff
)
def read(input: Input) -> Iterator[Record]:
    """Yield an exit for each process that did not end well; a zero is no event."""
    log = JobLog(input, StepSeries(1))
    if input.head.lstrip().startswith(b"{"):
        found = _object(input)
    elif any(map(_is_heading, input.head.decode(errors="replace").splitlines())):
        found = _accounting(input, log)
    else:
        found = _list(input)
    for each in found:
        if each.exit_code or each.signal or each.event != "exit":
            yield msgspec.structs.replace(each, source=f"{input.source}:{each.source}", node=each.node or input.node)
    yield from log.events()


def _object(input: Input) -> Iterator[LogEvent]:
    data = input.stream.read(MAX_JSON_BYTES)
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"not JSON at byte {getattr(error, 'pos', 0)}: write one object of rank to exit code") from error
    for key, code in list(content.items())[:MAX_ROWS] if isinstance(content, dict) else ():
        digits = re.fullmatch(r"(?:rank_?)?(\d{1,7})", key)
        if digits and isinstance(code, int) and abs(code) < 1 << 16:
            yield event(Line(1, f"rank {digits[1]} ended with {code}"), "exit", rank=int(digits[1]), **fate(code))


def _list(input: Input) -> Iterator[LogEvent]:
    for number, text in lines(input.stream):
        if number > MAX_ROWS:
            return
        if found := _LISTED.match(text):
            code = int(found[2])
            fields = {"signal": code} if "signal" in text.lower() and code > 0 else fate(code)
            yield event(Line(number, text), "exit", rank=int(found[1]), **fields)


def _state(cell: str) -> str | None:
    """Return what a state of Slurm's means; sacct cuts a long one off at its column's width: ``OUT_OF_ME+``."""
    word = cell.split(" ", maxsplit=1)[0]
    if not word.endswith("+"):
        return _STATES.get(word)
    return next((name for state, name in _STATES.items() if state.startswith(word[:-1])), None) if word[:-1] else None


def _accounting(input: Input, log: JobLog) -> Iterator[LogEvent]:
    """Yield the table's rows; what stands around the table goes to the log."""
    columns: list[tuple[str, int, int]] = []
    for number, text in lines(input.stream):
        if number > MAX_ROWS:
            return
        if _is_heading(text):
            columns = _columns(text)
            continue
        row = {name: value for (name, *_), value in zip(columns, _cells(text, columns), strict=False)}
        if (name := _state(row.get("State", ""))) is None:
            log.take(number, text, TROUBLE)
            continue
        if "." in row.get("JobID", row.get("JobIDRaw", "")) and name in {"cancelled", "preempted", "time_limit"}:
            continue  # a step repeats its job's state, or was ended by its own launcher
        code, _, signal = row.get("ExitCode", "").partition(":")
        fields = {"exit_code": int(code)} if code.isdigit() and int(code) else {}
        if signal.isdigit() and 0 < int(signal) < 65:
            fields["signal"] = int(signal)
        node = row.get("NodeList") or None
        one_node = node if node and "[" not in node and "," not in node and node != "None assigned" else None
        yield event(Line(number, text), name, node=one_node, **fields)


def _is_heading(line: str) -> bool:
    """Whether a line is the heading of sacct's table."""
    return line.lstrip().startswith("JobID") and {"State", "ExitCode"} <= set(re.split(r"[\s|]+", line))


def _columns(heading: str) -> list[tuple[str, int, int]]:
    """Names and extents of a table's columns: by bars, or by the width of the heading's words."""
    if "|" in heading:
        return [(name.strip(), 0, 0) for name in heading.split("|")][:MAX_COLUMNS]
    return [(found[0], found.start(), found.end()) for found in islice(re.finditer(r"\S+", heading), MAX_COLUMNS)]


def _cells(text: str, columns: list[tuple[str, int, int]]) -> list[str]:
    """The row's cells. sacct's fixed columns are right- or left-aligned, so a cell is the word that touches its heading."""
    if "|" in text:
        return [cell.strip() for cell in text.split("|")]
    words = [(found[0], found.start(), found.end()) for found in islice(re.finditer(r"\S+", text), MAX_COLUMNS)]
    return [
        next((word for word, start, end in words if start < right and end > left), "") for _, left, right in columns
    ]
