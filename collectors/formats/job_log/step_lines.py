"""A line of a training log that tells of a step: Megatron-LM's, TorchTitan's, verl's, a JSON line, or a plain one.

Layouts are those that the trainers print today and printed in earlier releases. Units are made one: seconds, tokens a
second as the trainer counts them (a GPU's in all three), teraFLOP a second of a GPU.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from sys import byteorder
from typing import Any

from collectors.formats.job_log.job_lines import Line, instant
from collectors.records import STEP_COLUMNS

NOT_TOLD = math.nan
MOST_STEP = 1 << 62
MOST_INSTANT = 1e11  # UTC seconds; later than this is no instant, or is one in milliseconds
CODES = {"<i8": "q", "<f8": "d", "<i1": "b"}


@dataclass(frozen=True, slots=True)
class Step:
    """What one line tells of one step; NaN: it does not. ``nan``: 1 the loss is NaN, 2 the gradient norm, 3 both."""

    told_by: str
    step: int
    at: float = NOT_TOLD
    seconds: float = NOT_TOLD
    loss: float = NOT_TOLD
    gradient_norm: float = NOT_TOLD
    tokens_per_second: float = NOT_TOLD
    tflops: float = NOT_TOLD
    skipped: int = 0
    nan: int = 0
    rank: int | None = None  # that the line itself names

    def of(self, rank: int | None) -> Step:
        """Return the same step of this rank."""
        return replace(self, rank=rank)


def columns(steps: Iterable[Step], shift_seconds: float = 0.0, written_at: float = NOT_TOLD) -> dict[str, bytes]:
    """Return the steps as the columns of a ``Steps`` record, their stamps shifted.

    ``written_at`` is when the log was last written to: the newest step's instant where its line gives none.
    """
    rows = [replace(step, at=step.at + shift_seconds) for step in steps]
    if rows and math.isnan(rows[-1].at):
        rows[-1] = replace(rows[-1], at=written_at)
    built = {}
    for name, type_code in STEP_COLUMNS.items():
        column = array(CODES[type_code], [getattr(row, name) for row in rows])
        if byteorder == "big":
            column.byteswap()
        built[name] = column.tobytes()
    return built


_NUMBER = r"(?:np\.\w+\()?([-+]?(?:[\d.][\d,.]*(?:[eE][-+]?\d+)?|nan|inf|NaN|Infinity))\)?"
_MEGATRON = re.compile(r"\biteration\s+(\d{1,18})\s*/\s*\d+ \|")
_TORCHTITAN = re.compile(r"\bstep:\s*(\d{1,18})\s+(?=(?:loss|grad_norm|memory):)")
_TORCHTITAN_FIELD = re.compile(r"\b(loss|grad_norm|tps|(?:est_)?tflops|elapsed_time_per_step|ms/step):\s*" + _NUMBER)
_VERL = re.compile(r"\bstep:(\d{1,18}) - ")
_WHOLE_NUMBER = re.compile(_NUMBER + r"$")
_PLAIN = re.compile(r"\b(?:global[_ ]?)?(?:step|iter|iteration)\b\]?[ :=]*\[?(\d{1,18}+)(?!\d|\.\d|%)", re.IGNORECASE)
_PLAIN_FIELD = re.compile(
    r"\b(?:train(?:ing)?[/_ ])?(loss|grad(?:ient)?[_ ]?norm|(?:step[_ ])?time|dt)\b[ :=]+" + _NUMBER + r" ?(ms|s)?\b",
    re.IGNORECASE,
)


def may_tell(text: str) -> bool:
    """Tell quickly whether a line can speak of a step: nearly all lines of a log cannot."""
    return "step" in text or "iter" in text or "Step" in text or "Iter" in text


def read_step(line: Line) -> Step | None:
    """Return the step that a line tells of, None for any other line."""
    text = line.text
    if not may_tell(text):
        return None
    for read in (_json, _megatron, _torchtitan, _verl, _plain):
        if (found := read(text)) is not None:
            return _dated(found, line)
    return None


def _dated(found: Step, line: Line) -> Step:
    at = found.at if not math.isnan(found.at) else line.at
    rank = found.rank if found.rank is not None else line.rank
    return replace(found, at=NOT_TOLD if at is None else at, rank=rank)


def _number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return NOT_TOLD


def _step(told_by: str, number: str | int, values: Mapping[str, float], *, skipped: bool = False) -> Step:
    """Build a step; a loss or norm that the line gives as NaN is told by ``nan``, which an absent one is not."""
    nan = sum(bit for name, bit in (("loss", 1), ("gradient_norm", 2)) if math.isnan(values.get(name, 0.0)))
    return Step(
        told_by,
        int(number),
        seconds=values.get("seconds", NOT_TOLD),
        loss=values.get("loss", NOT_TOLD),
        gradient_norm=values.get("gradient_norm", NOT_TOLD),
        tokens_per_second=values.get("tokens_per_second", NOT_TOLD),
        tflops=values.get("tflops", NOT_TOLD),
        skipped=int(skipped),
        nan=nan,
    )


def _megatron(text: str) -> Step | None:
    found = _MEGATRON.search(text) if "iteration" in text else None
    if found is None:
        return None
    values: dict[str, float] = {}
    skipped = False
    for part in text[found.end() :].split("|"):
        name, _, told = part.strip().rpartition(" ")
        name = name.rstrip(" :").lower()
        if _WHOLE_NUMBER.match(told) is None:
            continue
        value = _number(told)
        if name == "elapsed time per iteration (ms)":
            values["seconds"] = value / 1000
        elif name == "grad norm":
            values["gradient_norm"] = value
        elif "flop/s" in name or "flop/sec" in name:
            values["tflops"] = value
        elif "token" in name and "sec" in name:
            values["tokens_per_second"] = value
        elif name == "number of skipped iterations":
            skipped = value > 0
        elif name == "lm loss" or (name.endswith("loss") and "loss" not in values):
            values["loss"] = value
    return _step("megatron", found[1], values, skipped=skipped)


_TITAN_NAMES = {"loss": "loss", "grad_norm": "gradient_norm", "tps": "tokens_per_second", "tflops": "tflops",
                "est_tflops": "tflops", "elapsed_time_per_step": "seconds"}  # fmt: skip


def _torchtitan(text: str) -> Step | None:
    found = _TORCHTITAN.search(text) if "step:" in text else None
    if found is None:
        return None
    values = {}
    for field in _TORCHTITAN_FIELD.finditer(text, found.end()):
        value = _number(field[2])
        name = _TITAN_NAMES.get(field[1], "seconds")
        values[name] = value / 1000 if field[1] == "ms/step" else value
    return _step("torchtitan", found[1], values)


_VERL_NAMES = {
    "timing_s/step": "seconds", "perf/time_per_step": "seconds", "actor/pg_loss": "loss", "train/loss": "loss",
    "actor/grad_norm": "gradient_norm", "train/grad_norm": "gradient_norm", "perf/throughput": "tokens_per_second",
    "train/time(s)": "seconds",
}  # fmt: skip


def _verl(text: str) -> Step | None:
    found = _VERL.search(text) if "step:" in text else None
    if found is None:
        return None
    values: dict[str, float] = {}
    for part in text[found.end() :].split(" - "):
        name, _, value = part.strip().rpartition(":")
        target = _VERL_NAMES.get(name)
        if target and target not in values and (number := _WHOLE_NUMBER.match(value)):
            values[target] = _number(number[1])
    return _step("verl", found[1], values)


def _plain(text: str) -> Step | None:
    found = _PLAIN.search(text) if "oss" in text or "OSS" in text else None
    if found is None:
        return None
    values: dict[str, float] = {}
    for name, value, unit in _PLAIN_FIELD.findall(text):
        word = name.lower()
        if word == "loss":
            values.setdefault("loss", _number(value))
        elif word.startswith("grad"):
            values.setdefault("gradient_norm", _number(value))
        elif unit:
            values.setdefault("seconds", _number(value) / (1000 if unit.lower() == "ms" else 1))
    return _step("plain", found[1], values) if "loss" in values else None


_JSON_NAMES = {
    "seconds": ("seconds", "step_seconds", "step_time"),
    "loss": ("loss", "lm_loss", "train_loss", "train/loss", "actor/pg_loss"),
    "gradient_norm": ("gradient_norm", "grad_norm", "train/grad_norm", "actor/grad_norm"),
    "tokens_per_second": ("tokens_per_second", "tps", "perf/throughput"),
    "tflops": ("tflops",),
}
_JSON_STEPS = ("step", "global_step", "iteration")


def _json(text: str) -> Step | None:
    begin = text.find("{")
    if begin < 0 or '"' not in text or not text.rstrip().endswith("}"):
        return None
    try:
        given = json.loads(text[begin:])  # and not msgspec: trainers write NaN, which only this one reads
    except (ValueError, RecursionError):
        return None
    number = next((given[name] for name in _JSON_STEPS if name in given), None) if isinstance(given, dict) else None
    if type(number) is not int or not 0 <= number < MOST_STEP:
        return None
    inner = given.get("data")  # verl's file logger keeps the metrics one level down
    told = {**inner, **given} if isinstance(inner, dict) else given
    values = {name: value for name, keys in _JSON_NAMES.items() if (value := _first(told, keys)) is not None}
    if not values:
        return None  # it mentions a step but tells nothing of it
    step = _step("jsonl", number, values, skipped=told.get("skipped") is True)
    rank = told.get("rank")
    return replace(step, at=_instant(told), rank=rank if type(rank) is int and 0 <= rank < 1 << 30 else None)


def _first(told: Mapping[str, Any], keys: Iterable[str]) -> float | None:
    for key in keys:
        value = told.get(key)
        if isinstance(value, str) and value.lower() in {"nan", "inf", "-inf", "infinity", "-infinity"}:
            return float(value)  # JSON has no such numbers: some trainers write words
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                return float(value)
            except OverflowError:  # an integer of hundreds of digits
                return math.inf
    return None


def _instant(told: Mapping[str, Any]) -> float:
    value = told.get("at", told.get("timestamp", told.get("time")))
    if isinstance(value, str):
        found = instant(value)
        return NOT_TOLD if found is None else found
    told_so = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < MOST_INSTANT
    return float(value) if told_so else NOT_TOLD
