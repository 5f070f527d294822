"""Steps as PyTorch's ImageNet example and timm print them: ``Epoch: [3][ 10/500]  Time 0.51 (0.52) …  Loss 2.31e+00 (2.40e+00)``.

The values are the newest batch's, their means stand in brackets. Validations print ``Test:``.
"""

from __future__ import annotations

import re

WORDS = ("Epoch: [", "Train: ")
_HEAD = re.compile(
    r"(?:\bEpoch:? \[ {0,8}(?P<epoch>\d{1,9})\]|\bTrain: (?P<round>\d{1,9}) )"
    r"\[ {0,8}(?P<done>\d{1,9})/ {0,8}(?P<length>\d{1,9})(?: \( {0,2}\d{1,3}%\))?\]"
)
_FIELD = re.compile(r"\b(Time|Loss):?\s{1,8}([-+]?\d{1,12}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,4})?|nan|inf)")
_NAMES = {"Time": "seconds", "Loss": "loss"}


def report(text: str) -> tuple[str, int, dict[str, float]] | None:
    """Return the layout, the number of the step, counted through epochs from 0, and its values; None for another line."""
    found = _HEAD.search(text) if "Epoch" in text or "Train: " in text else None
    if found is None:
        return None
    values = {_NAMES[field[1]]: float(field[2]) for field in _FIELD.finditer(text, found.end())}
    number = int(found["epoch"] or found["round"]) * int(found["length"]) + int(found["done"])
    return ("plain", number, values) if "loss" in values else None
