"""A line of a training log that reports a step: Megatron-LM's, TorchTitan's, verl's, transformers', JSON, or a plain print.

Layouts are those that the trainers print today and printed in earlier releases. Units are made one: seconds, tokens a
second as the trainer counts them (a GPU's in Megatron-LM, TorchTitan and verl), teraFLOP a second of a GPU.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from collectors.formats.job_log import fairseq_lines, megatron_lines, plain_lines, rl_steps, vision_lines
from collectors.formats.job_log.job_lines import Line, instant
from collectors.formats.job_log.work_rates import rate_by_size

NOT_REPORTED = math.nan
NO_NUMBER = -1
MAX_STEP = 1 << 62
MAX_INSTANT = 1e11  # UTC seconds; a later one is in milliseconds, or none


@dataclass(slots=True)
class Step:
    """What one line reports of one step; NaN: nothing. ``nan``: 1 the loss is NaN, 2 the norm, 3 both; or more (STEP_COLUMNS)."""

    layout: str
    step: int  # NO_NUMBER where the line gives none
    at: float = NOT_REPORTED
    seconds: float = NOT_REPORTED
    loss: float = NOT_REPORTED
    gradient_norm: float = NOT_REPORTED
    tokens_per_second: float = NOT_REPORTED
    samples_per_second: float = NOT_REPORTED
    tflops: float = NOT_REPORTED
    skipped: int = 0
    nan: int = 0
    rank: int | None = None  # that the line itself names
    null: bool = False  # its JSON gives the loss as null

    @property
    def loss_is_none(self) -> bool:
        """Whether the loss is NaN or infinite."""
        return bool(self.nan & 1) or math.isinf(self.loss)


_NUMBER = r"(?:np\.\w+\()?([-+]?(?:[\d.][\d,.]*(?:[eE][-+]?\d+)?|nan|inf|NaN|Infinity))\)?"
_WRAPPED = re.compile(r"\s{0,16}[a-z][\w ()/.-]{1,48}: {1,4}\S{1,24}\s{0,4}(?:\||$)")
NULL = 16  # in ``nan``: the loss is null, as writers of JSON put NaN
_TORCHTITAN = re.compile(r"\bstep:\s*(\d{1,18})\s+(?=(?:loss|grad_norm|memory):)")
_TORCHTITAN_FIELD = re.compile(r"\b(loss|grad_norm|tps|(?:est_)?tflops|elapsed_time_per_step|ms/step):\s*" + _NUMBER)
_OF_TORCHTITAN = re.compile(r"\b(?:memory|tps|(?:est_)?tflops|elapsed_time_per_step|ms/step):")
"""What plain lines that begin as TorchTitan's do not have."""
_VERL = re.compile(r"\bstep:(\d{1,18}) - ")
_KERAS = re.compile(  # its bar, drawn or not; the count begins again with every epoch
    r"\b\d{1,12}/\d{1,12} (?:\[[=>. ]{3,120}\] |[^\w\s/]{3,240} )?(?:- )?(?:ETA: )?[\d:]{1,9}[mu]?s?"
    r"(?: \d{1,9}[mu]?s/(?:step|sample|epoch))?(?: - [a-z]\w{0,40}: [\d.eE+-]{1,24}){0,8}? - loss: " + _NUMBER
)
_EXAMPLES = re.compile(  # of PyTorch and Horovod: samples of the epoch, not a step's number
    r"\bTrain Epoch: \d{1,9} \[\d{1,12}/\d{1,12}(?: \( {0,2}\d{1,3}%\))?\]\s{1,8}Loss: " + _NUMBER
)
_WHOLE_NUMBER = re.compile(_NUMBER + r"$")
_DICT_FIELD = re.compile(r"'(\w+)': '?" + _NUMBER + r"'?(?=[,}])")
_SWIFT = re.compile(r"'global_step/max_steps': '(\d{1,18})/\d")
_SWIFT_SPEED = re.compile(r"'train_speed\(iter/s\)': '?(\d[\d.]{0,20})")  # a mean since the start
_PROGRESS_BAR = re.compile(r"(\d{1,12})/\d{1,12} \[\d[\d:]*<")


WORDS = (
    "step",
    "iter",
    "Step",
    "Iter",
    "'loss'",
    "ETA: ",
    "s - loss: ",
    *plain_lines.WORDS,
    "Train Epoch: ",
    fairseq_lines.WORD,
    *vision_lines.WORDS,
)


