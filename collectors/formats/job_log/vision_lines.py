"""Steps as PyTorch's ImageNet example, timm, torchvision's references and open_clip print them.

    Epoch: [3][ 10/500]  Time 0.51 (0.52)  Loss 2.31e+00 (2.40e+00)
    Epoch: [3]  [ 10/500]  eta: 0:04:10  loss: 2.31 (2.40)  time: 0.51  data: 0.02
    Train Epoch: 3 [ 5120/500000 (1%)] Data (t): 0.02 Batch (t): 0.51, 1004.0/s, 125.5/s/gpu LR: 0.0005 Loss: 2.31 (2.40)

The values are the newest batch's, or means of few; means of all stand in brackets. Validations print ``Test:``.
"""

from __future__ import annotations

import re

WORDS = ("Epoch: [", "Train: ")
_HEAD = re.compile(
    r"(?:\bEpoch:? \[ {0,8}(?P<epoch>\d{1,9})(?:/\d{1,9})?\] {0,4}|\bTrain: (?P<round>\d{1,9}) )"
    r"\[ {0,8}(?P<done>\d{1,9})/ {0,8}(?P<length>\d{1,9})(?: \( {0,2}\d{1,3}%\))?\]"
)
_FIELD = re.compile(r"\b([Tt]ime|[Ll]oss):?\s{1,8}([-+]?\d{1,12}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,4})?|nan|inf)")
_NAMES = {"time": "seconds", "loss": "loss"}
_SAMPLES = re.compile(  # of the epoch, and no step's number
    r"\bTrain Epoch: \d{1,9} \[ {0,12}\d{1,12}/\d{1,12} \( {0,2}\d{1,3}%\)\] "
    r"(?=.{0,200}\bBatch \(t\): (?P<seconds>\d{1,9}\.\d{1,9}), (?P<rate>\d{1,9}(?:\.\d{0,9})?)/s)"
)
NO_NUMBER = -1


def report(text: str) -> tuple[str, int, dict[str, float]] | None:
    """Return the layout, the number of the step, counted through epochs from 0, and its values; None for another line."""
    found = _HEAD.search(text) if "Epoch" in text or "Train: " in text else None
    if found is None:
        return _by_samples(text) if "Batch (t): " in text else None
    values = _values(text, found.end())
    number = int(found["epoch"] or found["round"]) * int(found["length"]) + int(found["done"])
    return ("plain", number, values) if "loss" in values else None


def _values(text: str, begin: int) -> dict[str, float]:
    values: dict[str, float] = {}
    for field in _FIELD.finditer(text, begin):
        values.setdefault(_NAMES[field[1].lower()], float(field[2]))
    return values


def _by_samples(text: str) -> tuple[str, int, dict[str, float]] | None:
    found = _SAMPLES.search(text)
    if found is None:
        return None
    values = _values(text, found.end())
    paced = {"seconds": float(found["seconds"]), "samples_per_second": float(found["rate"])}
    return ("plain", NO_NUMBER, values | paced) if "loss" in values else None
