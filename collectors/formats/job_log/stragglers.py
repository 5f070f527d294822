"""Reports of stragglers that a detector inside the job prints into its log.

Formats: Megatron-LM's ``StragglerDetector`` (``--log-straggler``, ``megatron/core/utils.py``); NVIDIA's resiliency extension, by
its callback for Lightning and NeMo, by Megatron Bridge, and as its examples print it (``nvidia_resiliency_ext`` 0.1 to 0.5,
``ptl_resiliency/straggler_det_callback.py``). Rank 0 prints what it gathered of all.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from collectors.formats.job_log.job_lines import Line
from collectors.records import ARRAY_CODES, STRAGGLER_COLUMNS, StragglerReports, column_bytes
from collectors.records import straggler_reports as quantities
from collectors.records.record import LARGEST_RANK, MOST_RANKS

MAX_REPORTS = 4096  # of one log, the newest
MAX_ROWS = 256  # of one report: a few of the slowest and fastest; a detector that lists more is read so far
WORDS = (
    "MnRtt/Rnk", "Etpt(TF)", "using world size:", "STRAGGLER", "performance:", " performing ", "Score=", "perf scores: {",
    "Straggler report processing time", "use_tp_pp_dp_mapping",
)  # fmt: skip
"""A line with none of these is of no report."""

_SIZES = re.compile(r"using world size: (\d{1,7}),.{0,200}?tensor-model-parallel size: (\d{1,5})")
_OTHER_SIZES = (
    ("pp", re.compile(r"(?<!encoder-)pipeline-model-parallel size: (\d{1,5})")),
    ("cp", re.compile(r"(?<!hierarchical )context-parallel size: (\d{1,5})")),
)
_STAGES_INSIDE = re.compile(r"\buse_tp_pp_dp_mapping \.{2,60} (True|False)\s*$")
_EXTREME = re.compile(r"\bM[nx](Rtt|Tmp|Clk)/Rnk: (\d{1,9}(?:\.\d{1,6})?)(?:ms|C|MHz)/(\d{1,7})\b")
_OF_EXTREME = {
    "Rtt": (quantities.SECONDS, 1e-3),
    "Tmp": (quantities.TEMPERATURE, 1.0),
    "Clk": (quantities.CLOCK, 1.0),
}
_ENDS_LISTED = re.compile(r"\^{4} (Bottom|Top) {1,6}(\d{1,7}) Ranks with (?:low|high)est {1,3}Etpt\(TF\):")
_LISTED = re.compile(r" (\d{1,9}(?:\.\d{1,6})?)(?:TF)?/(\d{1,7}),")
_WARNING = re.compile(
    r"STRAGGLER DETECTION WARNING: Some GPUs (have worse relative performance|performance dropped)\. Affected ranks: (.{1,60000})"
)
_AFFECTED = re.compile(
    r"StragglerId\(rank=(?P<rank>\d{1,7}), node='(?P<node>[^']{0,253})'\)|(?<![\w='])(?P<bare>\d{1,7})(?![\w'])"
)
_HEADING = re.compile(r"GPU (relative|individual) performance:\s*$")
_OF_ALL = re.compile(r"\s{0,4}(Worst|Best) performing (\d{1,7})/(\d{1,7}) ranks:\s*$")
_SCORE = re.compile(r"\s{0,4}Rank=(\d{1,7}) Node=(\S{1,253}) Score=(\d{1,3}\.\d{1,6})\s*$")
_SCORES = re.compile(r"GPU (relative|individual) perf scores: \{(.{0,60000})\}")
_OF_SCORES = re.compile(r"(\d{1,7}): (\d{1,3}(?:\.\d{1,6})?)(?=[,}]|$)")
_DETECTED = re.compile(r"DETECTED (RELATIVE|INDIVIDUAL) STRAGGLER GPU RANK=(\d{1,7}) NODE=(\S{1,253})")
_Row = tuple[int, str, float]  # rank, node, value
_END = "end"
_SCORED = frozenset({quantities.RELATIVE, quantities.INDIVIDUAL})
_NAMELESS = frozenset({"<notset>", "<unk>", ""})


def names_stragglers(text: str) -> bool:
    """Whether a line may be of a report."""
    return any(word in text for word in WORDS)


@dataclass(slots=True)
class _Report:
    """One report: rows of rank, node, quantity, value; ``parts``: what came of it so far, each of which comes once."""

    at: float
    rows: list[tuple[int, str, str, float]] = field(default_factory=list)
    parts: set[str] = field(default_factory=set)


class Stragglers:
    """The reports of one log."""

    def __init__(self) -> None:
        self._told_by = ""
        self._world_size: int | None = None
        self._sizes: dict[str, int] = {}
        self._stages_inside: dict[str, int] = {}
        self._listed = 0
        self._reports: deque[_Report] = deque(maxlen=MAX_REPORTS)
        self._scores_of = ""  # the quantity of the scores that follow

    def take(self, line: Line) -> None:
        """Read a line that has one of WORDS."""
        text = line.text
        if found := _SIZES.search(text):  # the job begins anew, and a rank may be on another machine than before
            self._reports.clear()
            self._world_size = int(found[1]) if 0 < int(found[1]) <= MOST_RANKS else None
            self._sizes = {
                "tp": int(found[2]),
                **{name: int(of[1]) for name, each in _OTHER_SIZES if (of := each.search(text))},
            }
        elif found := _STAGES_INSIDE.search(text):
            self._stages_inside = {"stages_inside": int(found[1] == "True")}
        elif "MnRtt/Rnk" in text:
            self._extremes(line)
        elif found := _ENDS_LISTED.search(text):
            self._listed = int(found[2])
            self._add(
                line,
                found[1],
                quantities.TFLOPS,
                ((int(one[2]), "", float(one[1])) for one in _LISTED.finditer(text + ",")),
            )
        elif found := _WARNING.search(text):
            self._warned(line, found)
        elif found := _HEADING.search(text):
            self._scores_of = _quantity(found[1])
            self._part(line, self._scores_of, "nvrx")
        elif found := _DETECTED.search(text):
            below = quantities.BELOW_RELATIVE if found[1] == "RELATIVE" else quantities.BELOW_INDIVIDUAL
            self._add(line, f"{below} {found[2]}", below, [(int(found[2]), found[3], math.nan)], "nvrx")
        elif found := _SCORES.search(text):
            rows = ((int(one[1]), "", float(one[2])) for one in _OF_SCORES.finditer(found[2]))
            self._add(line, _quantity(found[1]), _quantity(found[1]), rows, "nvrx")
        elif "Straggler report processing time" in text:
            self._part(line, _END, "nvrx")
        elif self._scores_of:
            self._scores(line)

    def _extremes(self, line: Line) -> None:
        self._part(line, "extremes", "megatron")
        for name, value, rank in _EXTREME.findall(line.text):
            quantity, unit = _OF_EXTREME[name]
            self._rows([(int(rank), "", float(value) * unit)], quantity)

    def _warned(self, line: Line, found: re.Match[str]) -> None:
        below = quantities.BELOW_RELATIVE if "relative" in found[1] else quantities.BELOW_INDIVIDUAL
        affected = _AFFECTED.finditer(found[2])
        rows = [(int(one["rank"] or one["bare"]), one["node"] or "", math.nan) for one in affected]
        self._add(line, below, below, rows, "nvrx")

    def _scores(self, line: Line) -> None:
        if found := _OF_ALL.match(line.text):
            self._world_size = int(found[3]) if 0 < int(found[3]) <= MOST_RANKS else None
            self._listed = int(found[2]) if found[1] == "Worst" else self._listed
        elif found := _SCORE.match(line.text):
            self._rows([(int(found[1]), found[2], float(found[3]))], self._scores_of)

    def _add(self, line: Line, part: str, quantity: str, rows: Iterable[_Row], told_by: str = "megatron") -> None:
        self._part(line, part, told_by)
        self._rows(rows, quantity)

    def _part(self, line: Line, part: str, told_by: str) -> None:
        """Begin a report where this part of one has come already, or where it comes first of all."""
        self._told_by = told_by
        newest = self._reports[-1] if self._reports else None
        warns = part in {quantities.BELOW_RELATIVE, quantities.BELOW_INDIVIDUAL}  # which stands before the scores
        if newest is None or newest.parts & ({part, _END} | (_SCORED if warns else frozenset())):
            newest = _Report(math.nan if line.at is None else line.at)
            self._reports.append(newest)
        newest.parts.add(part)

    def _rows(self, rows: Iterable[_Row], quantity: str) -> None:
        if not self._reports:
            return
        kept = self._reports[-1].rows
        for rank, node, value in rows:
            if rank <= LARGEST_RANK and len(kept) < MAX_ROWS:
                kept.append((rank, "" if node in _NAMELESS else node, quantity, value))

    def instants(self) -> Iterator[float]:
        """Yield when the reports were made, NaN where their lines have no stamp."""
        yield from (report.at for report in self._reports)

    def records(self, source: str, newest: int | None = None) -> Iterator[StragglerReports]:
        """Yield one record, where any report names a rank.

        ``newest``: these lines are a part of a log. So many reports are given, and those that name none and the sizes, too.
        """
        reports = list(self._reports)[-(newest or MAX_REPORTS) :]
        if not any(report.rows for report in reports) and (newest is None or not (reports or self._sizes)):
            return
        names: dict[str, int] = {}
        columns: dict[str, array[Any]] = {name: array(ARRAY_CODES[code]) for name, code in STRAGGLER_COLUMNS.items()}
        for number, report in enumerate(reports, 1):
            for rank, node, quantity, value in report.rows:
                of_node = names.setdefault(node, len(names)) if node else -1
                row = (number, report.at, rank, of_node, names.setdefault(quantity, len(names)), value)
                for column, each in zip(columns.values(), row, strict=True):
                    column.append(each)
        yield StragglerReports(
            source=source, told_by=self._told_by, world_size=self._world_size,
            sizes=self._sizes and self._sizes | self._stages_inside, listed=self._listed,
            reports=len(reports), strings=tuple(names), count=len(columns["report"]),
            columns={name: column_bytes(column) for name, column in columns.items()},
        )  # fmt: skip


def _quantity(word: str) -> str:
    return quantities.RELATIVE if word == "relative" else quantities.INDIVIDUAL
