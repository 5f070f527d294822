"""Steps as people print them themselves: ``step 40: loss 2.31, time 523.1ms``, ``batch=40 loss=2.31 sec=0.25``.

A line without a loss is of a step where hardly more than its number and its duration stands in it: ``step 40 took 0.25 s``.
"""

from __future__ import annotations

import math
import re

from collectors.formats.job_log.log_marks import is_evaluation
from collectors.formats.job_log.work_rates import work_rates

WORDS = ("atch", " it ", "logging_writer.py:")
NO_NUMBER = -1

_NUMBER = r"(?:np\.\w+\()?([-+]?(?:[\d.][\d,.]*(?:[eE][-+]?\d+)?|nan|inf|NaN|Infinity))\)?"
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "secs": 1.0, "seconds": 1.0}
_UNIT = r"(?:[nuµm]?s|secs?|seconds)"
_COUNT = re.compile(
    r"\b(?:(?:global[_ ]?)?(?:steps?|iter|iteration|it)|(?P<again>(?:mini[- ]?)?batch))\b\]?[ :=]*\[?"
    r"(?P<number>\d{1,18}+)(?!\d|\.\d|%|(?:st|nd|rd|th)\b)",
    re.IGNORECASE,
)  # batches are counted again with every epoch
_FIELD = re.compile(
    r"(?:\b(val\w*|eval\w*|test)[/_ ])?\b(?:(?:train(?:ing)?|total)[/_ ])?"
    r"(loss|grad(?:ient)?[_ ]?norm)\b(?: train\b)?[ :=]+" + _NUMBER,
    re.IGNORECASE,
)
_OF_STEP = r"(?:step|iter(?:ation)?|batch)"
_OWN_TIME = (  # of a step by its name
    rf"{_OF_STEP}[_ ]?(?:time|duration|latency|seconds|secs?)|(?:time|secs?|seconds)(?:/|[_ ]per[_ ]){_OF_STEP}"
    rf"|(?<![a-z] )(?:secs?|seconds)(?!/)|{_OF_STEP}(?=[_ ]\(?{_UNIT}\b)"
)
_TIME = re.compile(  # of the other names the unit shows that they are durations
    rf"(?<![\w./-])(?:(?P<own>{_OWN_TIME})|dt|took|time|duration)(?:[_ ]?\(?(?P<unit>{_UNIT})\)?)?(?: ?[:=]+ ?| )"
    rf"(?P<number>\d[\d.]{{0,20}}(?:[eE][-+]?\d{{1,3}})?) ?(?P<after>{_UNIT})?(?![\w/]|[.:-]\d)",
    re.IGNORECASE,
)
_OF_OTHER = re.compile(  # whose time it is; "loss nan, took 0.25 s" is the step's
    rf"(?<![\w./-])(?!(?:train|training|info|{_OF_STEP})\b)[a-z][\w./-]*[ :=(]{{1,3}}$", re.IGNORECASE
)
_ALONE = re.compile(  # right after the number of the step, and behind nothing but a stamp, a level or a logger's name
    rf"(?:/\d{{1,18}}| of \d{{1,18}})?\]?[\s:|,(-]{{0,4}}(?:(?:done|finished|completed|ended|took|time|in)[:= ]{{1,2}}){{0,2}}"
    rf"(?P<number>\d[\d.]{{0,20}}) ?(?P<unit>{_UNIT})\)?(?:$|[,;|.]?\s|,)",
    re.IGNORECASE,
)
_TALK_BEFORE = re.compile(
    r"\b(?!(?:train|training|epoch|rank|global|worker|info|debug)\b)[a-z][\w-]* (?:\d+ )?\W{0,2}$", re.IGNORECASE
)
_OTHER_WORK = re.compile(
    r"\b(?:val|valid|validation|eval\w*|evaluat\w*|test|sav\w*|load\w*|checkpoint\w*|compil\w*|generat\w*|warm\w*|prefetch\w*"
    r"|wait\w*|data|stall\w*|gc|forward|backward|fwd|bwd|optim\w*|comm\w*|\w*reduce|cop(?:y|ies)|h2d|wall|elapsed)(?:\b|_)",
    re.IGNORECASE,
)
_WRITTEN = re.compile(r"\blogging_writer\.py:\d{1,5}\] \[(\d{1,18})\] ")  # of JAX programs, by clu
_WRITTEN_FIELD = re.compile(rf"(?<![\w/])(?:(?:train|training|timing)/)?(loss|steps_per_sec(?:ond)?)={_NUMBER}")
_NOT_TRAINING = re.compile(r"\b(?:val|valid|validation|eval|evaluation|evaluating|test)\b", re.IGNORECASE)
_WORD_BEFORE = re.compile(r"\b(?!nan |inf )[A-Za-z][\w-]* $", re.IGNORECASE)
_OTHER_BEFORE = re.compile(rf"(?:{_OTHER_WORK.pattern})\W{{0,3}}$", re.IGNORECASE)
_PACE = re.compile(
    r"(?<![\w.,])(?P<number>\d[\d.]{0,11}) ?"
    rf"(?:(?P<unit>[nuµm]?s|sec)/(?:it|{_OF_STEP})|(?:it|iters?|steps?)/s(?:ec)?)\b"
)