def may_report(text: str) -> bool:
    """Whether a line can report a step, quickly: nearly all lines of a log cannot."""
    return (  # WORDS, unrolled
        "step" in text or "iter" in text or "Step" in text or "Iter" in text or "'loss'" in text
        or "Epoch [" in text or "Epoch(t" in text or "ETA: " in text or "s - loss: " in text or "Train Epoch: " in text
        or "Epoch: [" in text or "Train: " in text
        or "atch" in text or "logging_writer.py:" in text or " it " in text or text.startswith("it ")
        or ("loss" in text and fairseq_lines.WORD in text)
    )  # fmt: skip


def read_step(line: Line, before: str = "") -> Step | None:
    """Return the step that a line reports, None for any other line. ``before``: what a progress bar wrote on it earlier."""
    text = line.text
    if not may_report(text):
        return None
    for read in (_json, _megatron, _torchtitan, _verl, _keras, _post_training, _examples):
        if (found := read(text)) is not None:
            return dated(found, line)
    found = step_from(*plain) if (plain := plain_lines.report(text)) is not None else _transformers(text, before)
    return None if found is None else dated(found, line)


def _examples(text: str) -> Step | None:
    found = _EXAMPLES.search(text) if "Train Epoch: " in text else None
    return None if found is None else step_from("plain", NO_NUMBER, {"loss": _number(found[1])})


def _post_training(text: str) -> Step | None:
    found = rl_steps.report(text) or vision_lines.report(text) or fairseq_lines.report(text)
    return None if found is None else step_from(*found)


def dated(found: Step, line: Line) -> Step:
    """Return a step with the time and the rank of its line, where it has none of its own."""
    if math.isnan(found.at) and (at := line.at) is not None:
        found.at = at
    if found.rank is None:
        found.rank = line.rank
    return found


def _number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return NOT_REPORTED


def step_from(layout: str, number: str | int, values: Mapping[str, float], *, skipped: bool = False) -> Step:
    """Build a step; ``nan`` marks a loss or norm that the line gives as NaN, and the bits of ``odd``; not given is NaN too."""
    nan = sum(bit for name, bit in (("loss", 1), ("gradient_norm", 2)) if math.isnan(values.get(name, 0.0)))
    return Step(
        layout,
        int(number),
        seconds=values.get("seconds", NOT_REPORTED),
        loss=values.get("loss", NOT_REPORTED),
        gradient_norm=values.get("gradient_norm", NOT_REPORTED),
        tokens_per_second=values.get("tokens_per_second", NOT_REPORTED),
        samples_per_second=values.get("samples_per_second", NOT_REPORTED),
        tflops=values.get("tflops", NOT_REPORTED),
        skipped=int(skipped or values.get("skipped", 0.0) > 0),
        nan=nan | int(values.get("odd", 0)),
    )


def _megatron(text: str) -> Step | None:
    found = megatron_lines.report(text)
    return None if found is None else step_from(*found)


def is_wrapped(text: str) -> bool:
    """Whether Megatron-LM's line may go on below, if it ends in a bar: a terminal or a person broke it there."""
    return "number of skipped" not in text and megatron_lines.LINE.search(text) is not None


def goes_on(text: str) -> bool:
    """Whether a line is a further part of such a line."""
    return _WRAPPED.match(text) is not None


_TITAN_NAMES = {"loss": "loss", "grad_norm": "gradient_norm", "tps": "tokens_per_second", "tflops": "tflops",
                "est_tflops": "tflops", "elapsed_time_per_step": "seconds"}  # fmt: skip


def _torchtitan(text: str) -> Step | None:
    found = _TORCHTITAN.search(text) if "step:" in text else None
    if found is None or _OF_TORCHTITAN.search(text, found.end()) is None:
        return None
    values = {}
    for field in _TORCHTITAN_FIELD.finditer(text, found.end()):
        value = _number(field[2])
        name = _TITAN_NAMES.get(field[1], "seconds")
        values[name] = value / 1000 if field[1] == "ms/step" else value
    return step_from("torchtitan", found[1], values)


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
    return step_from("verl", found[1], values)


def _keras(text: str) -> Step | None:
    found = _KERAS.search(text) if "loss: " in text else None
    return None if found is None else step_from("keras", NO_NUMBER, {"loss": _number(found[1])})


