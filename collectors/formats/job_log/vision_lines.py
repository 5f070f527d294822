"""Steps as PyTorch's ImageNet example, timm, torchvision's references, open_clip and mmengine print them.

    Epoch: [3][ 10/500]  Time 0.51 (0.52)  Loss 2.31e+00 (2.40e+00)
    Epoch: [3]  [ 10/500]  eta: 0:04:10  loss: 2.31 (2.40)  time: 0.51  data: 0.02
    Train Epoch: 3 [ 5120/500000 (1%)] Data (t): 0.02 Batch (t): 0.51, 1004.0/s, 125.5/s/gpu LR: 0.0005 Loss: 2.31 (2.40)
    Epoch(train) [3][ 10/500]  lr: 1.0e-04  eta: 1 day  time: 0.51  data_time: 0.02  loss: 2.31  grad_norm: 1.1

The values are the newest batch's, or means of few; means of all stand in brackets. Validations print ``Test:``.
"""

from __future__ import annotations

import re

WORDS = ("Epoch: [", "Epoch [", "Epoch(t", "Train: ")
_HEAD = re.compile(
    r"(?:\bEpoch:? \[ {0,8}(?P<epoch>\d{1,9})(?:/\d{1,9})?\] {0,4}|\bTrain: (?P<round>\d{1,9}) )"
    r"\[ {0,8}(?P<done>\d{1,9})/ {0,8}(?P<length>\d{1,9})(?: \( {0,2}\d{1,3}%\))?\]"
)
_FIELD = re.compile(r"\b([Tt]ime|[Ll]oss):?\s{1,8}([-+]?\d{1,12}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,4})?|nan|inf)")
_NAMES = {"time": "seconds", "loss": "loss", "grad_norm": "gradient_norm"}
_SAMPLES = re.compile(  # of the epoch, and no step's number
    r"\bTrain Epoch: \d{1,9} \[ {0,12}\d{1,12}/\d{1,12} \( {0,2}\d{1,3}%\)\] "
    r"(?=.{0,200}\bBatch \(t\): (?P<seconds>\d{1,9}\.\d{1,9}), (?P<rate>\d{1,9}(?:\.\d{0,9})?)/s)"
)
_MMENGINE = re.compile(  # and mmcv, which both number epochs from 1
    r"\b(?:Epoch(?:\(train\))? +\[(?P<epoch>\d{1,9})\]\[ *(?P<done>\d{1,9})/(?P<length>\d{1,9})\]"
    r"|Iter(?:\(train\))? +\[ *(?P<step>\d{1,18})/ ?\d{1,18}\])\s"
)
_MMENGINE_FIELD = re.compile(
    r"(?<![\w./-])(loss|grad_norm|time): ([-+]?(?:\d{1,12}(?:\.\d{0,20})?(?:[eE][-+]?\d{1,4})?|nan|inf))"
)
NO_NUMBER = -1


def report(text: str) -> tuple[str, int, dict[str, float]] | None:
    """Return the layout, the number of the step, counted through epochs from 0, and its values; None for another line."""
    if (found := _MMENGINE.search(text) if "loss: " in text else None) is not None:
        given = {_NAMES[field[1]]: float(field[2]) for field in _MMENGINE_FIELD.finditer(text, found.end())}
        number = int(found["step"]) if found["step"] else _through_epochs(found, int(found["epoch"]) - 1)
        return ("mmengine", number, given) if "loss" in given else None
    found = _HEAD.search(text) if "Epoch" in text or "Train: " in text else None
    if found is None:
        return _by_samples(text) if "Batch (t): " in text else None
    values = _values(text, found.end())
    return (
        ("plain", _through_epochs(found, int(found["epoch"] or found["round"])), values) if "loss" in values else None
    )


def _through_epochs(found: re.Match[str], before: int) -> int:
    """Return the number of a step that its line counts within an epoch. ``before``: the epochs before it."""
    return before * int(found["length"]) + int(found["done"])


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
