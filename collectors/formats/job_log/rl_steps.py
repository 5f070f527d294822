"""Lines of a post-training framework's log that report a step or a phase: slime's, OpenRLHF's, AReaL's, ROLL's, NeMo-RL's.

verl's, TRL's and ms-swift's are among ``step_lines``, NeMo-RL's steps among ``step_blocks``. AReaL and ROLL say only that a step
ended. ``Timer update_weights start`` and ``Timer update_weights end (elapsed: 1.2s)`` nest;
``▶ Training policy...`` ends what was begun before it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from collectors.formats.job_log.job_lines import Line

_DICT = re.compile(r"(?:(?<![\w-])step|Global step) (\d{1,18})(?: \[\w{1,20}\])?: (\{'.*\})\s*$")
_ENDED = re.compile(r"\bTrain step (\d{1,18})/\d{1,18} done\.|\bpipeline step (\d{1,18}) finished$")
_NUMPY = re.compile(r"\bnp\.\w{1,20}\(([-\w.+]{1,40})\)")
_NO_LITERAL = re.compile(r"(?<=: )(-?(?:nan|inf))(?=[,}])")
_NAMES = {
    "train/loss": "loss", "policy_loss": "loss", "train/grad_norm": "gradient_norm", "actor_grad_norm": "gradient_norm",
    "timing/step_total": "seconds", "perf/step_time": "seconds",
    "response_length": "length",
}  # fmt: skip


def report(text: str) -> tuple[str, str, Mapping[str, float]] | None:
    """Return layout, number and values of the step that a line reports, None for any other."""
    if "tep " not in text:
        return None
    if (found := _DICT.search(text)) is not None:
        values = {_NAMES[name]: value for name, value in _numbers(found[2]).items() if name in _NAMES}
        length, seconds = values.pop("length", 0.0), values.get("seconds", 0.0)
        if length > 0 and seconds > 0:
            values["tokens_per_second"] = length / seconds  # of one of the answers that a step learns from
        layout = "openrlhf" if found[0].startswith("Global") else "slime"
        return (layout, found[1], values) if values else None
    if (found := _ENDED.search(text)) is not None:
        return "areal" if found[1] else "roll", found[1] or found[2], {}
    return None


def _numbers(text: str) -> dict[str, float]:
    """Return the numbers of a dict that Python printed; a NaN is printed as no Python can read it."""
    try:
        given: Any = ast.literal_eval(_NO_LITERAL.sub(r"'\1'", _NUMPY.sub(r"\1", text)))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    found: dict[str, float] = {}
    for name, value in given.items() if isinstance(given, dict) else ():
        if isinstance(value, int | float) or value in {"nan", "-nan", "inf", "-inf"}:
            try:
                found[str(name)] = float(value)
            except OverflowError:
                continue
    return found


MAX_NESTED = 16
_TIMER = re.compile(
    r"(?:^|[\s\]-])Timer (?P<name>[A-Za-z_]\w{0,63}) (?:(?P<start>start)|end \(elapsed: [\d.]{1,12}m?s\))$"
)
_BEGUN = re.compile(
    r"▶ (?P<what>Preparing batch|Generating responses|Processing rewards|Computing \w+|Preparing for \w+|Training policy"
    r"|Refitting|Starting validation)"
)


@dataclass(slots=True)
class Phases:
    """The phases that a process is inside of, the innermost last. ``known``: it has reported any.

    Only lines that no launcher has prefixed count: a driver's log repeats those of its actors, wherever they run.
    """

    open: list[tuple[str, float | None]] = field(default_factory=list)
    known: bool = False

    def take(self, line: Line) -> None:
        """Take a line that holds ``Timer `` or ``▶ ``."""
        if line.stream:
            return
        if (timer := _TIMER.search(line.text)) is not None:
            names = [name for name, _ in self.open]
            if timer["start"]:
                self.open = [*self.open, (timer["name"], line.at)][-MAX_NESTED:]
            elif timer["name"] in names:
                del self.open[len(names) - 1 - names[::-1].index(timer["name"]) :]
            self.known = True
        elif (begun := _BEGUN.match(line.text.lstrip())) is not None:
            self.open, self.known = [(begun["what"].lower(), line.at)], True

    def newest(self) -> tuple[str, float | None] | None:
        """Return the innermost phase and when it began; "" between two of them, None where no line reports any."""
        return None if not self.known else self.open[-1] if self.open else ("", None)