def _transformers(text: str, before: str) -> Step | None:
    """Read the dict that transformers' Trainer prints; its step is in the dict, in the progress bar before it, or unknown."""
    begin = text.find("{'")
    if begin < 0 or "'loss'" not in text:
        return None
    given = {name: _number(value) for name, value in _DICT_FIELD.findall(text, begin)}
    if (swift := _SWIFT.search(text, begin)) is not None:
        given["global_step"] = float(swift[1])
        if (speed := _SWIFT_SPEED.search(text, begin)) is not None and _number(speed[1]) > 0:
            given["step_time"] = 1 / _number(speed[1])
    if "loss" not in given or not given.keys() & {"learning_rate", "epoch", "step", "global_step", "iteration"}:
        return None
    number = next((given[name] for name in _JSON_STEPS if name in given), None)
    if number is None or not 0 <= number < MAX_STEP:
        bars = _PROGRESS_BAR.findall(before + text[:begin])
        number = int(bars[-1]) if bars else NO_NUMBER
    values = {name: value for name, keys in _JSON_NAMES.items() if (value := _first(given, keys)) is not None}
    return step_from("transformers", int(number), plain_lines.paced(before + text[:begin]) | values)


_JSON_NAMES = {
    "seconds": ("seconds", "step_seconds", "step_time", "time_this_iter_s"),
    "loss": ("loss", "lm_loss", "train_loss", "train/loss", "actor/pg_loss"),
    "gradient_norm": ("gradient_norm", "grad_norm", "train/grad_norm", "actor/grad_norm"),
    "tokens_per_second": ("tokens_per_second", "tokens_per_second_per_gpu", "tps", "perf/throughput"),
    "samples_per_second": ("samples_per_second", "samples_per_sec", "images_per_second", "examples_per_second"),
    "tflops": ("tflops",),
}
_ROW_KINDS, _EVALUATION = ("phase", "split", "mode", "stage"), ("val", "eval", "test")
_JSON_STEPS = ("step", "global_step", "iteration", "current_steps")


def _json(text: str) -> Step | None:
    begin = text.find("{")
    if begin < 0 or '"' not in text or not text.rstrip().endswith("}"):
        return None
    try:
        given = json.loads(text[begin:])  # and not msgspec: trainers write NaN, which only this one reads
    except (ValueError, RecursionError):
        return None
    number = next((given[name] for name in _JSON_STEPS if name in given), None) if isinstance(given, dict) else None
    if type(number) is not int or not 0 <= number < MAX_STEP:
        return None
    inner = given.get("data")  # verl's file logger keeps the metrics one level down
    given = {**inner, **given} if isinstance(inner, dict) else given
    if any(str(given.get(name)).lower().startswith(_EVALUATION) for name in _ROW_KINDS):
        return None
    values = {name: value for name, keys in _JSON_NAMES.items() if (value := _first(given, keys)) is not None}
    if not values.keys() & {"tokens_per_second", "samples_per_second"}:
        values |= rate_by_size(given, values.get("seconds", 0.0))
    null = "loss" not in values and any(given.get(name, "") is None for name in _JSON_NAMES["loss"])
    if not values and not (null and not any(word in name for name in given for word in _EVALUATION)):
        return None  # it mentions a step and reports nothing of it
    step = step_from("jsonl", number, values, skipped=given.get("skipped") is True)
    rank = given.get("rank")
    step.at, step.null = _instant(given), null
    step.rank = rank if type(rank) is int and 0 <= rank < 1 << 30 else None
    return step


def _first(given: Mapping[str, Any], keys: Iterable[str]) -> float | None:
    for key in keys:
        value = given.get(key)
        if isinstance(value, str) and value.lower() in {"nan", "inf", "-inf", "infinity", "-infinity"}:
            return float(value)  # JSON has no such numbers: some trainers write words
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                return float(value)
            except OverflowError:  # an integer of hundreds of digits
                return math.inf
    return None


def _instant(given: Mapping[str, Any]) -> float:
    value = given.get("at", given.get("timestamp", given.get("time")))
    if isinstance(value, str):
        found = instant(value)
        return NOT_REPORTED if found is None else found
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < MAX_INSTANT
    return float(value) if known else NOT_REPORTED
