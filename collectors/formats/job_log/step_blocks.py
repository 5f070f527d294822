"""Steps whose number stands on a line of its own, above their values: those of NeMo-RL, OLMo, OLMo-core and Composer.

    [step=410/10000,epoch=0]            [batch=410/10000]:                 ========== Step 410/10000 ==========
        train/CE loss=2.345                  Train loss/train/total: 2.3451    • Total step time: 12.50s

What OLMo and Composer give as batches a second is a mean over a hundred steps, and is left out. A step is one record, to which
each line that is read adds its value.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass

from collectors.formats.job_log.job_lines import Line
from collectors.formats.job_log.step_lines import NOT_REPORTED, Step, dated, step_from

MAX_STREAMS = 4_096
MOST_LINES = 200  # of one step

_HEADER = re.compile(
    r"^=+ Step (?P<nemo_rl>\d{1,18})(?:/\d{1,18})? =+$"
    r"|(?:^|\s)\[step=(?P<olmo>\d{1,18})/\d{1,18}(?:,[^\]]{0,160})?\]$"
    r"|(?:^|\s)(?:\[epoch=\d{1,9}(?:/\d{1,9})?\])?\[batch=(?P<composer>\d{1,18})/\d{1,18}\]:$"
)
_NUMBER = r"(-?(?:\d[\d,]{0,17}(?:\.\d{0,12})?(?:e[-+]?\d{1,4})?|nan|inf))"
_VALUE = re.compile(rf"^\s*(?:Train )?([a-z0-9_]+/[\w/ ]{{1,40}})(?:=|: ){_NUMBER}$")
_OTHER_VALUE = re.compile(r"^\s*[A-Za-z][\w/ ().%-]{0,80}(?:=|: )\S")
_TOTAL = re.compile(r"^\s*• Total step time: (\d[\d.]{0,12})s$")
_NAMES = {
    "train/CrossEntropyLoss": "loss", "train/CE loss": "loss", "loss/train/total": "loss",
    "optim/total_grad_norm": "gradient_norm", "optim/total grad norm": "gradient_norm",
    "throughput/device/TPS": "tokens_per_second",
}  # fmt: skip


WORDS = ("[batch=", *(f"{name}{':' if name.startswith('loss') else '='}" for name in _NAMES))
"""A line with one of them may be of such a step, beside those that have the word step."""


def may_begin(text: str) -> bool:
    """Whether a line without the word step can be the first of one."""
    return "[batch=" in text


@dataclass(slots=True)
class _Open:
    """The step that a stream is in. ``at``: the stamp of the line with its number; ``step``: what was read of it so far."""

    layout: str
    number: str
    line: int
    at: float | None
    step: Step | None = None


class StepBlocks:
    """The step that each stream is in."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, _Open] = OrderedDict()

    def __bool__(self) -> bool:
        """Whether a line without the word step may be of one."""
        return bool(self._open)

    def read(self, line: Line) -> Step | None:
        """Return the step that a line begins or says more of; None: the line is of none."""
        if (header := _HEADER.search(line.text)) is not None:
            layout = header.lastgroup or ""
            self._open[line.stream] = one = _Open(layout, header[layout], line.number, line.at)
            self._open.move_to_end(line.stream)
            if len(self._open) > MAX_STREAMS:
                self._open.popitem(last=False)
            return _with(one, line, {}) if layout == "olmo" else None  # the values show that the others are steps
        found = self._open.get(line.stream)
        if found is None:
            return None
        return self._total(line, found) if found.layout == "nemo_rl" else self._value(line, found)

    def _value(self, line: Line, found: _Open) -> Step | None:
        value = _VALUE.match(line.text)
        if line.number - found.line > MOST_LINES or (value is None and _OTHER_VALUE.match(line.text) is None):
            del self._open[line.stream]
            return None
        if value is not None and (name := _NAMES.get(value[1])) is not None:
            return _with(found, line, {name: float(value[2].replace(",", ""))})
        return None

    def _total(self, line: Line, found: _Open) -> Step | None:
        total = _TOTAL.match(line.text)
        if total is None:
            return None
        del self._open[line.stream]
        found.at = line.at
        return _with(found, line, {"seconds": float(total[1].rstrip("."))} if total[1].count(".") < 2 else {})


def _with(one: _Open, line: Line, values: dict[str, float]) -> Step:
    """Return the step with further values."""
    further = step_from(one.layout, one.number, values)
    if one.step is None:
        one.step = further
        further.at = NOT_REPORTED if one.at is None else one.at
        return dated(further, line)
    for name in values:
        setattr(one.step, name, getattr(further, name))
    one.step.nan |= further.nan
    return one.step
