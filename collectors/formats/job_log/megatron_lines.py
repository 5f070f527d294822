"""Steps of Megatron-LM, NeMo and Nanotron: ``iteration 40/ 500 | elapsed time per iteration (ms): 1010 | lm loss: 2.5 |``."""

from __future__ import annotations

import math
import re

from collectors.formats.job_log.work_rates import rate_by_size

LINE = re.compile(r"\biteration:?\s+(\d{1,18})\s*/\s*\d+ \|")
APPLIED = 8  # in ``nan``: the norm is NaN at a loss scale of 1, which no overflow lowers
SOME = 32  # in ``nan``: a loss is printed, of the iterations that had one, and that of others was NaN
_NUMBER = re.compile(r"([-+]?(?:[\d.][\d,.]*(?:[eE][-+]?\d+)?|nan|inf|NaN|Infinity))$")
_NAMES = {
    "lm loss": "loss", "grad norm": "gradient_norm", "grad_norm": "gradient_norm", "train_step_timing in s": "seconds",
    "elapsed time per iteration (ms)": "milliseconds", "elapsed_time_per_iteration_ms": "milliseconds",
    "number of skipped iterations": "skipped",
    "number of nan iterations": "nan", "loss scale": "scale", "tflops": "tflops", "global batch size": "batch",
    "global_batch_size": "batch", "curriculum seqlen": "length",
}  # fmt: skip


def report(text: str) -> tuple[str, str, dict[str, float]] | None:
    """Return the layout, the number of the step and its values, ``odd`` among them: bits of ``nan``; None for another line."""
    found = LINE.search(text) if "iteration" in text else None
    if found is None:
        return None
    values: dict[str, float] = {}
    for part in text[found.end() :].split("|"):
        name, _, given = part.strip().rpartition(" ")
        name = name.rstrip(" :").lower()
        target = _NAMES.get(name) or _name(name)
        if target is None or _NUMBER.match(given) is None or (target == "loss" != name[3:] and "loss" in values):
            continue
        try:
            values[target] = float(given.replace(",", ""))
        except ValueError:  # "1.2.3"
            values[target] = math.nan
    if "milliseconds" in values:
        values["seconds"] = values["milliseconds"] / 1000
    values["odd"] = _odd(values)
    return "megatron", found[1], values | _rate(values)


def _odd(values: dict[str, float]) -> int:
    odd = 0
    if values.get("nan", 0.0) > 0 and not math.isnan(values.setdefault("loss", math.nan)):
        odd |= SOME  # Megatron-LM prints no loss where no iteration had one
    if math.isnan(values.get("gradient_norm", 0.0)) and values.get("scale") == 1.0 and "skipped" in values:
        odd |= APPLIED
    return odd


def _rate(values: dict[str, float]) -> dict[str, float]:
    """Return the work a second by the sizes of a step; a rate that is printed knows more, but TFLOPs not of longer sequences."""
    if "tokens_per_second" in values or ("tflops" in values and "length" not in values):
        return {}
    sizes = {"global_batch_size": values.get("batch"), "seqlen": values.get("length")}
    return rate_by_size(sizes, values.get("seconds", 0.0))


def _name(name: str) -> str | None:
    if name.endswith("loss"):
        return "loss"
    if "flop/s" in name or "flop/sec" in name:
        return "tflops"
    return "tokens_per_second" if "token" in name and "sec" in name else None