def report(text: str) -> tuple[str, int, dict[str, float]] | None:
    """Return the layout, the number of the step and its values; None for a line that reports none."""
    if (written := _WRITTEN.search(text)) is not None:
        given = {field[1]: _number(field[2]) for field in _WRITTEN_FIELD.finditer(text, written.end())}
        values = {"loss": given["loss"]} if "loss" in given else {}
        if (rate := given.get("steps_per_sec", given.get("steps_per_second", 0.0))) > 0:
            values["seconds"] = 1 / rate
        return ("plain", int(written[1]), values) if "loss" in values else None
    found = _COUNT.search(text)
    if found is None or _NOT_TRAINING.search(text, 0, found.start()):
        return None
    number = NO_NUMBER if found["again"] else int(found["number"])
    values = _losses(text) if "oss" in text or "OSS" in text else {}
    if "loss" in values:
        return "plain", number, paced(text) | values | (_duration(text, found) or _alone(text, found.end()))
    if "oss" in text or _OTHER_WORK.search(text) or _TALK_BEFORE.search(text, 0, found.start()):
        return None
    own = _duration(text, found, by_name=True) or _alone(text, found.end())
    return ("plain", number, values | work_rates(text) | own) if own else None


def _losses(text: str) -> dict[str, float]:
    """Return the loss and the norm of the gradients: of several losses that of the whole model, "kl loss" is none."""
    values: dict[str, float] = {}
    first: re.Match[str] | None = None
    for field in _FIELD.finditer(text):
        other, name, value = field.groups(default="")
        if other or is_evaluation(text, field.start()):
            continue
        if name.lower() != "loss":
            values.setdefault("gradient_norm", _number(value))
        elif first is None or (_of_part(text, first) and not _of_part(text, field)):
            values["loss"], first = _number(value), field
    return values


def _duration(text: str, count: re.Match[str], *, by_name: bool = False) -> dict[str, float]:
    """Return the first duration that is a step's. ``by_name``: only one whose name is of a step."""
    for field in _TIME.finditer(text):
        unit = field["unit"] or field["after"]
        # detectron2 and others of its kind give seconds without a unit
        known = field["own"] or (not by_name and (unit or "eta: " in text))
        is_count = field.start() <= count.start("number") < field.end()  # Composer's "time/batch: 40"
        if not known or is_count or _OTHER_BEFORE.search(text, 0, field.start()):
            continue
        if not field["own"] and (is_evaluation(text, field.start()) or _OF_OTHER.search(text, 0, field.start())):
            continue
        return {"seconds": _number(field["number"]) * _UNITS[(unit or "s").lower()]}
    return {}


def _alone(text: str, end: int) -> dict[str, float]:
    """Return the duration that stands right after the number of a step, or its pace."""
    if (found := _ALONE.match(text, end)) is not None:
        return {"seconds": _number(found["number"]) * _UNITS[found["unit"].lower()]}
    return {name: value for name, value in paced(text).items() if name == "seconds"}


def paced(text: str) -> dict[str, float]:
    """Return the seconds of a step by the last pace without a name, "1.82 s/it", "3.4 it/s", and the work a second."""
    found = work_rates(text)
    *_, last = [None, *_PACE.finditer(text)]
    number = math.nan if last is None else _number(last["number"])
    if last is None or not number > 0:
        return found
    return found | {"seconds": number * _UNITS[last["unit"]] if last["unit"] else 1 / number}


def _of_part(text: str, loss: re.Match[str]) -> bool:
    """Whether another word than "train" or "total" stands right before the loss."""
    return (
        loss.start() == loss.start(2) and _WORD_BEFORE.search(text, max(0, loss.start() - 32), loss.start()) is not None
    )


def _number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return math.nan
